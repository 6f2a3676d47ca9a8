// SPDX-License-Identifier: Apache-2.0
// Life of a capsule that nobody gave a name:
//
//   keep() -> device --(device budget)--> host --(host budget)--> disk --(disk budget)--> gone
//                 ^                          |  ^                   |
//                 `------- restore() --------'  `----- fetch() -----'
//
// A move copies first and gives up the upper place when the lower one is ready, so there is no
// moment at which a capsule is nowhere. One that is in several tiers needs no move: the upper place
// is simply given up.
//
// A capsule on its way to the disk leaves the host's budget at once, but takes memory until it is
// written. All of these together take at most the host's budget a second time. Where the disk is
// too slow for that, it counts as full: what does not fit is dropped.
//
// While the disk fails (it is full, say), nothing is moved to it for a second, then two, four, up
// to five minutes; what does not fit in memory meanwhile is given up.
#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "lm/capsules/registry.hpp"

namespace frt::host {
namespace {

constexpr std::chrono::seconds kFirstPause{1}, kLongestPause{300};
constexpr std::chrono::seconds kAskAgain{60};  // whether a file may be removed that may not now

}  // namespace

void CapsuleRegistry::refresh_view(Entry& entry) {
  entry.view.device_bytes = entry.device ? entry.device.info().held_bytes : 0;
  entry.view.host_bytes = entry.host ? entry.host.info().held_bytes : 0;
  changed_ = true;
}

uint64_t CapsuleRegistry::used_bytes(Tier tier) const {
  uint64_t bytes = 0;
  for (const auto& [name, entry] : entries_) {
    const bool leaves_device = entry.device && entry.arriving;
    const bool leaves_host = entry.host && entry.busy;
    if (tier == Tier::kDevice && !leaves_device) bytes += entry.view.device_bytes;
    if (tier == Tier::kHost && !leaves_host) bytes += entry.view.host_bytes;
    if (tier == Tier::kDisk && !entry.leaving &&
        entry.view.kind != capsule_kind_name(CapsuleKind::kNamed)) {
      bytes += entry.view.file_bytes;
    }
  }
  return bytes;
}

bool CapsuleRegistry::may_start_save(const Entry& entry) const {
  if (entry.file || !disk_ready() || entry.host.bytes() > options_.disk_bytes) return false;
  uint64_t leaving = entry.view.host_bytes;
  for (const auto& [name, other] : entries_) {
    if (other.host && other.busy) leaving += other.view.host_bytes;
  }
  return leaving <= options_.host_bytes;
}

CapsuleRegistry::Entry* CapsuleRegistry::oldest(Tier tier) {
  Entry* found = nullptr;
  for (auto& [name, entry] : entries_) {
    const bool there = tier == Tier::kDevice ? bool(entry.device)
                       : tier == Tier::kHost
                           ? bool(entry.host)
                           : entry.file && !entry.leaving && entry.stays_until <= options_.now();
    if (!there || entry.view.pinned || entry.arriving || entry.busy) continue;
    if (tier == Tier::kDisk && entry.view.kind == capsule_kind_name(CapsuleKind::kNamed)) continue;
    if (!found || entry.used < found->used) found = &entry;
  }
  return found;
}

void CapsuleRegistry::left_memory(Entry& entry) {
  if (entry.device || entry.host || entry.arriving || entry.busy) return;
  entry.content.reset();
  if (!index_) return;
  post(
      entry.view.name, [this, name = entry.view.name] { index_->release(name); }, nullptr);
}

// Gives the place on the device up, now or when a copy is done; false: it went at once.
bool CapsuleRegistry::leave_device(Entry& entry) {
  if (!entry.host && !entry.file && entry.device.bytes() <= options_.host_bytes) {
    try {
      entry.arriving = entry.device.copy(FRT_SPACE_HOST_PINNED, copies_);
      copying_.insert(entry.view.name);
      return true;
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY) throw;
      notices_.push_back("capsule '" + entry.view.name + "' is dropped: " + error.what());
    }
  }
  entry.device.reset();
  refresh_view(entry);
  left_memory(entry);
  if (!entry.host && !entry.file) forget(entry.view.name);
  return false;
}

void CapsuleRegistry::finish_copies() {
  std::erase_if(copying_, [&](const std::string& name) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return true;
    Entry& entry = found->second;
    if (!entry.arriving || entry.busy) return true;
    if (!entry.arriving.query()) return false;
    entry.host = std::move(entry.arriving);
    entry.device.reset();
    refresh_view(entry);
    return true;
  });
}

bool CapsuleRegistry::disk_ready() const {
  return index_ && options_.disk_bytes > 0 &&
         (disk_pause_ == disk_pause_.zero() || options_.now() >= disk_retry_);
}

void CapsuleRegistry::disk_failed(std::exception_ptr failure) {
  disk_pause_ = std::clamp(2 * disk_pause_, kFirstPause, kLongestPause);
  disk_retry_ = options_.now() + disk_pause_;
  notice(fmt::format("capsules are not moved to the disk for {} s, and dropped where memory has no "
                     "room for them",
                     disk_pause_.count()),
         failure);
}

