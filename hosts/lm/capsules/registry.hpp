// SPDX-License-Identifier: Apache-2.0
// registry.hpp - all capsules of one model: which there are, which one continues a prompt,
// and in which tier each is.
//
// Tiers: device (pages shared with slots: nearly free), host (pinned), disk (files with an
// index). Each has a budget. A tier that is full gives up what was used longest ago: device and
// host capsules move one tier down, in the background; at the bottom an automatic one is dropped.
// Pinned capsules stay where they are, and what somebody gave a name is never dropped.
//
// The driver thread never waits for the disk: files are read and written by a worker. It is the
// caller who may choose to wait (save(), wait()).
//
// Several processes may use one folder. A registry without a budget for the disk leaves the folder
// as it is; one with a budget removes nothing that another process uses (use.hpp). A disk
// that fails is tried again later, at growing intervals.
//
// Everything is [driver].
#pragma once

#include <frt/capsule.h>
#include <frt/capsule.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lm/capsules/background_worker.hpp"
#include "lm/capsules/content.hpp"
#include "lm/capsules/index.hpp"

namespace frt::host {

enum class Tier { kDevice, kHost, kDisk };
// "device", "host", "disk".
const char* tier_name(Tier tier) noexcept;

struct CapsuleOptions {
  using Clock = std::chrono::steady_clock;

  uint64_t device_bytes = 0;  // budgets; 0: the tier is not used
  uint64_t host_bytes = 0;
  uint64_t disk_bytes = 0;         // of what is moved there by itself
  std::filesystem::path folder{};  // of the disk tier; empty: none
  bool trust = false;              // also capsules that others can write (trust.hpp)
  ContentModel model{};            // that capsules must be of
  // Of the model; tells the size of a capsule before it is taken. Nothing: not known.
  std::optional<frt_capsule_layout> layout{};
  std::function<Clock::time_point()> now = &Clock::now;  // when a failed disk is tried again
};

// One capsule, as a list shows it.
struct CapsuleView {
  std::string name{}, owner{}, parent{}, kind{};
  uint64_t boundary = 0;
  uint64_t created = 0;  // seconds since 1970
  bool pinned = false;
  bool cold_path = false;
  std::vector<Tier> tiers{};  // where it is, fastest first
  uint64_t device_bytes = 0, host_bytes = 0, file_bytes = 0;
};

// What find() found: the capsule with the longest prefix of a prompt.
struct CapsuleMatch {
  std::string name;
  uint64_t boundary = 0;
  Tier tier = Tier::kDisk;  // the fastest it is in
  bool pinned = false;
  bool cold_path = false;  // continuing from it equals the cold run bit for bit
  uint64_t bytes = 0;      // that restoring moves
};

class CapsuleRegistry {
 public:
  // Reads the index, and with a folder makes the fingerprint. `verbs` are those of the model's
  // arena, which outlives this object. Throws FRT_ERR_IO if the folder cannot be read,
  // FRT_ERR_BAD_STATE with the fix if others can write to it (trust.hpp).  [setup]
  CapsuleRegistry(const Context& context, const Capsules& verbs, CapsuleOptions options);
  ~CapsuleRegistry();  // what is on its way to the disk arrives
  CapsuleRegistry(const CapsuleRegistry&) = delete;
  CapsuleRegistry& operator=(const CapsuleRegistry&) = delete;

  const CapsuleOptions& options() const noexcept { return options_; }
  const IndexOpening& opening() const noexcept { return opening_; }
  // fingerprint_digest() of the model, which capsules of it have; empty without a folder.
  const std::string& fingerprint() const noexcept { return fingerprint_; }
  // Throws FRT_ERR_BAD_STATE, with the way out, if there is no folder.
  void require_folder() const;

  // What save() would refuse about a name: FRT_ERR_BAD_STATE without a folder, FRT_ERR_EXISTS if it
  // is taken and not `replace`, FRT_ERR_INVALID_ARGUMENT for one against FRT_CAPSULE_NAME_RULE.
  void require_name(const std::string& name, bool replace) const;

