// SPDX-License-Identifier: Apache-2.0
#include "http/lm/state_call.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "lm/capsules/name.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// Neither part of a stored name can be mistaken for the other: a name that a client gives has no
// two dots in a row, so the last two are those between them.
constexpr std::string_view kBetween = "..";
constexpr std::string_view kAutomatic = "auto-";
constexpr std::size_t kLongestName = 128;  // FRT_CAPSULE_NAME_RULE
constexpr std::chrono::milliseconds kPoll{2};
constexpr std::chrono::seconds kPatience{30};  // for a capsule that is on its way

ApiError no_such_capsule() {
  return {ApiErrorKind::kNotFound,
          "there is no such capsule; see GET /v1/capsules",
          {},
          "capsule_not_found"};
}

bool is_kept(const CapsuleView& view) {
  return view.pinned || view.kind == capsule_kind_name(CapsuleKind::kNamed);
}

}  // namespace

// ---- names ----

std::string stored_name(const std::string& owner, const std::string& id) {
  return owner.empty() ? id : owner + std::string(kBetween) + id;
}

std::string shown_name(const std::string& owner, const std::string& stored) {
  const std::string own = stored_name(owner, "");
  return stored.starts_with(own) ? stored.substr(own.size()) : stored;
}

void require_new_name(const std::string& owner, const std::string& id) {
  const std::size_t most = kLongestName - stored_name(owner, "").size();
  const bool good = is_capsule_name(id) && id.size() <= most && !id.starts_with(kAutomatic) &&
                    id.find(kBetween) == id.npos;
  if (good) return;
  throw ApiError(ApiErrorKind::kInvalid,
                 "a name has 1 to " + std::to_string(most) +
                     " letters, digits, '_', '.' and '-', begins with a letter or a digit, but not "
                     "with \"auto-\", and has no two dots in a row",
                 "name");
}

// ---- bodies ----

Json body_of(const StateCall& call) {
  if (call.body.empty()) return Json::object();
  const ApiLimits& limits = call.limits;
  try {
    Json body = io::parse_json(
        call.body, "body", {.bytes = limits.body, .depth = limits.depth, .values = limits.values});
    if (!body.is_object()) throw ApiError(ApiErrorKind::kInvalid, "the body must be a JSON object");
    return body;
  } catch (const Error& error) {
    throw ApiError(ApiErrorKind::kInvalid, error.what());
  }
}

std::string text_member(const Json& body, const char* key, std::size_t most) {
  const auto found = body.find(key);
  const bool good = found != body.end() && found->is_string() &&
                    !found->get_ref<const std::string&>().empty() &&
                    found->get_ref<const std::string&>().size() <= most;
  if (good) return found->get<std::string>();
  throw ApiError(ApiErrorKind::kInvalid,
                 std::string(key) + " must be a text of 1 to " + std::to_string(most) + " bytes",
                 key);
}

// ---- the engine ----

ApiError client_error(const Error& error) {
  switch (error.status()) {
    case FRT_ERR_NOT_FOUND:
      return no_such_capsule();
    case FRT_ERR_EXISTS:
      return {ApiErrorKind::kConflict,
              "there is a capsule of that name already; choose another one, or delete it first",
              "name"};
    case FRT_ERR_FORMAT:
      return {ApiErrorKind::kInvalid, "this is no capsule, or a damaged one"};
    case FRT_ERR_MISMATCH:
      return {ApiErrorKind::kInvalid, "this capsule is of another model, build or device"};
    case FRT_ERR_NOT_READY:
      return {ApiErrorKind::kConflict, "the capsule is being moved; try again"};
    case FRT_ERR_OUT_OF_MEMORY:
    case FRT_ERR_DEVICE_LOST:
    case FRT_ERR_BAD_STATE:
      return {ApiErrorKind::kOverloaded, "the server has no room for this now; try again later"};
    default:
      return {ApiErrorKind::kInternal, "the request failed"};
  }
}

void on_engine(const StateCall& call, const EngineWork& work) {
  call.served->engine.call([&](EngineAccess& access) {
    CapsuleRegistry* registry = access.registry();
    if (!registry) throw ApiError(ApiErrorKind::kConflict, "this server keeps no capsules");
    work(access, *registry);
  });
}

void on_engine_later(const StateCall& call, const LaterWork& begin) {
  struct End {
    bool over = false;
    std::exception_ptr failure;
  };
  const auto end = std::make_shared<End>();  // of the engine's thread
  const auto told = [end](const std::exception_ptr& failure) {
    end->over = true;
    end->failure = failure;
  };
  const Clock::time_point patience = Clock::now() + kPatience;
  bool begun = false, over = false;
  while (!over) {
    on_engine(call, [&](EngineAccess& access, CapsuleRegistry& registry) {
      registry.tend();
      try {
        if (!begun) begin(access, registry, told);
        begun = true;
      } catch (const Error& error) {
        if (error.status() != FRT_ERR_NOT_READY || Clock::now() > patience) throw;
      }
      over = end->over;
      if (over && end->failure) std::rethrow_exception(end->failure);
    });
    if (!over) std::this_thread::sleep_for(kPoll);
  }
}

void bring_into_memory(const StateCall& call, const std::string& stored) {
  bool begun = false, there = false;
  while (!there) {
    on_engine(call, [&](EngineAccess&, CapsuleRegistry& registry) {
      registry.tend();
      if (!std::exchange(begun, true)) {
        there = !registry.fetch(stored);
      } else if (!registry.fetching(stored)) {
        registry.wait(stored);  // it is there, or this says why not
        there = true;
      }
    });
    if (!there) std::this_thread::sleep_for(kPoll);
  }
}

CapsuleView find_capsule(const CapsuleRegistry& registry, const StateCall& call,
                         const std::string& id) {
  const std::string stored = stored_name(call.owner, id);
  std::optional<CapsuleView> found;
  for (CapsuleView& view : registry.list()) {
    if (view.owner != call.owner || (view.name != stored && view.name != id)) continue;
    if (!registry.has(view.name)) continue;
    if (!found || view.name == stored) found = std::move(view);
  }
  if (!found) throw no_such_capsule();
  return *std::move(found);
}

void require_quota(const CapsuleRegistry& registry, const StateCall& call) {
  const std::vector<CapsuleView> all = registry.list();
  const auto kept = std::ranges::count_if(
      all, [&](const CapsuleView& view) { return view.owner == call.owner && is_kept(view); });
  if (static_cast<uint64_t>(kept) < call.kept_capsules) return;
  throw ApiError(ApiErrorKind::kConflict, std::to_string(kept) +
                                              " capsules are named or pinned, which is as many as "
                                              "a key may have; delete or unpin one first");
}

Json capsule_json(const std::string& owner, const CapsuleView& view) {
  Json tiers = Json::array();
  for (const Tier tier : view.tiers) tiers.push_back(tier_name(tier));
  return {{"id", shown_name(owner, view.name)},
          {"object", "capsule"},
          {"kind", view.kind},
          {"tokens", view.boundary},
          {"created", view.created},
          {"parent", view.parent.empty() ? Json() : Json(shown_name(owner, view.parent))},
          {"pinned", view.pinned},
          {"exact", view.cold_path},
          {"tiers", std::move(tiers)},
          {"device_bytes", view.device_bytes},
          {"host_bytes", view.host_bytes},
          {"file_bytes", view.file_bytes}};
}

}  // namespace frt::host
