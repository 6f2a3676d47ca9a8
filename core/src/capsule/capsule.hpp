// SPDX-License-Identifier: Apache-2.0
// capsule.hpp - what stands behind a capsule's handle, and the functions of frt_capsules_v1, one
// declaration per member in its order. What they do is said in frt/capsule.h.
//
// Threads. A capsule is driven by the driver's thread; `filled` is how that thread tells others
// that the content is complete, and how load_finish tells the driver.
#pragma once

#include <frt/capsule.h>
#include <frt/core/digest.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "capsule/state.hpp"
#include "capsule/store.hpp"

namespace frt::core {

struct CapsuleReading;  // an open file between load_begin and load_finish (load.cpp)

enum class Filled : uint32_t {
  kSubmitted,  // a stream fills it: good for work behind that, not yet for the host
  kComplete,   // done: also the host may read it
  kReading,    // load_finish is missing
  kBroken,     // load_finish failed
};

}  // namespace frt::core

struct frt_capsule_s {
  frt_capsule_s();
  ~frt_capsule_s();

  frt_state state = nullptr;  // counted
  frt_space space = FRT_SPACE_DEVICE;
  uint64_t boundary = 0;
  uint64_t bytes = 0;  // payload
  // Slabs of the state's store, which the payload fills; or, where the arena of a state with pages
  // is, its FIXED part alone, and references to the pages of its rows.
  frt::core::CapsuleStore::Holding held;
  frt_stream last_stream = nullptr;  // the last verb's, only compared; null: there was none
  std::atomic<frt::core::Filled> filled{frt::core::Filled::kSubmitted};
  std::unique_ptr<frt::core::CapsuleReading> reading;
  frt::core::BuildOrigin origin;  // the other build that computed it, or a part of it
};

namespace frt::core {

// Gives everything back.  [driver]
void destroy_capsule(frt_capsule capsule) noexcept;
struct CapsuleDeleter {
  void operator()(frt_capsule capsule) const noexcept { destroy_capsule(capsule); }
};
using CapsuleOwner = std::unique_ptr<frt_capsule_s, CapsuleDeleter>;

// A capsule without content that has its memory. `stream`: which will fill it, null: the host.
// [driver]
CapsuleOwner make_capsule(frt_state_s& state, uint64_t boundary, frt_space space,
                          frt_stream stream);

// What a caller's `space` means: FRT_SPACE_DEVICE is where the arena is. Throws for one that is not
// known, and for shared memory that the device does not have.
frt_space capsule_space(const frt_state_s& state, frt_space space, const char* call);

// Capsules in `space` hold the pages of their rows by reference.  [any]
bool holds_pages(const frt_state_s& state, frt_space space) noexcept;

// Free pages for the rows of such a capsule, which `stream` will fill, null: the host.  [driver]
void take_pages(frt_capsule_s& capsule, frt_stream stream);

namespace capsules {

// verbs.cpp
frt_status reserve(frt_state state, frt_space space, uint64_t boundary, uint32_t count,
                   frt_error* error) noexcept;
void trim(frt_state state, frt_space space) noexcept;
frt_status usage(frt_state state, frt_space space, frt_capsule_usage* usage) noexcept;
frt_status snapshot(frt_state state, uint32_t slot, uint64_t boundary, frt_space space,
                    frt_stream stream, frt_capsule* capsule, frt_error* error) noexcept;
frt_status restore(frt_capsule capsule, uint32_t slot, frt_stream stream) noexcept;
frt_status fork(frt_capsule capsule, const uint32_t* slots, uint32_t count,
                frt_stream stream) noexcept;
frt_status fork_slot(frt_state state, uint32_t slot, uint64_t boundary, const uint32_t* slots,
                     uint32_t count, frt_stream stream) noexcept;
frt_status copy(frt_capsule capsule, frt_space space, frt_stream stream, frt_capsule* made,
                frt_error* error) noexcept;

// capsule.cpp
frt_status info(frt_capsule capsule, frt_capsule_info* info) noexcept;
frt_status query(frt_capsule capsule) noexcept;
frt_status sync(frt_capsule capsule) noexcept;
void release(frt_capsule capsule) noexcept;
frt_status read(frt_capsule capsule, frt_sink sink, void* user, frt_error* error) noexcept;

// identity.cpp
frt_status bind(frt_state state, const frt_fingerprint_field* fields, uint64_t count,
                frt_error* error) noexcept;
frt_status fingerprint(frt_state state, const frt_fingerprint_field** fields, uint64_t* count,
                       frt_error* error) noexcept;

// save.cpp
frt_status save(frt_capsule capsule, const char* folder, const char* name, const void* metadata,
                uint64_t metadata_bytes, uint32_t flags, frt_error* error) noexcept;

// load.cpp
frt_status load_begin(frt_state state, const char* folder, const char* name, frt_space space,
                      frt_sink metadata, void* user, frt_capsule* capsule,
                      frt_error* error) noexcept;
frt_status load_finish(frt_capsule capsule, frt_error* error) noexcept;
frt_status verify(const char* folder, const char* name, frt_error* error) noexcept;
frt_status describe(const char* folder, const char* name, frt_sink manifest, void* manifest_user,
                    frt_sink metadata, void* metadata_user, frt_error* error) noexcept;

// folder.cpp
frt_status list(const char* folder, frt_sink sink, void* user, frt_error* error) noexcept;
frt_status remove(const char* folder, const char* name, frt_error* error) noexcept;
frt_status sweep(const char* folder, uint64_t* removed, frt_error* error) noexcept;

}  // namespace capsules
}  // namespace frt::core
