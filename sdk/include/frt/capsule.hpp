// SPDX-License-Identifier: Apache-2.0
// frt/capsule.hpp - the C++ face of the capsule verbs of frt/capsule.h. Header only.
//
// `Capsules` is a view of one arena's verbs; copy it freely. `Capsule` owns one handle: move-only,
// released by the destructor, so it must go before the context is closed. Errors are thrown as
// frt::Error with core's text; thread tags are those of the C functions. The functions of files
// need no arena: they are free functions that take the table.
//
//   frt::Capsules capsules(table, context, state);
//   frt::Capsule start = capsules.snapshot(slot, boundary, FRT_SPACE_DEVICE, stream);
//   start.fork({1, 2, 3}, stream);
//   frt::Capsule kept = start.copy(FRT_SPACE_HOST_PINNED, stream);
//   kept.sync();
//   kept.save(folder, "start", metadata);
#pragma once

#include <frt/capsule.h>
#include <frt/exec.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What a host of the oldest version gives (frt/table.hpp); its functions are all there.
FRT_CONTRACT(frt_capsules_v1, FRT_EXT_CAPSULES, sweep);

namespace frt {

namespace detail {

inline frt_status append_to_string(void* user, const void* data, uint64_t bytes) noexcept {
  try {
    static_cast<std::string*>(user)->append(static_cast<const char*>(data), bytes);
    return FRT_OK;
  } catch (...) {
    return FRT_ERR_OUT_OF_MEMORY;
  }
}

inline frt_status append_name(void* user, const void* data, uint64_t bytes) noexcept {
  try {
    static_cast<std::vector<std::string>*>(user)->emplace_back(static_cast<const char*>(data),
                                                               bytes);
    return FRT_OK;
  } catch (...) {
    return FRT_ERR_OUT_OF_MEMORY;
  }
}

}  // namespace detail

// ---- one capsule ---------------------------------------------------------------------------

class Capsule {
 public:
  Capsule() = default;
  // Takes the handle over.
  Capsule(const frt_capsules_v1* table, const Context& context, frt_capsule handle)
      : table_(table), context_(context), handle_(handle) {
    info_.struct_size = sizeof(info_);
    check(table->info(handle, &info_), "capsule info");
  }
  Capsule(Capsule&& other) noexcept
      : table_(other.table_),
        context_(other.context_),
        handle_(std::exchange(other.handle_, nullptr)),
        info_(other.info_) {}
  Capsule& operator=(Capsule&& other) noexcept {
    if (this != &other) {
      reset();
      table_ = other.table_;
      context_ = other.context_;
      handle_ = std::exchange(other.handle_, nullptr);
      info_ = other.info_;
    }
    return *this;
  }
  ~Capsule() { reset(); }

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  frt_capsule handle() const noexcept { return handle_; }
  uint64_t boundary() const noexcept { return info_.boundary; }
  uint64_t bytes() const noexcept { return info_.bytes; }
  // How the build that stored it differs from this one, for people; empty: it is this one.  [any]
  std::string_view other_build() const noexcept {
    return info_.other_build ? info_.other_build : std::string_view();
  }
  frt_space space() const noexcept { return info_.space; }
  // As it is now: shared_bytes changes when others let go.  [any]
  frt_capsule_info info() const {
    frt_capsule_info now{};
    now.struct_size = sizeof(now);
    check(table_->info(handle_, &now), "capsule info");
    return now;
  }

  void restore(uint32_t slot, const Stream& stream) const {  // [hot]
    context_.checked(table_->restore(handle_, slot, stream.handle()), "restore");
  }
  frt_status try_restore(uint32_t slot, const Stream& stream) const noexcept {  // [hot]
    return table_->restore(handle_, slot, stream.handle());
  }
  void fork(std::span<const uint32_t> slots, const Stream& stream) const {  // [hot]
    context_.checked(
        table_->fork(handle_, slots.data(), static_cast<uint32_t>(slots.size()), stream.handle()),
        "fork");
  }
  Capsule copy(frt_space space, const Stream& stream) const {  // [driver]
    frt_capsule made = nullptr;
    frt_error error{};
    check(table_->copy(handle_, space, stream.handle(), &made, &error), error);
    return Capsule(table_, context_, made);
  }

  bool query() const {  // true: every verb submitted with it is done  [hot]
    const frt_status status = table_->query(handle_);
    if (status != FRT_ERR_NOT_READY) context_.checked(status, "capsule query");
    return status == FRT_OK;
  }
  void sync() const { context_.checked(table_->sync(handle_), "capsule sync"); }  // [driver]
  std::string read() const {  // the payload  [any]
    std::string payload;
    frt_error error{};
    check(table_->read(handle_, &detail::append_to_string, &payload, &error), error);
    return payload;
  }

  void save(const std::string& folder, const std::string& name, std::string_view metadata,
            uint32_t flags = 0) const {  // [any]
    frt_error error{};
    check(table_->save(handle_, folder.c_str(), name.c_str(), metadata.data(), metadata.size(),
                       flags, &error),
          error);
  }
  void load_finish() const {  // [any]
    frt_error error{};
    check(table_->load_finish(handle_, &error), error);
  }

