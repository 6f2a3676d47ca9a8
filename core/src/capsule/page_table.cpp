// SPDX-License-Identifier: Apache-2.0
// A stack of free pages, a reference count per page, the entries of every slot. The page
// that was freed last is allocated first: it is most likely still in a cache.
#include "capsule/page_table.hpp"

#include <algorithm>

namespace frt::core {
namespace {

// Only the driver writes counters; others read them.
void set(std::atomic<uint32_t>& counter, uint32_t value) noexcept {
  counter.store(value, std::memory_order_relaxed);
}

}  // namespace

PageTable::PageTable(uint32_t slots, uint32_t slot_pages, uint32_t total, uint32_t page_rows,
                     uint64_t lag)
    : slot_pages_(slot_pages),
      page_rows_(page_rows),
      lag_(lag),
      slots_(slots),
      entries_(std::size_t{slots} * slot_pages, kNone),
      references_(total, 0),
      free_(total),
      free_count_(total) {
  for (uint32_t i = 0; i < total; ++i) free_[i] = static_cast<int32_t>(total - 1 - i);
}

int32_t PageTable::pop() noexcept {
  const uint32_t left = free() - 1;
  set(free_count_, left);
  const int32_t page = free_[left];
  references(page) = 1;
  return page;
}

void PageTable::retain(int32_t page) noexcept {
  if (++references(page) == 2) set(shared_count_, shared() + 1);
}

void PageTable::release(int32_t page) noexcept {
  const uint32_t left = --references(page);
  if (left == 1) set(shared_count_, shared() - 1);
  if (left > 0) return;
  free_[free()] = page;
  set(free_count_, free() + 1);
}

PageTable::Result PageTable::reserve(uint32_t slot, uint64_t first, uint64_t end,
                                     Change& change) noexcept {
  Slot& own = slots_[slot];
  change = {own.held, own.held};
  if (first < own.sealed) {
    const uint32_t sealed = std::min(own.held, count(own.sealed));
    for (uint32_t i = full(first); i < sealed; ++i) {
      if (references(entry(slot, i)) > 1) return Result::kHeld;
    }
  }
  const uint32_t wanted = count(end);
  if (wanted > own.held && wanted - own.held > free()) return Result::kTooFew;
  own.sealed = std::min(own.sealed, first);
  while (own.held < wanted) entry(slot, own.held++) = pop();
  change.end = own.held;
  return Result::kDone;
}

void PageTable::drop(uint32_t slot, uint32_t from) noexcept {
  Slot& own = slots_[slot];
  while (own.held > from) {
    int32_t& last = entry(slot, --own.held);
    release(last);
    last = kNone;
  }
  own.sealed = std::min(own.sealed, uint64_t{own.held} * page_rows_);
}

void PageTable::share(uint32_t slot, uint64_t boundary, int32_t* pages) noexcept {
  const uint32_t wanted = count(boundary);
  for (uint32_t i = 0; i < wanted; ++i) {
    pages[i] = entry(slot, i);
    retain(pages[i]);
  }
  slots_[slot].sealed = std::max(slots_[slot].sealed, boundary);
}

PageTable::Result PageTable::take(std::span<int32_t> pages) noexcept {
  if (pages.size() > free()) return Result::kTooFew;
  for (int32_t& page : pages) page = pop();
  return Result::kDone;
}

void PageTable::release(std::span<const int32_t> pages) noexcept {
  for (const int32_t page : pages) release(page);
}

PageTable::Result PageTable::adopt(uint32_t slot, std::span<const int32_t> shared,
                                   uint64_t boundary) noexcept {
  // Retained first: what the slot has may be the same pages.
  for (const int32_t page : shared) retain(page);
  Slot& own = slots_[slot];
  uint32_t available = free();
  for (uint32_t i = 0; i < own.held; ++i) {
    available += references(entry(slot, i)) == 1 ? 1 : 0;
  }
  const uint32_t wanted = count(boundary);
  if (wanted - shared.size() > available) {
    release(shared);
    return Result::kTooFew;
  }
  drop(slot, 0);
  for (const int32_t page : shared) entry(slot, own.held++) = page;
  while (own.held < wanted) entry(slot, own.held++) = pop();
  own.sealed = boundary;
  return Result::kDone;
}

}  // namespace frt::core