void CapsuleRegistry::start_save(Entry& entry) {
  const std::string name = entry.view.name;
  const auto row = std::make_shared<IndexRow>();
  entry.busy = post(
      name,
      [this, row, capsule = &entry.host, content = entry.content] {
        index_->hold(content->name);
        bool ours = true;  // else another process may have kept the same
        try {
          capsule->save(options_.folder, content->name, content_to_text(*content));
        } catch (const Error& error) {
          if (error.status() != FRT_ERR_EXISTS) throw;
          ours = false;
        }
        *row = index_->refresh(content->name);
        if (!row->problem.empty() || row->digest != content->digest ||
            (!ours && row->fingerprint != content->fingerprint)) {
          throw Error(FRT_ERR_EXISTS, "a file of that name holds something else");
        }
      },
      [this, name, row](const std::exception_ptr& failure) {
        Entry& saved = at(name);
        saved.busy.reset();
        if (failure && row->name.empty()) return disk_failed(failure);
        if (failure) {
          notice("capsule '" + name + "' is not moved to the disk", failure);
        } else {
          if (disk_pause_ != disk_pause_.zero()) {
            notices_.push_back("capsules are moved to the disk again");
          }
          disk_pause_ = disk_pause_.zero();
          saved.file = true;
          saved.view.file_bytes = row->file_bytes;
        }
        if (saved.view.pinned) {  // on its way: it stays, and its file is pinned, too
          if (saved.file) {
            post(
                name, [this, name] { index_->pin(name, true); },
                [this, name](const std::exception_ptr& met) {
                  if (met) notice("the pin of capsule '" + name + "' is not on the disk", met);
                });
          }
          return;
        }
        saved.host.reset();
        refresh_view(saved);
        left_memory(saved);
        if (!saved.file && !saved.device) forget(name);
      });
}

// The file itself decides whether it may go (CapsuleIndex::evict), so an entry leaves when it has.
void CapsuleRegistry::trim_disk() {
  if (options_.disk_bytes == 0) return;  // what is in the folder is not this registry's to count
  while (used_bytes(Tier::kDisk) > options_.disk_bytes) {
    Entry* entry = oldest(Tier::kDisk);
    if (!entry) return;
    const std::string name = entry->view.name;
    const auto reason = std::make_shared<std::string>();
    entry->leaving = true;
    post(
        name, [this, name, reason] { *reason = index_->evict(name); },
        [this, name, reason](const std::exception_ptr& failure) {
          const auto found = entries_.find(name);
          if (found == entries_.end()) return;
          Entry& left = found->second;
          left.leaving = false;
          if (failure) notice("capsule '" + name + "' stays", failure);
          if (failure || !reason->empty()) {
            left.stays_until = options_.now() + kAskAgain;
            return;
          }
          left.file = false;
          left.view.file_bytes = 0;
          if (!left.device && !left.host && !left.busy && !left.arriving) forget(name);
        });
  }
}

bool CapsuleRegistry::over_budget() const {
  return used_bytes(Tier::kDevice) > options_.device_bytes ||
         used_bytes(Tier::kHost) > options_.host_bytes ||
         (options_.disk_bytes > 0 && used_bytes(Tier::kDisk) > options_.disk_bytes);
}

void CapsuleRegistry::tend() {
  finish_copies();
  worker_.drain();
  if (!changed_) return;
  while (used_bytes(Tier::kDevice) > options_.device_bytes) {
    Entry* entry = oldest(Tier::kDevice);
    if (!entry) break;
    leave_device(*entry);
  }
  while (used_bytes(Tier::kHost) > options_.host_bytes) {
    Entry* entry = oldest(Tier::kHost);
    if (!entry) break;
    if (may_start_save(*entry)) {
      if (!entry->host.query()) break;  // its copy is under way; next time
      start_save(*entry);
      continue;
    }
    entry->host.reset();
    refresh_view(*entry);
    left_memory(*entry);
    if (!entry->device && !entry->file) forget(entry->view.name);
  }
  trim_disk();
  changed_ = over_budget();  // what may not leave yet is asked again
}

bool CapsuleRegistry::make_room() {
  Entry* entry = oldest(Tier::kDevice);
  if (!entry) return false;
  if (leave_device(*entry)) {
    entry->arriving.sync();
    finish_copies();
  }
  return true;
}

void CapsuleRegistry::settle() {
  for (;;) {
    for (auto& [name, entry] : entries_) {
      if (entry.arriving && !entry.busy) entry.arriving.sync();
    }
    worker_.wait_all();
    tend();
    const bool moving = std::any_of(entries_.begin(), entries_.end(), [](const auto& item) {
      return item.second.arriving || item.second.busy;
    });
    if (!moving && worker_.idle()) return;
  }
}

}  // namespace frt::host
