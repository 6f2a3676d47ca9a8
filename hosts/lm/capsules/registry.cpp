// SPDX-License-Identifier: Apache-2.0
// Which capsules there are, and which one fits. What moves between the tiers: tiers.cpp.
//
// by_boundary_ is how a prompt is matched: its prefixes are hashed once, in the order of the
// boundaries there are, and looked up. Whoever is found is compared token by token.
#include "lm/capsules/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "lm/capsules/file.hpp"
#include "lm/capsules/name.hpp"
#include "lm/capsules/trust.hpp"

namespace frt::host {
namespace {

constexpr std::array kTierNames = {"device", "host", "disk"};

constexpr std::size_t kMostNotices = 3;  // of files that are of no use

std::string reason_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
}

frt_status status_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return FRT_ERR_OUT_OF_MEMORY;
  } catch (...) {
    return FRT_ERR_INTERNAL;
  }
}

}  // namespace

const char* tier_name(Tier tier) noexcept {
  return kTierNames[static_cast<std::size_t>(tier)];
}

CapsuleRegistry::CapsuleRegistry(const Context& context, const Capsules& verbs,
                                 CapsuleOptions options)
    : verbs_(verbs),
      options_(std::move(options)),
      shared_memory_((context.info().device->flags & FRT_DEVICE_SHARED_MEMORY) != 0),
      copies_(context.create_stream("lm.capsules")) {
  if (options_.folder.empty()) return;
  if (!options_.trust) require_own_folder(options_.folder);
  // Files need it, and the worker must not be the one who makes it.
  fingerprint_ = fingerprint_digest(verbs_.fingerprint());
  try {
    sweep_capsules(verbs_.table(), options_.folder);
  } catch (const Error& error) {  // a folder that is missing, or cannot be written to
    if (error.status() != FRT_ERR_NOT_FOUND) notices_.push_back(error.what());
  }
  index_ = std::make_unique<CapsuleIndex>(verbs_.table(), options_.folder, options_.trust);
  opening_ = index_->opening();
  std::vector<IndexRow> rows = index_->rows();
  std::sort(rows.begin(), rows.end(), [](const IndexRow& a, const IndexRow& b) {
    return std::tie(a.last_used, a.name) < std::tie(b.last_used, b.name);
  });
  std::size_t useless = 0;
  for (const IndexRow& row : rows) {
    if (row.problem.empty()) {
      adopt_row(row);
      continue;
    }
    unusable_.emplace(row.name, row.problem);
    if (++useless <= kMostNotices) {
      notices_.push_back("capsule '" + row.name + "' is not used: " + row.problem);
    }
  }
  if (useless > kMostNotices) {
    notices_.push_back(fmt::format(
        "{} more capsules are not used; `frt-host capsule ls` shows them", useless - kMostNotices));
  }
}

CapsuleRegistry::~CapsuleRegistry() {
  try {
    settle();
  } catch (const std::exception&) {
    // A device that is lost ends nothing any more.
  }
}

void CapsuleRegistry::adopt_row(const IndexRow& row) {
  Entry entry;
  entry.view = {.name = row.name,
                .owner = row.owner,
                .parent = row.parent,
                .kind = row.kind,
                .boundary = row.boundary,
                .created = row.created,
                .pinned = row.pinned,
                .cold_path = row.cold_path,
                .file_bytes = row.file_bytes};
  unusable_.erase(row.name);
  entry.digest = row.digest;
  entry.file = true;
  entry.foreign = row.fingerprint != fingerprint_;
  entry.used = ++clock_;
  changed_ = true;
  index_entry(entry);
  entries_.emplace(row.name, std::move(entry));
}

// A prompt must not find what the model cannot restore, nor what another build computed: who names
// a capsule chooses its rounding, who sends a prompt does not.
void CapsuleRegistry::index_entry(const Entry& entry) {
  if (entry.foreign) return;
  by_boundary_[entry.view.boundary].emplace(entry.digest, entry.view.name);
}

void CapsuleRegistry::unindex_entry(const Entry& entry) {
  const auto boundary = by_boundary_.find(entry.view.boundary);
  if (boundary == by_boundary_.end()) return;
  std::erase_if(boundary->second, [&](const auto& item) { return item.second == entry.view.name; });
  if (boundary->second.empty()) by_boundary_.erase(boundary);
}

