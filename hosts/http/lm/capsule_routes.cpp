// SPDX-License-Identifier: Apache-2.0
#include "http/lm/capsule_routes.hpp"

#include <algorithm>
#include <filesystem>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "http/file_stream.hpp"
#include "lm/capsules/file.hpp"
#include "lm/capsules/transfer.hpp"
#include "lm/capsules/trust.hpp"

namespace frt::host::capsule_routes {
namespace {

using Json = nlohmann::ordered_json;

CapsuleView view_of(const StateCall& call) {
  CapsuleView view;
  on_engine(call, [&](EngineAccess&, CapsuleRegistry& registry) {
    view = find_capsule(registry, call, call.id);
  });
  return view;
}

CapsuleOptions folder_of(const StateCall& call) {
  CapsuleOptions options;
  on_engine(call, [&](EngineAccess&, CapsuleRegistry& registry) { options = registry.options(); });
  if (!options.folder.empty()) return options;
  throw ApiError(ApiErrorKind::kConflict, "this server keeps no capsules on a disk");
}

Json set_pin(const StateCall& call, bool pinned) {
  on_engine_later(
      call, [&](EngineAccess&, CapsuleRegistry& registry, const BackgroundWorker::End& end) {
        const CapsuleView view = find_capsule(registry, call, call.id);
        const bool counts = view.pinned || view.kind == capsule_kind_name(CapsuleKind::kNamed);
        if (pinned && !counts) require_quota(registry, call);
        registry.pin_later(view.name, pinned, end);
      });
  return capsule_json(call.owner, view_of(call));
}

}  // namespace

Json list(const StateCall& call) {
  std::vector<CapsuleView> own;
  on_engine(call, [&](EngineAccess&, CapsuleRegistry& registry) {
    for (CapsuleView& view : registry.list()) {
      if (view.owner == call.owner && registry.has(view.name)) own.push_back(std::move(view));
    }
  });
  std::ranges::sort(own, {}, [](const CapsuleView& view) {
    return std::tuple(view.created, view.boundary, view.name);
  });
  Json data = Json::array();
  for (const CapsuleView& view : own) data.push_back(capsule_json(call.owner, view));
  return {{"object", "list"}, {"data", std::move(data)}};
}

Json show(const StateCall& call) {
  return capsule_json(call.owner, view_of(call));
}

Json remove(const StateCall& call) {
  on_engine_later(call,
                  [&](EngineAccess&, CapsuleRegistry& registry, const BackgroundWorker::End& end) {
                    registry.remove_later(find_capsule(registry, call, call.id).name, end);
                  });
  return {{"id", call.id}, {"object", "capsule"}, {"deleted", true}};
}

Json pin(const StateCall& call) {
  return set_pin(call, true);
}

Json unpin(const StateCall& call) {
  return set_pin(call, false);
}

std::unique_ptr<IncomingCapsule> begin_import(const StateCall& call) {
  require_new_name(call.owner, call.id);
  const CapsuleOptions options = folder_of(call);
  on_engine(call, [&](EngineAccess&, CapsuleRegistry& registry) {
    registry.require_name(stored_name(call.owner, call.id), false);
    require_quota(registry, call);
  });
  return std::make_unique<IncomingCapsule>(options.folder, options.trust);
}

Json take_in(const StateCall& call) {
  const std::unique_ptr<IncomingCapsule> incoming = call.upload->complete();
  const std::string stored = stored_name(call.owner, call.id);
  const CapsuleOptions options = folder_of(call);
  std::string fingerprint;
  // Asked again: others may have taken the name, or the room, since the upload began.
  on_engine(call, [&](EngineAccess&, CapsuleRegistry& registry) {
    registry.require_name(stored, false);
    require_quota(registry, call);
    fingerprint = registry.fingerprint();
  });
  const auto accept = [&](const CapsuleContent& content) {
    check_content(content, options.model);
    if (content.fingerprint != fingerprint) {
      throw Error(FRT_ERR_MISMATCH, "the file is of another model, build or layout");
    }
    if (content.owner != call.owner) {
      throw ApiError(ApiErrorKind::kPermission, "this capsule was exported with another key");
    }
  };
  incoming->keep(call.served->model.capsules().table(), stored, accept);
  on_engine_later(call,
                  [&](EngineAccess&, CapsuleRegistry& registry, const BackgroundWorker::End& end) {
                    registry.adopt_later(stored, end);
                  });
  return show(call);
}

void send(const StateCall& call, const std::shared_ptr<Exchange>& exchange, Workers& workers) {
  const CapsuleOptions options = folder_of(call);
  const CapsuleView view = view_of(call);
  if (std::ranges::find(view.tiers, Tier::kDisk) == view.tiers.end()) {
    throw ApiError(
        ApiErrorKind::kConflict,
        "this capsule is in memory alone; take a snapshot of its session to have a file");
  }
  const std::filesystem::path path = options.folder / (view.name + kCapsuleSuffix);
  io::Descriptor file = io::open_file(path, "capsule", io::Links::kRefuse);
  if (!options.trust) require_own_file(file, path);
  // Whoever imports it verifies the rest; this is that it is the key's own.
  const CapsuleContent content =
      read_capsule_content(call.served->model.capsules().table(), options.folder, view.name);
  if (content.owner != call.owner) {
    throw Error(FRT_ERR_NOT_FOUND, "the capsule '" + view.name + "' belongs to another key");
  }
  HttpResponse head{.content_type = "application/octet-stream"};
  head.headers = {
      {"Content-Disposition",
       "attachment; filename=\"" + shown_name(call.owner, view.name) + kCapsuleSuffix + "\""}};
  FileStream::start(exchange, std::move(head), std::move(file), workers);
}

}  // namespace frt::host::capsule_routes
