// SPDX-License-Identifier: Apache-2.0
// row_blocks.hpp - who holds which row block of a state (frt/capsule.h). Bookkeeping only: nothing
// here touches a device, nothing allocates after construction.
//
// A block has as many holders as slots and capsules name it; with none it is free. Rows before
// boundary - lag are final for every region. Blocks that hold only such rows ("whole" ones) are
// taken over by reference; the rest of a prefix, at most a block unless the lag is longer, is
// copied by whoever takes it over. Hence the invariants:
//   - a block is written by one slot only, whatever else holds it;
//   - a slot writes no row that another holder reads: a capsule of a boundary seals the rows before
//     it, and reserve() refuses to go back behind the seal while somebody else holds a block there.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace frt::core {

class RowBlocks {
 public:
  static constexpr int32_t kNone = -1;  // an entry without a block

  enum class Result : uint8_t {
    kDone,
    kTooFew,  // free blocks
    kHeld,    // a row that would be written is held elsewhere, too
  };
  // Entries of a slot that are not what they were.
  struct Change {
    uint32_t begin = 0, end = 0;
  };

  RowBlocks() = default;
  // `lag`: the largest row_lag of the regions.  [setup]
  RowBlocks(uint32_t slots, uint32_t slot_blocks, uint32_t total, uint32_t block_rows,
            uint64_t lag);

  uint32_t slot_blocks() const noexcept { return slot_blocks_; }
  uint32_t block_rows() const noexcept { return block_rows_; }
  uint32_t total() const noexcept { return static_cast<uint32_t>(holders_.size()); }
  uint32_t free() const noexcept { return free_count_.load(std::memory_order_relaxed); }  // [any]
  // With more than one holder.  [any]
  uint32_t shared() const noexcept { return shared_count_.load(std::memory_order_relaxed); }

  // Blocks that `rows` rows are in, and those of them that are whole at that boundary.  [any]
  uint32_t count(uint64_t rows) const noexcept {
    return static_cast<uint32_t>((rows + block_rows_ - 1) / block_rows_);
  }
  uint32_t whole(uint64_t boundary) const noexcept {
    return static_cast<uint32_t>((boundary < lag_ ? 0 : boundary - lag_) / block_rows_);
  }
  // The slot's entries, kNone behind the last.  [driver]
  std::span<const int32_t> entries(uint32_t slot) const noexcept {
    return {&entries_[std::size_t{slot} * slot_blocks_], slot_blocks_};
  }
  uint32_t held(uint32_t slot) const noexcept { return slots_[slot].held; }  // [driver]

  // The slot is about to write [first, end), at most a slot's rows. All or nothing.  [hot]
  Result reserve(uint32_t slot, uint64_t first, uint64_t end, Change& change) noexcept;
  // Gives back the slot's entries from `from` on.  [hot]
  void drop(uint32_t slot, uint32_t from) noexcept;

  // One more holder for the blocks of the slot's first `boundary` rows, which are sealed.
  // `blocks`: [count(boundary)]; count(boundary) <= held(slot).  [hot]
  void share(uint32_t slot, uint64_t boundary, int32_t* blocks) noexcept;
  // Free blocks without a slot; false: too few.  [hot]
  bool take(std::span<int32_t> blocks) noexcept;
  // One holder less for each.  [hot]
  void release(std::span<const int32_t> blocks) noexcept;
  // The slot gives back what it has, holds `shared` (at most whole(boundary), in order) and free
  // blocks for the other rows before `boundary`. All or nothing; the whole slot has changed.  [hot]
  Result adopt(uint32_t slot, std::span<const int32_t> shared, uint64_t boundary) noexcept;

 private:
  struct Slot {
    uint32_t held = 0;    // entries
    uint64_t sealed = 0;  // rows before it may be held elsewhere
  };

  int32_t& entry(uint32_t slot, uint32_t index) noexcept {
    return entries_[std::size_t{slot} * slot_blocks_ + index];
  }
  int32_t pop() noexcept;
  void hold(int32_t block) noexcept;
  void let_go(int32_t block) noexcept;

  uint32_t slot_blocks_ = 0, block_rows_ = 1;
  uint64_t lag_ = 0;
  std::vector<Slot> slots_;
  std::vector<int32_t> entries_;   // (slots, slot_blocks)
  std::vector<uint32_t> holders_;  // of each block
  std::vector<int32_t> free_;      // a stack of free_count_
  std::atomic<uint32_t> free_count_{0}, shared_count_{0};
};

}  // namespace frt::core
