// SPDX-License-Identifier: Apache-2.0
// A stack of free blocks, a count of holders per block, the entries of every slot. What was given
// back last is handed out first: it is most likely near in some level of memory.
#include "capsule/row_blocks.hpp"

#include <algorithm>

namespace frt::core {
namespace {

// Only the driver writes counters; others read them.
void set(std::atomic<uint32_t>& counter, uint32_t value) noexcept {
  counter.store(value, std::memory_order_relaxed);
}

}  // namespace

RowBlocks::RowBlocks(uint32_t slots, uint32_t slot_blocks, uint32_t total, uint32_t block_rows,
                     uint64_t lag)
    : slot_blocks_(slot_blocks),
      block_rows_(block_rows),
      lag_(lag),
      slots_(slots),
      entries_(std::size_t{slots} * slot_blocks, kNone),
      holders_(total, 0),
      free_(total),
      free_count_(total) {
  for (uint32_t i = 0; i < total; ++i) free_[i] = static_cast<int32_t>(total - 1 - i);
}

int32_t RowBlocks::pop() noexcept {
  const uint32_t left = free() - 1;
  set(free_count_, left);
  const int32_t block = free_[left];
  holders_[static_cast<std::size_t>(block)] = 1;
  return block;
}

void RowBlocks::hold(int32_t block) noexcept {
  if (++holders_[static_cast<std::size_t>(block)] == 2) set(shared_count_, shared() + 1);
}

void RowBlocks::let_go(int32_t block) noexcept {
  const uint32_t left = --holders_[static_cast<std::size_t>(block)];
  if (left == 1) set(shared_count_, shared() - 1);
  if (left > 0) return;
  free_[free()] = block;
  set(free_count_, free() + 1);
}

RowBlocks::Result RowBlocks::reserve(uint32_t slot, uint64_t first, uint64_t end,
                                     Change& change) noexcept {
  Slot& own = slots_[slot];
  change = {own.held, own.held};
  if (first < own.sealed) {
    const auto from = static_cast<uint32_t>((first < lag_ ? 0 : first - lag_) / block_rows_);
    for (uint32_t i = from; i < std::min(own.held, count(own.sealed)); ++i) {
      if (holders_[static_cast<std::size_t>(entry(slot, i))] > 1) return Result::kHeld;
    }
  }
  const uint32_t wanted = count(end);
  if (wanted > own.held && wanted - own.held > free()) return Result::kTooFew;
  own.sealed = std::min(own.sealed, first);
  while (own.held < wanted) entry(slot, own.held++) = pop();
  change.end = own.held;
  return Result::kDone;
}

void RowBlocks::drop(uint32_t slot, uint32_t from) noexcept {
  Slot& own = slots_[slot];
  while (own.held > from) {
    int32_t& last = entry(slot, --own.held);
    let_go(last);
    last = kNone;
  }
  own.sealed = std::min(own.sealed, uint64_t{own.held} * block_rows_);
}

void RowBlocks::share(uint32_t slot, uint64_t boundary, int32_t* blocks) noexcept {
  const uint32_t wanted = count(boundary);
  for (uint32_t i = 0; i < wanted; ++i) {
    blocks[i] = entry(slot, i);
    hold(blocks[i]);
  }
  slots_[slot].sealed = std::max(slots_[slot].sealed, boundary);
}

bool RowBlocks::take(std::span<int32_t> blocks) noexcept {
  if (blocks.size() > free()) return false;
  for (int32_t& block : blocks) block = pop();
  return true;
}

void RowBlocks::release(std::span<const int32_t> blocks) noexcept {
  for (const int32_t block : blocks) let_go(block);
}

RowBlocks::Result RowBlocks::adopt(uint32_t slot, std::span<const int32_t> shared,
                                   uint64_t boundary) noexcept {
  // Held first: what the slot has may be the same blocks.
  for (const int32_t block : shared) hold(block);
  Slot& own = slots_[slot];
  uint32_t available = free();
  for (uint32_t i = 0; i < own.held; ++i) {
    available += holders_[static_cast<std::size_t>(entry(slot, i))] == 1 ? 1 : 0;
  }
  const uint32_t wanted = count(boundary);
  if (wanted - shared.size() > available) {
    release(shared);
    return Result::kTooFew;
  }
  drop(slot, 0);
  for (const int32_t block : shared) entry(slot, own.held++) = block;
  while (own.held < wanted) entry(slot, own.held++) = pop();
  own.sealed = boundary;
  return Result::kDone;
}

}  // namespace frt::core
