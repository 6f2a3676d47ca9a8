// SPDX-License-Identifier: Apache-2.0
// A session's capsule in memory and in a file. The file is one of hosts/lm/capsules, which
// `frt-host` reads, too. Its `extra` says which of the state's tokens belong to the session, and
// which come behind them:
//
//   "session": {"kept": 41, "behind": [17]}
#include <frt/core/capsules.hpp>
#include <frt/io/file.hpp>

#include <chrono>
#include <utility>

#include "embed/lm.hpp"
#include "lm/capsules/file.hpp"
#include "lm/capsules/name.hpp"
#include "lm/capsules/trust.hpp"

namespace frt::embed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

uint64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

// What the session held, by the content's extra; of a file that another host wrote, all of it.
std::vector<int32_t> session_tokens(const host::CapsuleContent& content, uint64_t vocabulary) {
  std::vector<int32_t> tokens = content.tokens;
  const auto said = content.extra.find("session");
  if (said == content.extra.end()) {
    if (content.pending.shown && content.pending.token >= 0)
      tokens.push_back(content.pending.token);
    return tokens;
  }
  const auto broken = [] {
    return Error(FRT_ERR_FORMAT,
                 "the capsule's member `extra` describes a session that cannot exist");
  };
  if (!said->is_object() || !said->contains("kept") || !said->contains("behind")) throw broken();
  const Json& kept = (*said)["kept"];
  const Json& behind = (*said)["behind"];
  if (!kept.is_number_unsigned() || kept.get<uint64_t>() > tokens.size() || !behind.is_array()) {
    throw broken();
  }
  tokens.resize(kept.get<uint64_t>());
  for (const Json& id : behind) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocabulary) throw broken();
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

}  // namespace

LmCapsule::LmCapsule(std::shared_ptr<Lm> lm, host::Session::Snapshot snapshot,
                     std::vector<int32_t> tokens, const frt_sampling_params& sampling)
    : lm_(std::move(lm)),
      snapshot_(std::move(snapshot)),
      tokens_(std::move(tokens)),
      sampling_(sampling) {}

LmCapsule::~LmCapsule() {
  lm_->engine().let_go([&] { snapshot_.reset(); });
}

frt_capsule_facts LmCapsule::facts() const noexcept {
  frt_capsule_facts facts{};
  facts.space = snapshot_->capsule.space();
  facts.tokens = tokens_.size();
  facts.bytes = snapshot_->capsule.bytes();
  facts.other_build = snapshot_->capsule.other_build().data();
  return facts;
}

void LmCapsule::save(const std::string& folder, const std::string& name, bool replace) const {
  host::require_capsule_name(name);
  host::require_own_folder(folder);
  const host::TokenJournal& journal = snapshot_->journal;
  host::CapsuleContent content;
  content.name = name;
  content.model = lm_->model().name();
  content.created = unix_seconds();
  content.chunk = journal.chunk();
  content.tokens = journal.tokens();
  content.path = journal.path();
  content.digest = host::digest_of(content.owner, content.tokens);
  content.pending = snapshot_->pending;
  content.sampling = sampling_;
  const uint64_t kept = host::common_prefix(journal.tokens(), tokens_);
  content.extra["session"] = {
      {"kept", kept},
      {"behind",
       std::vector<int32_t>(tokens_.begin() + static_cast<std::ptrdiff_t>(kept), tokens_.end())}};
  const std::string text = host::content_to_text(content);
  host::content_from_text(text);  // what cannot be read again is not saved

  // A file is written from host memory; the engine goes on while the copy and the file are made.
  Capsule copied;
  lm_->engine().call([&](host::EngineAccess&) {
    lm_->know_fingerprint();
    const Context& context = lm_->model().context();
    const Stream copies = context.create_stream("capsules." + lm_->model().name() + ".save");
    copied = snapshot_->capsule.copy(FRT_SPACE_HOST_PINNED, copies);
    copied.sync();
  });
  const auto release = [&] { lm_->engine().let_go([&] { copied.reset(); }); };
  try {
    copied.save(folder, name, text, replace ? FRT_CAPSULE_REPLACE : 0);
  } catch (...) {
    release();
    throw;
  }
  release();
}

std::shared_ptr<LmCapsule> LmCapsule::load(std::shared_ptr<Lm> lm, const std::string& folder,
                                           const std::string& name) {
  host::require_capsule_name(name);
  host::require_own_folder(folder);
  const fs::path path = fs::path(folder) / (name + host::kCapsuleSuffix);
  {
    const io::Descriptor file = io::open_file(path, "capsule", io::Links::kRefuse);
    host::require_own_file(file, path);
  }
  const host::LmModel& model = lm->model();
  const frt_capsules_v1& table = model.capsules().table();
  verify_capsule(table, folder, name);
  const CapsuleDescription description = describe_capsule(table, folder, name);
  const auto content_of = [&](const std::string& metadata) {
    host::CapsuleContent content = host::content_from_text(metadata);
    host::check_content(content, {model.info().vocabulary, model.info().prefill_chunk});
    return content;
  };
  host::CapsuleContent content = content_of(description.metadata);
  host::take_manifest(content, description.manifest);

  host::Session::Snapshot empty{.capsule = {},
                                .journal = host::TokenJournal(content.chunk),
                                .boundaries = {},
                                .pending = content.pending};
  // Made first: it ends on the engine's thread whatever happens.
  const auto capsule =
      std::make_shared<LmCapsule>(lm, std::move(empty), std::vector<int32_t>(), content.sampling);
  host::Session::Snapshot& loaded = *capsule->snapshot_;
  lm->engine().call([&](host::EngineAccess&) {
    lm->know_fingerprint();
    std::string metadata;
    loaded.capsule = model.capsules().load_begin(folder, name, FRT_SPACE_HOST_PINNED, &metadata);
    // Tokens and state are of one file, also where another one took its place meanwhile.
    if (metadata != description.metadata) content = content_of(metadata);
    host::check_content(content, loaded.capsule.boundary());
    lm->warn(host::note_builds(content, name, loaded.capsule.other_build()));
  });
  loaded.journal.assign(content.tokens, content.path);
  loaded.pending = content.pending;
  capsule->tokens_ = session_tokens(content, model.info().vocabulary);
  capsule->sampling_ = content.sampling;
  loaded.capsule.load_finish();
  return capsule;
}

}  // namespace frt::embed
