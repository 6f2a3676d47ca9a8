// SPDX-License-Identifier: Apache-2.0
// store.hpp - the memory of the capsules of one arena: per space pieces of equal size.
//
// A piece goes to one capsule at a time. What a released capsule held (pieces, and row blocks that
// it shared) is freed later: it rests until the event behind the last verb with it is done. Whoever
// needs some of it earlier waits for that event and takes what he needs; the rest stays behind the
// event, for the next one to wait for. So nobody blocks, and work that was submitted never finds
// its memory in other hands.
//
// All of it is for the driver's thread.
#pragma once

#include <frt/exec.h>

#include <cstddef>
#include <cstdint>
#include <vector>

struct frt_state_s;

namespace frt::core {

class CapsuleStore {
 public:
  // What a capsule holds of its own, and the event behind the last verb with it.
  struct Holding {
    std::vector<frt_buffer> pieces;
    std::vector<int32_t> blocks;
    frt_event event = nullptr;
  };

  // `largest`: bytes of the largest capsule, from which the sizes of pieces follow.  [setup]
  CapsuleStore(frt_state_s& state, uint64_t largest);
  ~CapsuleStore();
  CapsuleStore(const CapsuleStore&) = delete;
  CapsuleStore& operator=(const CapsuleStore&) = delete;

  uint64_t piece_bytes(frt_space space) const noexcept { return shelves_[space].piece_bytes; }
  uint64_t pieces_for(frt_space space, uint64_t bytes) const noexcept;  // at least 1

  // `count` pieces in ascending order of address, and an event behind all work that `stream` was
  // made to wait for. Pieces that rest are handed out when no others are left; `stream` then waits
  // for their events, or, if it is null, this thread. Allocates what is missing; on failure nothing
  // is taken.  [driver]
  Holding take(frt_space space, uint64_t count, frt_stream stream);
  void give_back(frt_space space, Holding holding) noexcept;  // [driver]
  // Gives resting row blocks back to the arena; `stream`, or, if it is null, this thread waits for
  // the work that reads them. False if there were none.  [hot]
  bool hand_over_rows(frt_stream stream) noexcept;

  // Makes at least `count` pieces free in `space`.  [setup]
  void reserve(frt_space space, uint64_t count);
  void trim(frt_space space) noexcept;                                            // [setup]
  uint64_t used(frt_space space) const noexcept { return shelves_[space].used; }  // pieces
  uint64_t idle(frt_space space) const noexcept;                                  // pieces

  // For building one submission without allocating.
  std::vector<frt_copy>& copies() noexcept { return copies_; }    // capacity FRT_COPY_BATCH_MAX
  std::vector<int32_t>& slot_rows() noexcept { return blocks_; }  // [blocks of a full slot]

 private:
  struct Shelf {
    std::vector<frt_buffer> free;  // nothing submitted uses them
    // Oldest first, and what is left of them; an event is used again when it is done.
    std::vector<Holding> resting;
    uint64_t piece_bytes = 0;
    uint64_t used = 0;     // pieces
    uint64_t holders = 0;  // living capsules
  };
  bool settle(Shelf& shelf, Holding& holding) noexcept;
  void settle_finished(Shelf& shelf) noexcept;
  void grow(frt_space space, uint64_t count);
  void wait_for_resting(const Shelf& shelf, uint64_t count, frt_event taker, frt_stream stream);

  frt_state_s& state_;
  Shelf shelves_[FRT_SPACE_COUNT];
  std::vector<frt_event> events_;
  std::size_t made_events_ = 0;
  std::vector<frt_copy> copies_;
  std::vector<int32_t> blocks_;
};

}  // namespace frt::core