  void reset() noexcept {  // [driver]
    if (handle_) table_->release(std::exchange(handle_, nullptr));
  }

 private:
  const frt_capsules_v1* table_ = nullptr;
  Context context_;
  frt_capsule handle_ = nullptr;
  frt_capsule_info info_{};
};

// ---- the capsules of one arena -------------------------------------------------------------

class Capsules {
 public:
  Capsules() = default;
  // Throws FRT_ERR_ABI if `table` lacks what the oldest version promises.  [setup]
  Capsules(const frt_capsules_v1* table, const Context& context, frt_state state)
      : table_(table), context_(context), state_(state) {
    read_table<frt_capsules_v1>(table, "the host");
  }

  explicit operator bool() const noexcept { return state_ != nullptr; }
  const frt_capsules_v1& table() const noexcept { return *table_; }
  frt_state state() const noexcept { return state_; }

  void reserve(frt_space space, uint64_t boundary, uint32_t count) const {  // [setup]
    frt_error error{};
    check(table_->reserve(state_, space, boundary, count, &error), error);
  }
  void trim(frt_space space) const noexcept { table_->trim(state_, space); }  // [setup]
  frt_capsule_usage usage(frt_space space) const {                            // [driver]
    frt_capsule_usage usage{};
    usage.struct_size = sizeof(usage);
    check(table_->usage(state_, space, &usage), "capsule usage");
    return usage;
  }

  Capsule snapshot(uint32_t slot, uint64_t boundary, frt_space space,
                   const Stream& stream) const {  // [driver]
    frt_capsule made = nullptr;
    frt_error error{};
    check(table_->snapshot(state_, slot, boundary, space, stream.handle(), &made, &error), error);
    return Capsule(table_, context_, made);
  }
  void fork_slot(uint32_t slot, uint64_t boundary, std::span<const uint32_t> slots,
                 const Stream& stream) const {  // [hot]
    context_.checked(table_->fork_slot(state_, slot, boundary, slots.data(),
                                       static_cast<uint32_t>(slots.size()), stream.handle()),
                     "fork_slot");
  }

  void bind(std::span<const frt_fingerprint_field> fields) const {  // [setup]
    frt_error error{};
    check(table_->bind(state_, fields.data(), fields.size(), &error), error);
  }
  // The fields live as long as the arena.  [setup]
  std::span<const frt_fingerprint_field> fingerprint() const {
    const frt_fingerprint_field* fields = nullptr;
    uint64_t count = 0;
    frt_error error{};
    check(table_->fingerprint(state_, &fields, &count, &error), error);
    return {fields, count};
  }

  // To be followed by load_finish(). `metadata` (may be null) receives the host's bytes. [driver]
  Capsule load_begin(const std::string& folder, const std::string& name, frt_space space,
                     std::string* metadata = nullptr) const {
    frt_capsule made = nullptr;
    frt_error error{};
    check(
        table_->load_begin(state_, folder.c_str(), name.c_str(), space,
                           metadata ? &detail::append_to_string : nullptr, metadata, &made, &error),
        error);
    return Capsule(table_, context_, made);
  }
  // Both at once.  [driver]
  Capsule load(const std::string& folder, const std::string& name, frt_space space,
               std::string* metadata = nullptr) const {
    Capsule made = load_begin(folder, name, space, metadata);
    made.load_finish();
    return made;
  }

 private:
  const frt_capsules_v1* table_ = nullptr;
  Context context_;
  frt_state state_ = nullptr;
};

// ---- files ---------------------------------------------------------------------------------

struct CapsuleDescription {
  std::string manifest;  // JSON
  std::string metadata;  // the host's bytes
};

inline void verify_capsule(const frt_capsules_v1& table, const std::string& folder,
                           const std::string& name) {  // [any]
  frt_error error{};
  check(table.verify(folder.c_str(), name.c_str(), &error), error);
}

inline CapsuleDescription describe_capsule(const frt_capsules_v1& table, const std::string& folder,
                                           const std::string& name) {  // [any]
  CapsuleDescription result;
  frt_error error{};
  check(table.describe(folder.c_str(), name.c_str(), &detail::append_to_string, &result.manifest,
                       &detail::append_to_string, &result.metadata, &error),
        error);
  return result;
}

inline std::vector<std::string> list_capsules(const frt_capsules_v1& table,
                                              const std::string& folder) {  // [any]
  std::vector<std::string> names;
  frt_error error{};
  check(table.list(folder.c_str(), &detail::append_name, &names, &error), error);
  return names;
}

inline void remove_capsule(const frt_capsules_v1& table, const std::string& folder,
                           const std::string& name) {  // [any]
  frt_error error{};
  check(table.remove(folder.c_str(), name.c_str(), &error), error);
}

inline uint64_t sweep_capsules(const frt_capsules_v1& table, const std::string& folder) {  // [any]
  uint64_t removed = 0;
  frt_error error{};
  check(table.sweep(folder.c_str(), &removed, &error), error);
  return removed;
}

}  // namespace frt