void CapsuleRegistry::forget(const std::string& name) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return;
  unindex_entry(entry->second);
  entries_.erase(entry);
}

// What the file says is true, whatever the index said.
void CapsuleRegistry::adopt_content(Entry& entry, CapsuleContent content,
                                    std::string_view other_build) {
  unindex_entry(entry);
  std::string builds = note_builds(content, entry.view.name, other_build);
  if (!builds.empty()) notices_.push_back(std::move(builds));
  entry.foreign = has_other_build(content.path);
  if (other_build.empty()) content.fingerprint = fingerprint_;  // core compared it
  mark_mixed(content);
  entry.view.owner = content.owner;
  entry.view.parent = content.parent;
  entry.view.kind = capsule_kind_name(is_automatic(content, entry.view.name) ? content.kind
                                                                             : CapsuleKind::kNamed);
  entry.view.boundary = content.boundary();
  entry.view.created = content.created;
  entry.view.cold_path = on_cold_path(content.path, content.chunk);
  entry.digest = content.digest;
  entry.content = std::make_shared<const CapsuleContent>(std::move(content));
  index_entry(entry);
}

CapsuleRegistry::Entry& CapsuleRegistry::at(const std::string& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    if (const auto file = unusable_.find(name); file != unusable_.end()) {
      throw Error(FRT_ERR_FORMAT, "capsule '" + name + "' is not used: " + file->second);
    }
    throw Error(FRT_ERR_NOT_FOUND, "there is no capsule '" + name +
                                       "'; `frt-host capsule ls` lists those on the disk");
  }
  return found->second;
}

void CapsuleRegistry::touch(Entry& entry) {
  entry.used = ++clock_;
  if (!entry.file || !index_) return;
  post(
      entry.view.name, [this, name = entry.view.name] { index_->touch(name, unix_seconds()); },
      nullptr, BackgroundWorker::Urgency::kMerged);
}

uint64_t CapsuleRegistry::post(const std::string& name, std::function<void()> job,
                               BackgroundWorker::End end, BackgroundWorker::Urgency urgency) {
  const auto problem = std::make_shared<std::string>();
  return worker_.post(
      name,
      [this, job = std::move(job), problem] {
        job();
        *problem = index_->take_problem();
      },
      [this, end = std::move(end), problem](const std::exception_ptr& failure) {
        if (!problem->empty()) notices_.push_back(*problem);
        if (!end) return;
        changed_ = true;
        end(failure);
      },
      urgency);
}

void CapsuleRegistry::notice(const std::string& what, const std::exception_ptr& failure) {
  notices_.push_back(what + ": " + reason_of(failure));
}

std::vector<std::string> CapsuleRegistry::take_notices() {
  return std::exchange(notices_, {});
}

void CapsuleRegistry::require_folder() const {
  if (index_) return;
  throw Error(
      FRT_ERR_BAD_STATE,
      "there is no folder for capsules; set `capsule_dir = \"DIR\"` in the table [host.lm] of "
      "the manifest, and write that table with `model = \"NAME\"` where there is none; with "
      "the table, --set host.lm.capsule_dir=DIR does for one run");
}

// ---- taking ----

uint64_t CapsuleRegistry::least_bytes(uint64_t boundary, frt_space space) const {
  uint64_t bytes = 0;
  if (options_.layout) {
    const frt_capsule_layout& layout = *options_.layout;
    const bool shares_rows = layout.page_rows > 0 && space == FRT_SPACE_DEVICE;
    for (uint32_t i = 0; i < layout.region_count; ++i) {
      const frt_region& region = layout.regions[i];
      const auto valid = static_cast<int64_t>(boundary) - region.row_lag;
      const bool rows = region.kind == FRT_REGION_ROWS;
      if (rows && (shares_rows || valid <= 0)) continue;
      bytes += region.row_bytes * (rows ? static_cast<uint64_t>(valid) : 1);
    }
  }
  const uint64_t slab = verbs_.usage(space).slab_bytes;
  return (std::max<uint64_t>(bytes, 1) + slab - 1) / slab * slab;
}

Capsule CapsuleRegistry::snapshot(uint32_t slot, uint64_t boundary, frt_space space,
                                  const Stream& stream) {
  for (;;) {
    try {
      return verbs_.snapshot(slot, boundary, space, stream);
    } catch (const Error& error) {
      const bool full = error.status() == FRT_ERR_OUT_OF_MEMORY && space == FRT_SPACE_DEVICE;
      if (!full || !make_room()) throw;
    }
  }
}

