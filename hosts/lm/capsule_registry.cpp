// SPDX-License-Identifier: Apache-2.0
// Which capsules there are, and which one fits. What moves between the tiers: capsule_tiers.cpp.
//
// by_boundary_ is how a prompt is matched: its prefixes are hashed once, in the order of the
// boundaries there are, and looked up. Whoever is found is compared token by token.
#include "lm/capsule_registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace frt::host {
namespace {

constexpr std::array kTierNames = {"device", "host", "disk"};

std::string reason_of(std::exception_ptr failure) {
  try {
    std::rethrow_exception(std::move(failure));
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The name of a capsule that nobody named: of its tokens and of how they were fed.
std::string automatic_name(const CapsuleContent& content) {
  std::vector<int32_t> shape;
  for (const Stretch& stretch : content.path) {
    shape.push_back(stretch.decode ? 1 : 0);
    shape.push_back(static_cast<int32_t>(stretch.end));
  }
  const TokenDigest steps = digest_of("", shape);
  return fmt::format("auto-{}-{:016x}", content.boundary(), content.digest.low ^ steps.low);
}

}  // namespace

const char* tier_name(Tier tier) noexcept {
  return kTierNames[static_cast<std::size_t>(tier)];
}

CapsuleRegistry::CapsuleRegistry(const Context& context, const Capsules& verbs,
                                 CapsuleOptions options)
    : verbs_(verbs), options_(std::move(options)), copies_(context.create_stream("lm.capsules")) {
  if (options_.folder.empty()) return;
  verbs_.fingerprint();  // files need it, and the worker must not be the one who makes it
  try {
    sweep_capsules(verbs_.table(), options_.folder);
  } catch (const Error& error) {  // a folder that is missing, or cannot be written to
    if (error.status() != FRT_ERR_NOT_FOUND) notices_.push_back(error.what());
  }
  index_ = std::make_unique<CapsuleIndex>(verbs_.table(), options_.folder);
  opening_ = index_->opening();
  std::vector<IndexRow> rows = index_->rows();
  std::sort(rows.begin(), rows.end(), [](const IndexRow& a, const IndexRow& b) {
    return std::tie(a.last_used, a.name) < std::tie(b.last_used, b.name);
  });
  for (const IndexRow& row : rows) {
    if (row.problem.empty()) adopt_row(row);
  }
}

CapsuleRegistry::~CapsuleRegistry() {
  try {
    settle();
  } catch (const Error&) {
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
  entry.digest = row.digest;
  entry.file = true;
  entry.used = ++clock_;
  index_entry(entry);
  entries_.emplace(row.name, std::move(entry));
}

void CapsuleRegistry::index_entry(const Entry& entry) {
  by_boundary_[entry.view.boundary].emplace(entry.digest, entry.view.name);
}

void CapsuleRegistry::forget(const std::string& name) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return;
  const auto boundary = by_boundary_.find(entry->second.view.boundary);
  std::erase_if(boundary->second, [&](const auto& item) { return item.second == name; });
  if (boundary->second.empty()) by_boundary_.erase(boundary);
  entries_.erase(entry);
}

CapsuleRegistry::Entry& CapsuleRegistry::at(const std::string& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    throw Error(FRT_ERR_NOT_FOUND, "there is no capsule '" + name +
                                       "'; `frt-host capsule ls` lists those on the disk");
  }
  return found->second;
}

void CapsuleRegistry::touch(Entry& entry) {
  entry.used = ++clock_;
  if (!entry.file || !index_) return;
  worker_.post([this, name = entry.view.name] { index_->touch(name, unix_seconds()); }, nullptr);
}

void CapsuleRegistry::notice(const std::string& what, std::exception_ptr failure) {
  notices_.push_back(what + ": " + reason_of(std::move(failure)));
}

std::vector<std::string> CapsuleRegistry::take_notices() {
  return std::exchange(notices_, {});
}

void CapsuleRegistry::require_folder() const {
  if (index_) return;
  throw Error(FRT_ERR_BAD_STATE,
              "there is no folder for capsules; set `capsule_dir` in the table [host.lm] of the "
              "manifest, or give --set host.lm.capsule_dir=DIR");
}

// ---- taking ----

Capsule CapsuleRegistry::take(uint32_t slot, uint64_t boundary, frt_space space,
                              const Stream& stream) {
  const Tier tier = space == FRT_SPACE_DEVICE ? Tier::kDevice : Tier::kHost;
  const uint64_t budget = tier == Tier::kDevice ? options_.device_bytes : options_.host_bytes;
  if (budget == 0) return {};
  for (;;) {
    try {
      Capsule made = verbs_.snapshot(slot, boundary, space, stream);
      uint64_t kept = 0;  // by those that stay
      for (const auto& [name, entry] : entries_) {
        if (!entry.view.pinned) continue;
        kept += tier == Tier::kDevice ? entry.view.device_bytes : entry.view.host_bytes;
      }
      const bool fits = kept + made.info().held_bytes <= budget;
      return fits ? std::move(made) : Capsule();
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY || tier != Tier::kDevice || !make_room()) throw;
    }
  }
}

