// SPDX-License-Identifier: Apache-2.0
// page_table.hpp - which pages a slot's rows are in, and who holds each page. Bookkeeping only:
// nothing here touches a device, nothing allocates after construction.
//
// A page is reference counted: slots and capsules that name it; with none it is free. Rows before
// boundary - lag are final for every region. Pages that hold only such rows ("full" ones) are taken
// over by reference; the rest of a prefix, at most a page unless the lag is longer, is copied by
// whoever takes it over. Hence the invariants:
//   - a page is written by one slot only, whatever else holds it;
//   - a slot writes no row that another holder reads: a capsule of a boundary seals the rows before
//     it, and reserve() refuses to go back behind the seal while somebody else holds a page there.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace frt::core {

class PageTable {
 public:
  static constexpr int32_t kNone = -1;  // an entry without a page

  enum class Result : uint8_t {
    kDone,
    kTooFew,  // free pages
    kHeld,    // a row that would be written is held elsewhere, too
  };
  // Entries of a slot that are not what they were.
  struct Change {
    uint32_t begin = 0, end = 0;
  };

  // `lag`: the largest row_lag of the regions.  [setup]
  PageTable(uint32_t slots, uint32_t slot_pages, uint32_t total, uint32_t page_rows, uint64_t lag);

  uint32_t slot_pages() const noexcept { return slot_pages_; }
  uint32_t page_rows() const noexcept { return page_rows_; }
  uint32_t total() const noexcept { return static_cast<uint32_t>(references_.size()); }
  uint32_t free() const noexcept { return free_count_.load(std::memory_order_relaxed); }  // [any]
  // With more than one holder.  [any]
  uint32_t shared() const noexcept { return shared_count_.load(std::memory_order_relaxed); }

  // Pages that `rows` rows are in, and those of them that are full at that boundary.  [any]
  uint32_t count(uint64_t rows) const noexcept {
    return static_cast<uint32_t>((rows + page_rows_ - 1) / page_rows_);
  }
  uint32_t full(uint64_t boundary) const noexcept {
    return static_cast<uint32_t>((boundary < lag_ ? 0 : boundary - lag_) / page_rows_);
  }
  // The slot's entries, kNone behind the last.  [driver]
  std::span<const int32_t> entries(uint32_t slot) const noexcept {
    return {&entries_[std::size_t{slot} * slot_pages_], slot_pages_};
  }
  uint32_t held(uint32_t slot) const noexcept { return slots_[slot].held; }  // [driver]

  // The slot is about to write [first, end), at most a slot's rows. All or nothing.  [hot]
  Result reserve(uint32_t slot, uint64_t first, uint64_t end, Change& change) noexcept;
  // Gives back the slot's entries from `from` on.  [hot]
  void drop(uint32_t slot, uint32_t from) noexcept;

  // One more reference to the pages of the slot's first `boundary` rows, which are sealed.
  // `pages`: [count(boundary)]; count(boundary) <= held(slot).  [hot]
  void share(uint32_t slot, uint64_t boundary, int32_t* pages) noexcept;
  // Free pages without a slot. All or nothing.  [hot]
  Result take(std::span<int32_t> pages) noexcept;
  // One reference less to each.  [hot]
  void release(std::span<const int32_t> pages) noexcept;
  // The slot gives back what it has, holds `shared` (at most full(boundary), in order) and free
  // pages for the other rows before `boundary`. All or nothing; the whole slot has changed.  [hot]
  Result adopt(uint32_t slot, std::span<const int32_t> shared, uint64_t boundary) noexcept;

 private:
  struct Slot {
    uint32_t held = 0;    // entries
    uint64_t sealed = 0;  // rows before it may be held elsewhere
  };

  int32_t& entry(uint32_t slot, uint32_t index) noexcept {
    return entries_[std::size_t{slot} * slot_pages_ + index];
  }
  uint32_t& references(int32_t page) noexcept {
    return references_[static_cast<std::size_t>(page)];
  }
  int32_t pop() noexcept;
  void retain(int32_t page) noexcept;
  void release(int32_t page) noexcept;

  uint32_t slot_pages_ = 0, page_rows_ = 1;
  uint64_t lag_ = 0;
  std::vector<Slot> slots_;
  std::vector<int32_t> entries_;      // (slots, slot_pages)
  std::vector<uint32_t> references_;  // to each page
  std::vector<int32_t> free_;         // a stack of free_count_
  std::atomic<uint32_t> free_count_{0}, shared_count_{0};
};

}  // namespace frt::core