// Empty if the budget has no room for it beside what is pinned. The size is known to the slab when
// it is taken, so it is looked at again then.
Capsule CapsuleRegistry::take(uint32_t slot, uint64_t boundary, frt_space space,
                              const Stream& stream) {
  const Tier tier = space == FRT_SPACE_DEVICE ? Tier::kDevice : Tier::kHost;
  const uint64_t budget = tier == Tier::kDevice ? options_.device_bytes : options_.host_bytes;
  if (budget == 0) return {};
  uint64_t kept = 0;  // by those that stay
  for (const auto& [name, entry] : entries_) {
    if (!entry.view.pinned) continue;
    kept += tier == Tier::kDevice ? entry.view.device_bytes : entry.view.host_bytes;
  }
  if (kept + least_bytes(boundary, space) > budget) return {};
  Capsule made = snapshot(slot, boundary, space, stream);
  return kept + made.info().held_bytes <= budget ? std::move(made) : Capsule();
}

std::string CapsuleRegistry::keep(uint32_t slot, CapsuleContent content, const Stream& stream) {
  if (has_other_build(content.path)) return {};
  content.digest = digest_of(content.owner, content.tokens);
  content.fingerprint = fingerprint_;
  content.name = automatic_name(content);
  if (const auto known = entries_.find(content.name); known != entries_.end()) {
    if (known->second.foreign || known->second.digest != content.digest) {
      notices_.push_back("a capsule was not kept: the file '" + content.name +
                         "' holds something else; remove it with `frt-host capsule rm`");
      return {};
    }
    touch(known->second);
    if (known->second.device || known->second.host) return content.name;
  }
  Capsule device, host;
  try {
    device = take(slot, content.boundary(), FRT_SPACE_DEVICE, stream);
    if (!device) host = take(slot, content.boundary(), FRT_SPACE_HOST_PINNED, stream);
  } catch (const Error& error) {
    if (error.status() != FRT_ERR_OUT_OF_MEMORY) throw;
    notices_.push_back(std::string("a capsule was not kept: ") + error.what());
  }
  if (!device && !host) return {};
  content.created = unix_seconds();
  const std::string name = content.name;
  auto [place, fresh] = entries_.try_emplace(name);
  Entry& entry = place->second;
  if (device) entry.device = std::move(device);
  if (host) entry.host = std::move(host);
  entry.used = ++clock_;
  if (fresh) {
    entry.view = {.name = name,
                  .owner = content.owner,
                  .parent = content.parent,
                  .kind = capsule_kind_name(content.kind),
                  .boundary = content.boundary(),
                  .created = content.created,
                  .cold_path = on_cold_path(content.path, content.chunk)};
    entry.digest = content.digest;
    index_entry(entry);
  }
  entry.content = std::make_shared<const CapsuleContent>(std::move(content));
  refresh_view(entry);
  tend();
  return name;
}

void CapsuleRegistry::require_name(const std::string& name, bool replace) const {
  require_folder();
  require_capsule_name(name);
  if (!replace && entries_.contains(name)) {
    throw Error(FRT_ERR_EXISTS, "there is a capsule '" + name +
                                    "' already; choose another name, replace it (`frt-host run "
                                    "--replace`), or remove it with `frt-host capsule rm`");
  }
}

void CapsuleRegistry::name_content(CapsuleContent& content) const {
  content.kind = CapsuleKind::kNamed;
  content.created = unix_seconds();
  content.digest = digest_of(content.owner, content.tokens);
  content.fingerprint = fingerprint_;
}

Capsule CapsuleRegistry::snapshot_for_file(uint32_t slot, uint64_t boundary, const Stream& stream) {
  Capsule kept;
  if (files_in_place()) {
    try {
      kept = snapshot(slot, boundary, FRT_SPACE_DEVICE, stream);
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY) throw;
    }
  }
  if (!kept) kept = snapshot(slot, boundary, FRT_SPACE_HOST_PINNED, stream);
  kept.sync();
  return kept;
}