std::string CapsuleRegistry::keep(uint32_t slot, CapsuleContent content, const Stream& stream) {
  content.digest = digest_of(content.owner, content.tokens);
  content.name = automatic_name(content);
  if (const auto known = entries_.find(content.name); known != entries_.end()) {
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

void CapsuleRegistry::save(uint32_t slot, CapsuleContent content, const Stream& stream,
                           bool replace) {
  require_folder();
  if (const auto known = entries_.find(content.name); known != entries_.end() && !replace) {
    throw Error(FRT_ERR_EXISTS, "there is a capsule '" + content.name +
                                    "' already; choose another name, or remove it with "
                                    "`frt-host capsule rm`");
  }
  content.kind = CapsuleKind::kNamed;
  content.created = unix_seconds();
  content.digest = digest_of(content.owner, content.tokens);
  const std::string name = content.name;
  Capsule host = verbs_.snapshot(slot, content.boundary(), FRT_SPACE_HOST_PINNED, stream);
  host.wait();
  const auto shared = std::make_shared<const CapsuleContent>(std::move(content));
  IndexRow row;
  std::exception_ptr failure;
  worker_.wait(worker_.post(
      [this, &row, &host, shared, replace] {
        host.save(options_.folder, shared->name, content_to_text(*shared),
                  replace ? FRT_CAPSULE_REPLACE : 0);
        row = index_->refresh(shared->name);
      },
      [&failure](std::exception_ptr met) { failure = std::move(met); }));
  if (failure) std::rethrow_exception(failure);
  if (!row.problem.empty()) throw Error(FRT_ERR_INTERNAL, name + ": " + row.problem);
  if (const auto old = entries_.find(name); old != entries_.end()) {
    if (old->second.busy) worker_.wait(*old->second.busy);
    forget(name);
  }
  adopt_row(row);
  Entry& entry = at(name);
  entry.content = shared;
  entry.host = std::move(host);
  entry.device = take(slot, shared->boundary(), FRT_SPACE_DEVICE, stream);
  refresh_view(entry);
  tend();
}

// ---- finding ----

std::optional<CapsuleMatch> CapsuleRegistry::find(std::span<const int32_t> tokens,
                                                  std::string_view owner) {
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
      if (entry.view.owner != owner) continue;
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

std::shared_ptr<const CapsuleContent> CapsuleRegistry::nearest(std::span<const int32_t> tokens,
                                                               std::string_view owner) const {
  std::shared_ptr<const CapsuleContent> best;
  uint64_t most = 0;
  for (const auto& [name, entry] : entries_) {
    if (!entry.content || entry.view.owner != owner) continue;
    const uint64_t common = common_prefix(entry.content->tokens, tokens);
    if (common <= most) continue;
    most = common;
    best = entry.content;
  }
  return best;
}

// ---- using ----

void CapsuleRegistry::start_load(Entry& entry) {
  // The worker reads the manifest before the driver does, so that the driver finds it in the page
  // cache when it takes the memory; then the worker reads the payload.
  const std::string name = entry.view.name;
  const auto failed = [this, name](std::exception_ptr failure) {
    notice("capsule '" + name + "' is not used", std::move(failure));
    forget(name);
  };
  entry.busy = worker_.post(
      [this, name] { describe_capsule(verbs_.table(), options_.folder, name); },
      [this, name, failed](std::exception_ptr failure) {
        if (failure) return failed(std::move(failure));
        Entry& waiting = at(name);
        try {
          std::string metadata;
          waiting.arriving =
              verbs_.load_begin(options_.folder, name, FRT_SPACE_HOST_PINNED, &metadata);
          waiting.content = std::make_shared<const CapsuleContent>(content_from_text(metadata));
        } catch (const Error&) {
          return failed(std::current_exception());
        }
        // Entries stay where they are in a map, and a busy one is not forgotten.
        waiting.busy = worker_.post([capsule = &waiting.arriving] { capsule->load_finish(); },
                                    [this, name, failed](std::exception_ptr damage) {
                                      if (damage) return failed(std::move(damage));
                                      Entry& there = at(name);
                                      there.host = std::move(there.arriving);
                                      there.busy.reset();
                                      refresh_view(there);
                                    });
      });
}

bool CapsuleRegistry::fetch(const std::string& name) {
  Entry& entry = at(name);
  entry.used = ++clock_;
  if (entry.device || entry.host) return false;
  if (!entry.busy && !entry.arriving) start_load(entry);
  return true;
}

void CapsuleRegistry::wait(const std::string& name) {
  for (;;) {
    finish_copies();
    worker_.drain();
    const auto found = entries_.find(name);
    if (found == entries_.end()) {
      const std::string why = notices_.empty() ? "capsule '" + name + "' is gone" : notices_.back();
      if (!notices_.empty()) notices_.pop_back();
      throw Error(FRT_ERR_NOT_FOUND, why);
    }
    Entry& entry = found->second;
    if (entry.device || entry.host) return;
    if (entry.busy) {
      worker_.wait(*entry.busy);
    } else if (entry.arriving) {
      entry.arriving.wait();
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

void CapsuleRegistry::pin(const std::string& name, bool pinned) {
  Entry& entry = at(name);
  if (entry.file) {
    std::exception_ptr failure;
    worker_.wait(worker_.post([this, name, pinned] { index_->pin(name, pinned); },
                              [&failure](std::exception_ptr met) { failure = std::move(met); }));
    if (failure) std::rethrow_exception(failure);
  }
  at(name).view.pinned = pinned;
}

void CapsuleRegistry::remove(const std::string& name) {
  while (at(name).busy) worker_.wait(*at(name).busy);
  if (at(name).file) {
    std::exception_ptr failure;
    worker_.wait(worker_.post([this, name] { index_->remove(name); },
                              [&failure](std::exception_ptr met) { failure = std::move(met); }));
    if (failure) std::rethrow_exception(failure);
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
