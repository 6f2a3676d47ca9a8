// SPDX-License-Identifier: Apache-2.0
// store.hpp - the memory of the capsules of one arena: a slab allocator with one size class per
// space, and deferred free.
//
// A slab goes to one capsule at a time. What a released capsule held (slabs, and references to
// pages) is freed later, when the event behind the last verb with it is done. Whoever needs some of
// it earlier waits for that event and takes what it needs; the rest stays behind the event, for the
// next one to wait for. So nobody blocks, and work that was submitted never finds its memory in
// other hands.
//
// All of it is for the driver's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <frt/core/exec_table.hpp>
#include <frt/exec.hpp>
#include <memory>
#include <vector>

struct frt_state_s;

namespace frt::core {

// Memory of one size class. Smaller than a Buffer: slabs change hands with every capsule.
struct Slab {
  struct Release {
    void operator()(frt_buffer buffer) const noexcept { exec_table()->buffer_release(buffer); }
  };
  std::unique_ptr<frt_buffer_s, Release> memory;
  std::byte* pointer = nullptr;  // its address
};

class CapsuleStore {
 public:
  // What a capsule holds of its own, and the event behind the last verb with it.
  struct Holding {
    std::vector<Slab> slabs;
    std::vector<int32_t> pages;
    Event event;
  };

  // `largest`: bytes of the largest capsule, from which the size classes follow.  [setup]
  CapsuleStore(frt_state_s& state, uint64_t largest);
  CapsuleStore(const CapsuleStore&) = delete;
  CapsuleStore& operator=(const CapsuleStore&) = delete;

  uint64_t slab_bytes(frt_space space) const noexcept { return pools_[space].slab_bytes; }
  uint64_t slabs_for(frt_space space, uint64_t bytes) const noexcept;  // at least 1

  // `count` slabs in ascending order of address, and an event behind all work that `stream` was
  // made to wait for. Slabs whose free is deferred are allocated when no others are left; `stream`
  // then waits for their events, or, if it is null, this thread. Allocates what is missing; on
  // failure nothing is taken.  [driver]
  Holding take(frt_space space, uint64_t count, frt_stream stream);
  // Frees at once what is done, else defers it; inside a record callback always defers.  [driver]
  void give_back(frt_space space, Holding holding) noexcept;
  // Gives pages whose free is deferred back to the arena; `stream`, or, if it is null, this thread
  // waits for the work that reads them. False if there were none.  [hot]
  bool reclaim_pages(frt_stream stream) noexcept;

  // Makes at least `count` slabs free in `space`, and events for `capsules` more capsules.  [setup]
  void reserve(frt_space space, uint64_t count, uint64_t capsules);
  void trim(frt_space space) noexcept;                                          // [setup]
  uint64_t used(frt_space space) const noexcept { return pools_[space].used; }  // slabs
  uint64_t idle(frt_space space) const noexcept;                                // slabs

  // For building one submission without allocating.
  std::vector<frt_copy>& copies() noexcept { return copies_; }    // capacity FRT_COPY_BATCH_MAX
  std::vector<int32_t>& slot_pages() noexcept { return pages_; }  // [pages of a full slot]

 private:
  struct Pool {
    std::vector<Slab> free;  // nothing submitted uses them
    // Oldest first, and what is left of them; an event is used again when it is done.
    std::vector<Holding> deferred;
    uint64_t slab_bytes = 0;
    uint64_t used = 0;     // slabs
    uint64_t holders = 0;  // living capsules
    uint64_t events = 0;   // the most that reserve() was asked for
  };
  bool free_if_done(Pool& pool, Holding& holding) noexcept;
  void free_what_is_done(Pool& pool) noexcept;
  void grow(frt_space space, uint64_t count);
  void make_events(uint64_t free);  // until so many are free
  void wait_for_deferred(const Pool& pool, uint64_t count, frt_stream stream);

  frt_state_s& state_;
  Pool pools_[FRT_SPACE_COUNT];
  std::vector<Event> events_;
  std::size_t made_events_ = 0;
  std::vector<frt_copy> copies_;
  std::vector<int32_t> pages_;
};

}  // namespace frt::core