void CapsuleRegistry::save(uint32_t slot, CapsuleContent content, const Stream& stream,
                           bool replace) {
  require_name(content.name, replace);
  name_content(content);
  const std::string name = content.name;
  Capsule kept = snapshot_for_file(slot, content.boundary(), stream);
  const bool in_place = kept.space() != FRT_SPACE_HOST_PINNED;
  const auto shared = std::make_shared<const CapsuleContent>(std::move(content));
  IndexRow row;
  bool saved = false;
  std::exception_ptr failure;
  worker_.wait(post(
      name,
      [&] {
        index_->hold(name);
        const std::string text = content_to_text(*shared);
        content_from_text(text);  // what cannot be read again is not saved
        try {
          kept.save(options_.folder, name, text, replace ? FRT_CAPSULE_REPLACE : 0);
          saved = true;
        } catch (const Error&) {
          row = index_->refresh(name);
          throw;
        }
        row = index_->refresh(name);
      },
      [&failure](const std::exception_ptr& met) { failure = met; }));
  // From here on the file is what it is, whatever else fails: the entry follows it.
  const bool usable = !row.name.empty() && row.problem.empty();
  for (auto old = entries_.find(name); old != entries_.end() && old->second.busy;
       old = entries_.find(name)) {
    worker_.wait(*old->second.busy);
  }
  if (saved || usable) forget(name);
  if (usable) adopt_row(row);
  if (!saved) std::rethrow_exception(failure);
  if (!usable) {
    throw Error(FRT_ERR_IO, "capsule '" + name + "' was written, but cannot be read back: " +
                                (failure ? reason_of(failure) : row.problem) +
                                "; verify it with `frt-host capsule verify`");
  }
  try {
    Entry& entry = at(name);
    entry.content = shared;
    if (in_place) {
      entry.device = std::move(kept);
    } else {
      entry.host = std::move(kept);
      refresh_view(entry);
      entry.device = take(slot, shared->boundary(), FRT_SPACE_DEVICE, stream);
    }
    refresh_view(entry);
    tend();
  } catch (const Error& error) {
    notices_.push_back("capsule '" + name + "' is saved, but not kept in memory: " + error.what());
  }
}

// ---- finding ----

std::optional<CapsuleMatch> CapsuleRegistry::find(std::span<const int32_t> tokens,
                                                  std::string_view owner,
                                                  const std::set<std::string>& except) {
  PrefixHasher hasher(owner);
  uint64_t hashed = 0;
  const Entry* best = nullptr;
  const auto rank = [](const Entry& entry) {
    return std::tuple(entry.view.boundary, entry.view.cold_path,
                      entry.device ? 2
                      : entry.host ? 1
                                   : 0,
                      entry.used);
  };
  for (const auto& [boundary, there] : by_boundary_) {
    if (boundary == 0) continue;
    if (boundary >= tokens.size()) break;
    hasher.append(tokens.subspan(hashed, boundary - hashed));
    hashed = boundary;
    const auto [first, last] = there.equal_range(hasher.digest());
    for (auto item = first; item != last; ++item) {
      const Entry& entry = entries_.at(item->second);
      if (entry.view.owner != owner || except.contains(entry.view.name)) continue;
      if (entry.leaving && !entry.device && !entry.host) continue;
      if (entry.content && common_prefix(entry.content->tokens, tokens) != boundary) continue;
      if (!best || rank(entry) > rank(*best)) best = &entry;
    }
  }
  if (!best) return std::nullopt;
  CapsuleMatch match;
  match.name = best->view.name;
  match.boundary = best->view.boundary;
  match.tier = best->device ? Tier::kDevice : best->host ? Tier::kHost : Tier::kDisk;
  match.pinned = best->view.pinned;
  match.cold_path = best->view.cold_path;
  match.bytes = best->device ? best->view.device_bytes
                : best->host ? best->view.host_bytes
                             : best->view.file_bytes;
  return match;
}

std::vector<std::shared_ptr<const CapsuleContent>> CapsuleRegistry::contents(
    std::string_view owner) const {
  std::vector<std::shared_ptr<const CapsuleContent>> contents;
  for (const auto& [name, entry] : entries_) {
    if (entry.content && entry.view.owner == owner) contents.push_back(entry.content);
  }
  return contents;
}

// ---- using ----

bool CapsuleRegistry::files_in_place() const {
  return shared_memory_ && options_.device_bytes > 0;
}

