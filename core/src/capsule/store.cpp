// SPDX-License-Identifier: Apache-2.0
// Size classes: large enough that a capsule is few copies and pinning is seldom, small enough that
// the last slab of a capsule wastes little: a sixteenth of the largest capsule as a power of two,
// 4 KiB to 32 MiB. With pages a capsule where the arena is has the FIXED part alone for itself, of
// the same size every time: one slab, so one copy.
//
// Giving back cannot fail: every list has room before something is handed out.
#include "capsule/store.hpp"

#include <algorithm>
#include <bit>
#include <frt/core/context_call.hpp>
#include <iterator>
#include <utility>

#include "capsule/state.hpp"

namespace frt::core {

namespace {

constexpr uint64_t kSmallestSlab = uint64_t{1} << 12;
constexpr uint64_t kLargestSlab = uint64_t{1} << 25;

// Moves the last `count` elements, or all, to the end of `to`, which has room.
template <class T>
void move_last(std::vector<T>& from, std::size_t count, std::vector<T>& to) noexcept {
  const auto first = from.end() - static_cast<std::ptrdiff_t>(std::min(count, from.size()));
  to.insert(to.end(), std::move_iterator(first), std::move_iterator(from.end()));
  from.erase(first, from.end());
}

}  // namespace

CapsuleStore::CapsuleStore(frt_state_s& state, uint64_t largest)
    : state_(state), pages_(state.pages ? state.pages->slot_pages() : 0) {
  for (Pool& pool : pools_) {
    pool.slab_bytes = std::bit_ceil(std::clamp(largest / 16, kSmallestSlab, kLargestSlab));
  }
  if (state.pages && state.fixed_bytes) pools_[state.space()].slab_bytes = state.fixed_bytes;
  copies_.reserve(FRT_COPY_BATCH_MAX);
}

uint64_t CapsuleStore::slabs_for(frt_space space, uint64_t bytes) const noexcept {
  return bytes ? (bytes - 1) / slab_bytes(space) + 1 : 1;
}

uint64_t CapsuleStore::idle(frt_space space) const noexcept {
  uint64_t count = pools_[space].free.size();
  for (const Holding& holding : pools_[space].deferred) count += holding.slabs.size();
  return count;
}

// Frees what nothing submitted uses any more; false: something may. A device that cannot tell has
// not said that it is done.
bool CapsuleStore::free_if_done(Pool& pool, Holding& holding) noexcept {
  if (state_.exec().event_query(holding.event) != FRT_OK) return false;
  move_last(holding.slabs, holding.slabs.size(), pool.free);
  if (!holding.pages.empty()) state_.pages->release(holding.pages);
  events_.push_back(std::move(holding.event));
  return true;
}

void CapsuleStore::free_what_is_done(Pool& pool) noexcept {
  std::erase_if(pool.deferred, [&](Holding& holding) { return free_if_done(pool, holding); });
}

// Waits for the events of the oldest `count` slabs whose free is deferred.
void CapsuleStore::wait_for_deferred(const Pool& pool, uint64_t count, frt_stream stream) {
  for (const Holding& holding : pool.deferred) {
    if (count == 0) break;
    if (holding.slabs.empty()) continue;
    state_.check(wait_for(state_, holding.event, stream));
    count -= std::min<uint64_t>(count, holding.slabs.size());
  }
}

CapsuleStore::Holding CapsuleStore::take(frt_space space, uint64_t count, frt_stream stream) {
  Pool& pool = pools_[space];
  pool.deferred.reserve(pool.deferred.size() + pool.holders + 1);
  free_what_is_done(pool);
  const uint64_t deferred = idle(space) - pool.free.size();
  if (count > deferred) grow(space, count - deferred);
  Holding taken;
  taken.slabs.reserve(count);
  if (events_.empty()) make_events(1);
  if (count > pool.free.size()) {
    wait_for_deferred(pool, count - pool.free.size(), stream);
    // Behind the waiting: the taker may give the slabs back before it has submitted anything.
    if (stream) state_.check(state_.exec().event_record(events_.back(), stream));
  }

  move_last(pool.free, count, taken.slabs);
  for (Holding& holding : pool.deferred) {
    move_last(holding.slabs, count - taken.slabs.size(), taken.slabs);
  }
  const auto before = [](const Slab& a, const Slab& b) { return a.pointer < b.pointer; };
  if (!std::is_sorted(taken.slabs.begin(), taken.slabs.end(), before)) {
    std::sort(taken.slabs.begin(), taken.slabs.end(), before);
  }
  taken.event = std::move(events_.back());
  events_.pop_back();
  pool.used += count;
  ++pool.holders;
  return taken;
}

void CapsuleStore::give_back(frt_space space, Holding holding) noexcept {
  Pool& pool = pools_[space];
  pool.used -= holding.slabs.size();
  --pool.holders;
  const bool freed = !is_recording(state_.context) && free_if_done(pool, holding);
  if (!freed) pool.deferred.push_back(std::move(holding));
}

bool CapsuleStore::reclaim_pages(frt_stream stream) noexcept {
  bool any = false;
  for (Holding& holding : pools_[state_.space()].deferred) {
    if (holding.pages.empty()) continue;
    if (wait_for(state_, holding.event, stream) != FRT_OK) continue;
    if (stream && pages_freed_on(state_, stream) != FRT_OK) break;
    state_.pages->release(holding.pages);
    holding.pages.clear();
    any = true;
  }
  return any;
}

// The pools share the events, so what each was promised adds up.
void CapsuleStore::reserve(frt_space space, uint64_t count, uint64_t capsules) {
  Pool& pool = pools_[space];
  free_what_is_done(pool);
  grow(space, count);
  pool.events = std::max(pool.events, capsules);
  uint64_t promised = 0;
  for (const Pool& each : pools_) promised += each.events;
  make_events(promised);
}

void CapsuleStore::make_events(uint64_t free) {
  while (events_.size() < free) {
    events_.reserve(made_events_ + 1);
    events_.push_back(state_.context.create_event());
    ++made_events_;
  }
}

void CapsuleStore::grow(frt_space space, uint64_t count) {
  Pool& pool = pools_[space];
  pool.free.reserve(count + pool.used + idle(space));
  std::vector<Slab> made;
  while (pool.free.size() + made.size() < count) {
    Slab& slab = made.emplace_back();
    Buffer buffer = state_.context.alloc(space, pool.slab_bytes, "capsules");
    slab.pointer = buffer.pointer<std::byte>();
    slab.memory.reset(buffer.release());
  }
  move_last(made, made.size(), pool.free);
}

void CapsuleStore::trim(frt_space space) noexcept {
  Pool& pool = pools_[space];
  for (Holding& holding : pool.deferred) holding.slabs.clear();  // each waits for all work
  pool.free.clear();
  free_what_is_done(pool);
}

}  // namespace frt::core