  // ---- taking ----
  // Takes a capsule of `slot` at the end of content.tokens, in the order of `stream`, and files it
  // under a name made from the content. What is known already is not taken twice. Returns the name,
  // or an empty one when no tier has room for it, or when another build computed a part of it:
  // prompts find what this build alone computed.
  std::string keep(uint32_t slot, CapsuleContent content, const Stream& stream);
  // Takes a capsule, writes it to content.name in the folder, and returns when it is on the disk.
  // After an error nothing of it is there, or, with `replace`, what list() shows. What fails later
  // is a notice. Throws as require_name() does, FRT_ERR_IO.
  void save(uint32_t slot, CapsuleContent content, const Stream& stream, bool replace);

  // ---- finding ----
  // The longest capsule that is a proper prefix of `tokens`. Capsules that are on the disk alone
  // are found by digest and confirmed when they are loaded.
  // Those whose names are in `except` are not.
  std::optional<CapsuleMatch> find(std::span<const int32_t> tokens, std::string_view owner,
                                   const std::set<std::string>& except = {});
  // Of all capsules of `owner` that are in memory: to tell why nothing better was found.
  std::vector<std::shared_ptr<const CapsuleContent>> contents(std::string_view owner) const;

  // ---- using ----
  // Brings a capsule that is on the disk alone into host memory, in the background; false: it is
  // in memory already.
  bool fetch(const std::string& name);
  // A fetch of it is under way; tend() ends it.
  bool fetching(const std::string& name) const;
  // Until a fetch is over. Throws what it met. FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT (damaged) and
  // FRT_ERR_MISMATCH (of another model): the capsule is forgotten then. Anything else (memory is
  // short, the disk fails): it stays, and the next fetch tries again.
  void wait(const std::string& name);
  // Copies it into `slot`, in the order of `stream`; fetches and waits if need be. Returns what it
  // means; its path says so if another build stored it, and a notice was given when it came from
  // the disk. Throws as wait() does.
  std::shared_ptr<const CapsuleContent> restore(const std::string& name, uint32_t slot,
                                                const Stream& stream);
  // What a capsule means, without a slot; fetches and waits if need be. Throws as wait() does.
  std::shared_ptr<const CapsuleContent> content(const std::string& name);
  // The same without waiting; null: it is not in memory, or not there.
  std::shared_ptr<const CapsuleContent> in_memory(const std::string& name) const;
  // What its file means now: another process may have written another one since. Waits for the
  // disk. FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT, FRT_ERR_IO.
  CapsuleContent content_of_file(const std::string& name);
  // FRT_ERR_NOT_FOUND.
  void pin(const std::string& name, bool pinned);
  // Drops it from every tier.
  void remove(const std::string& name);

  // ---- without waiting ----
  // As save(), pin() and remove(), for a driver that others need while the disk works. What can be
  // refused at once is thrown; `end` is called once, by a later tend() or here, null if it went
  // well.

  // Without `replace`. The capsule is there when `end` is called.
  void save_later(uint32_t slot, CapsuleContent content, const Stream& stream,
                  BackgroundWorker::End end);
  void pin_later(const std::string& name, bool pinned, BackgroundWorker::End end);
  // FRT_ERR_NOT_READY: it is on its way from one tier to another; ask again.
  void remove_later(const std::string& name, BackgroundWorker::End end);
  // A file that somebody put into the folder counts from now on.
  void adopt_later(const std::string& name, BackgroundWorker::End end);

  // ---- running ----
  // Ends what the background has done and starts what budgets ask for. After each request: where
  // nothing has come, gone or moved since the last call it takes a time of its own, whatever the
  // number of capsules.
  void tend();
  // Gives up one device capsule that may be, so that pages become free; false: none may.
  bool make_room();
  // Until nothing is on its way.
  void settle();
  // A file is being read or written, or waits for that.  [any]
  bool moves_files() const { return worker_.working(); }

  std::vector<CapsuleView> list() const;  // by name
  bool has(const std::string& name) const;
  // Messages for people about what went wrong in the background, since the last call.
  std::vector<std::string> take_notices();
  void tell(std::string notice) { notices_.push_back(std::move(notice)); }