// In place as long as there are pages, or capsules that can give theirs up.
Capsule CapsuleRegistry::begin_load(const std::string& name, std::string* metadata) {
  while (files_in_place()) {
    try {
      return verbs_.load_begin(options_.folder, name, FRT_SPACE_DEVICE, metadata);
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY) throw;
    }
    if (!make_room()) break;
  }
  return verbs_.load_begin(options_.folder, name, FRT_SPACE_HOST_PINNED, metadata);
}

void CapsuleRegistry::start_load(Entry& entry) {
  // The worker reads and checks what the file says before the driver takes memory for it, so that
  // the driver finds it in the page cache and parses nothing; then the worker reads the payload.
  struct Said {
    std::string metadata;
    CapsuleContent content;
  };
  const std::string name = entry.view.name;
  const auto said = std::make_shared<Said>();
  entry.failure = nullptr;
  const auto read = [this, name, said] {
    // Not FRT_ERR_NOT_FOUND, which would forget it: the other process may let the file stay.
    if (!index_->hold(name)) {
      throw Error(FRT_ERR_BAD_STATE, "another process may be removing its file; try again");
    }
    if (!options_.trust) {
      const std::filesystem::path path = options_.folder / (name + kCapsuleSuffix);
      require_own_file(io::open_file(path, "capsule", io::Links::kRefuse), path);
    }
    CapsuleDescription description = describe_capsule(verbs_.table(), options_.folder, name);
    said->content = content_from_text(description.metadata);
    take_manifest(said->content, description.manifest);
    said->metadata = std::move(description.metadata);
  };
  const auto begin = [this, name, said] {
    Entry& waiting = at(name);
    std::string metadata;
    waiting.arriving = begin_load(name, &metadata);
    if (metadata != said->metadata) said->content = content_from_text(metadata);  // replaced
    check_content(said->content, waiting.arriving.boundary());
    check_content(said->content, options_.model);
    adopt_content(waiting, std::move(said->content), waiting.arriving.other_build());
    // Entries stay where they are in a map, and a busy one is not forgotten.
    waiting.busy = post(
        name, [capsule = &waiting.arriving] { capsule->load_finish(); },
        [this, name](const std::exception_ptr& failure) {
          if (failure) return load_failed(name, failure);
          Entry& there = at(name);
          const bool in_place = there.arriving.space() == FRT_SPACE_SHARED;
          (in_place ? there.device : there.host) = std::move(there.arriving);
          there.busy.reset();
          refresh_view(there);
        },
        BackgroundWorker::Urgency::kNow);
  };
  const auto opened = [this, name, begin](const std::exception_ptr& failure) {
    if (failure) return load_failed(name, failure);
    try {
      begin();
    } catch (const std::exception&) {
      load_failed(name, std::current_exception());
    }
  };
  entry.busy = post(name, read, opened, BackgroundWorker::Urgency::kNow);
}

// A file that is of no use is forgotten. Anything else may pass: the capsule stays.
void CapsuleRegistry::load_failed(const std::string& name, std::exception_ptr failure) {
  Entry& entry = at(name);
  entry.arriving.reset();
  entry.busy.reset();
  left_memory(entry);
  const std::string what = "capsule '" + name + "' is not used";
  notice(what, failure);
  const frt_status status = status_of(failure);
  const std::string reason = reason_of(failure);
  failure = std::make_exception_ptr(Error(status, what + ": " + reason));
  if (status != FRT_ERR_NOT_FOUND && status != FRT_ERR_FORMAT && status != FRT_ERR_MISMATCH) {
    entry.failure = failure;
    return;
  }
  if (status == FRT_ERR_FORMAT) {
    post(
        name, [this, name, reason] { index_->mark_damaged(name, reason); }, nullptr);
  }
  lost_ = {name, failure};
  entry.file = false;
  entry.view.file_bytes = 0;
  if (!entry.device && !entry.host) forget(name);
}

bool CapsuleRegistry::fetch(const std::string& name) {
  Entry& entry = at(name);
  entry.used = ++clock_;
  if (entry.device || entry.host) return false;
  if (!entry.busy && !entry.arriving) start_load(entry);
  return true;
}

bool CapsuleRegistry::fetching(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return false;
  const Entry& entry = found->second;
  return !entry.device && !entry.host && (entry.busy || entry.arriving);
}