 private:
  struct Entry {
    CapsuleView view;
    TokenDigest digest;
    std::shared_ptr<const CapsuleContent> content;  // null while it is on the disk alone
    Capsule device, host;
    Capsule arriving;              // a copy to the host, or what is being loaded; not usable yet
    std::optional<uint64_t> busy;  // the worker's ticket, while it reads or writes the file
    std::exception_ptr failure;    // of the last load, for who waits
    uint64_t used = 0;             // the registry's clock
    bool file = false;
    bool foreign = false;  // of another model, build or layout, or another build computed a part
    bool leaving = false;  // the worker was asked to remove the file
    CapsuleOptions::Clock::time_point stays_until{};  // the file may not be removed, as was found
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  Entry& at(const std::string& name);
  void touch(Entry& entry);
  void adopt_row(const IndexRow& row);
  // `other_build`: as its Capsule says.
  void adopt_content(Entry& entry, CapsuleContent content, std::string_view other_build);
  void index_entry(const Entry& entry);
  void unindex_entry(const Entry& entry);
  void forget(const std::string& name);
  // Runs a job about the capsule `name` on the worker; what the index met is told.
  uint64_t post(const std::string& name, std::function<void()> job, BackgroundWorker::End end,
                BackgroundWorker::Urgency urgency = BackgroundWorker::Urgency::kLater);
  // Bytes that a capsule takes at least.
  uint64_t least_bytes(uint64_t boundary, frt_space space) const;
  // On the device as long as there is memory, or a capsule that can give its own up.
  Capsule snapshot(uint32_t slot, uint64_t boundary, frt_space space, const Stream& stream);
  Capsule take(uint32_t slot, uint64_t boundary, frt_space space, const Stream& stream);
  // Of what is in a tier and is not on its way out of it.
  uint64_t used_bytes(Tier tier) const;
  // Sets what a capsule that is taken now under content.name is known by.
  void name_content(CapsuleContent& content) const;
  // Complete, where a file can be written from.
  Capsule snapshot_for_file(uint32_t slot, uint64_t boundary, const Stream& stream);
  Entry* oldest(Tier tier);
  // What is in no memory any more: its tokens go, and others may remove its file.
  void left_memory(Entry& entry);
  bool leave_device(Entry& entry);
  bool may_start_save(const Entry& entry) const;
  void start_save(Entry& entry);
  void start_load(Entry& entry);
  void load_failed(const std::string& name, std::exception_ptr failure);
  void disk_failed(std::exception_ptr failure);
  bool disk_ready() const;
  void finish_copies();
  void trim_disk();
  void refresh_view(Entry& entry);
  bool over_budget() const;
  void notice(const std::string& what, const std::exception_ptr& failure);

  // True for shared memory: a named capsule's file is written from the device's tier and read into
  // it, so nothing is copied.
  bool files_in_place() const;
  Capsule begin_load(const std::string& name, std::string* metadata);

  Capsules verbs_;
  CapsuleOptions options_;
  bool shared_memory_;
  std::string fingerprint_;              // fingerprint_digest() of the arena; empty: no folder
  Stream copies_;                        // moves between device and host
  std::unique_ptr<CapsuleIndex> index_;  // the worker's, once this is constructed
  IndexOpening opening_;
  Entries entries_;
  std::set<std::string> copying_;  // entries whose copy to the host is under way; or gone since
  bool changed_ = false;           // what tiers use may have grown since tend()
  std::map<std::string, std::string, std::less<>> unusable_;  // files that are none, and why
  // Every boundary there is, and who is there.
  std::map<uint64_t, std::multimap<TokenDigest, std::string>> by_boundary_;
  uint64_t clock_ = 0;
  std::vector<std::string> notices_;
  // The last capsule that was forgotten because its file was of no use, and why.
  std::pair<std::string, std::exception_ptr> lost_;
  std::chrono::seconds disk_pause_{0};  // after a move to the disk failed; 0: it works
  CapsuleOptions::Clock::time_point disk_retry_{};
  BackgroundWorker worker_;  // last: it ends before what its jobs use
};

}  // namespace frt::host