void CapsuleRegistry::wait(const std::string& name) {
  for (;;) {
    finish_copies();
    worker_.drain();
    const auto found = entries_.find(name);
    // Who waits is told by the error, so the notice is not given as well.
    const auto fail = [&](std::exception_ptr failure) {
      if (!notices_.empty() && notices_.back() == reason_of(failure)) notices_.pop_back();
      std::rethrow_exception(std::move(failure));
    };
    if (found == entries_.end()) {
      if (lost_.first == name) fail(std::exchange(lost_, {}).second);
      throw Error(FRT_ERR_NOT_FOUND, "capsule '" + name + "' is gone");
    }
    Entry& entry = found->second;
    if (entry.device || entry.host) return;
    if (entry.failure) fail(std::exchange(entry.failure, nullptr));
    if (entry.busy) {
      worker_.wait(*entry.busy);
    } else if (entry.arriving) {
      entry.arriving.sync();
    } else {
      start_load(entry);
    }
  }
}

std::shared_ptr<const CapsuleContent> CapsuleRegistry::restore(const std::string& name,
                                                               uint32_t slot,
                                                               const Stream& stream) {
  if (fetch(name)) wait(name);
  Entry& entry = at(name);
  for (bool done = false; !done;) {
    try {
      (entry.device ? entry.device : entry.host).restore(slot, stream);
      done = true;
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY) throw;
      // Room for its rows is made by others: it counts as pinned meanwhile.
      const bool pinned = std::exchange(entry.view.pinned, true);
      const bool freed = make_room();
      entry.view.pinned = pinned;
      if (!freed) throw;
    }
  }
  touch(entry);
  const std::shared_ptr<const CapsuleContent> content = entry.content;
  if (!entry.device) {
    // The slot holds it now, so a place on the device costs next to nothing.
    try {
      entry.device = take(slot, content->boundary(), FRT_SPACE_DEVICE, stream);
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY) throw;
    }
    refresh_view(entry);
  }
  tend();
  return content;
}

std::shared_ptr<const CapsuleContent> CapsuleRegistry::content(const std::string& name) {
  if (!at(name).content && fetch(name)) wait(name);
  return at(name).content;
}

std::shared_ptr<const CapsuleContent> CapsuleRegistry::in_memory(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.content;
}

CapsuleContent CapsuleRegistry::content_of_file(const std::string& name) {
  require_folder();
  CapsuleContent content;
  std::exception_ptr failure;
  worker_.wait(post(
      name, [&] { content = read_capsule_content(verbs_.table(), options_.folder, name); },
      [&failure](const std::exception_ptr& met) { failure = met; }));
  if (failure) std::rethrow_exception(failure);
  return content;
}

bool CapsuleRegistry::has(const std::string& name) const {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return false;
  return !entry->second.leaving || entry->second.device || entry->second.host;
}

void CapsuleRegistry::pin(const std::string& name, bool pinned) {
  if (at(name).leaving) worker_.wait_all();  // whether its file stays
  Entry& entry = at(name);
  if (entry.file) {
    std::exception_ptr failure;
    worker_.wait(post(
        name, [this, name, pinned] { index_->pin(name, pinned); },
        [&failure](const std::exception_ptr& met) { failure = met; }));
    if (failure) std::rethrow_exception(failure);
  }
  at(name).view.pinned = pinned;
}

void CapsuleRegistry::remove(const std::string& name) {
  while (at(name).busy) worker_.wait(*at(name).busy);
  if (at(name).file) {
    std::exception_ptr failure;
    worker_.wait(post(
        name, [this, name] { index_->remove(name); },
        [&failure](const std::exception_ptr& met) { failure = met; }));
    // A budget or another process may have been faster: it is gone, as was asked.
    if (failure && status_of(failure) != FRT_ERR_NOT_FOUND) std::rethrow_exception(failure);
  }
  forget(name);
}

std::vector<CapsuleView> CapsuleRegistry::list() const {
  std::vector<CapsuleView> views;
  for (const auto& [name, entry] : entries_) {
    CapsuleView view = entry.view;
    if (entry.device) view.tiers.push_back(Tier::kDevice);
    if (entry.host) view.tiers.push_back(Tier::kHost);
    if (entry.file) view.tiers.push_back(Tier::kDisk);
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace frt::host
