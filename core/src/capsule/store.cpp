// SPDX-License-Identifier: Apache-2.0
// Sizes of pieces: large enough that a capsule is few copies and pinning is seldom, small enough
// that the last piece of a capsule wastes little: a sixteenth of the largest capsule as a power of
// two, 4 KiB to 32 MiB. With row blocks a capsule where the arena is has the FIXED part alone for
// itself, of the same size every time: one piece, so one copy.
//
// Giving back cannot fail: every list has room before something is handed out.
#include "capsule/store.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "capsule/state.hpp"
#include "exec/functions.hpp"
#include "exec/objects.hpp"

namespace frt::core {

namespace {

constexpr uint64_t kSmallestPiece = uint64_t{1} << 12;
constexpr uint64_t kLargestPiece = uint64_t{1} << 25;

}  // namespace

CapsuleStore::CapsuleStore(frt_state_s& state, uint64_t largest)
    : state_(state), blocks_(state.rows ? state.rows->slot_blocks() : 0) {
  for (Shelf& shelf : shelves_) {
    shelf.piece_bytes = std::bit_ceil(std::clamp(largest / 16, kSmallestPiece, kLargestPiece));
  }
  if (state.rows && state.fixed_bytes) {
    shelves_[state.buffer->space].piece_bytes = state.fixed_bytes;
  }
  copies_.reserve(FRT_COPY_BATCH_MAX);
}

CapsuleStore::~CapsuleStore() {
  for (frt_space space = 0; space < FRT_SPACE_COUNT; ++space) {
    trim(space);
    for (const Holding& rest : shelves_[space].resting) exec::event_release(rest.event);
  }
  for (frt_event event : events_) exec::event_release(event);
}

uint64_t CapsuleStore::pieces_for(frt_space space, uint64_t bytes) const noexcept {
  return bytes ? (bytes - 1) / piece_bytes(space) + 1 : 1;
}

uint64_t CapsuleStore::idle(frt_space space) const noexcept {
  uint64_t count = shelves_[space].free.size();
  for (const Holding& rest : shelves_[space].resting) count += rest.pieces.size();
  return count;
}

// Frees what nothing submitted uses any more; false: something may. A device that cannot tell has
// not said that it is done.
bool CapsuleStore::settle(Shelf& shelf, Holding& holding) noexcept {
  if (exec::event_query(holding.event) != FRT_OK) return false;
  shelf.free.insert(shelf.free.end(), holding.pieces.begin(), holding.pieces.end());
  if (!holding.blocks.empty()) release_rows(state_, holding.blocks);
  events_.push_back(holding.event);
  return true;
}

void CapsuleStore::settle_finished(Shelf& shelf) noexcept {
  std::erase_if(shelf.resting, [&](Holding& rest) { return settle(shelf, rest); });
}

// Waits for the events of the oldest `count` pieces that rest. The event of who takes them is
// behind that, too: he may give them back before he has submitted anything.
void CapsuleStore::wait_for_resting(const Shelf& shelf, uint64_t count, frt_event taker,
                                    frt_stream stream) {
  if (count == 0) return;
  const frt_error& error = state_.context->last_error;
  for (const Holding& rest : shelf.resting) {
    if (count == 0) break;
    if (rest.pieces.empty()) continue;
    check(stream ? exec::stream_wait(stream, rest.event) : exec::event_sync(rest.event), error);
    count -= std::min<uint64_t>(count, rest.pieces.size());
  }
  if (stream) check(exec::event_record(taker, stream), error);
}

CapsuleStore::Holding CapsuleStore::take(frt_space space, uint64_t count, frt_stream stream) {
  Shelf& shelf = shelves_[space];
  shelf.resting.reserve(shelf.resting.size() + shelf.holders + 1);
  settle_finished(shelf);
  const uint64_t resting = idle(space) - shelf.free.size();
  if (count > resting) grow(space, count - resting);
  const uint64_t early = count - std::min<uint64_t>(count, shelf.free.size());
  Holding taken;
  taken.pieces.reserve(count);
  if (events_.empty()) {
    events_.reserve(made_events_ + 1);
    frt_event event = nullptr;
    frt_error error{};
    check(exec::event_create(state_.context, 0, &event, &error), error);
    ++made_events_;
    events_.push_back(event);
  }
  wait_for_resting(shelf, early, events_.back(), stream);

  const auto move = [&](std::vector<frt_buffer>& from) {
    const auto part = std::min<std::size_t>(count - taken.pieces.size(), from.size());
    const auto first = from.end() - static_cast<std::ptrdiff_t>(part);
    taken.pieces.insert(taken.pieces.end(), first, from.end());
    from.erase(first, from.end());
  };
  move(shelf.free);
  for (Holding& rest : shelf.resting) move(rest.pieces);
  std::sort(taken.pieces.begin(), taken.pieces.end(),
            [](frt_buffer a, frt_buffer b) { return a->pointer < b->pointer; });
  taken.event = events_.back();
  events_.pop_back();
  shelf.used += count;
  ++shelf.holders;
  return taken;
}

void CapsuleStore::give_back(frt_space space, Holding holding) noexcept {
  Shelf& shelf = shelves_[space];
  shelf.used -= holding.pieces.size();
  --shelf.holders;
  if (!settle(shelf, holding)) shelf.resting.push_back(std::move(holding));
}

bool CapsuleStore::hand_over_rows(frt_stream stream) noexcept {
  bool any = false;
  for (Holding& rest : shelves_[state_.buffer->space].resting) {
    if (rest.blocks.empty()) continue;
    const frt_status waited =
        stream ? exec::stream_wait(stream, rest.event) : exec::event_sync(rest.event);
    if (waited != FRT_OK) continue;
    if (stream && rows_freed_on(state_, stream) != FRT_OK) break;
    release_rows(state_, rest.blocks);
    rest.blocks.clear();
    any = true;
  }
  return any;
}

void CapsuleStore::reserve(frt_space space, uint64_t count) {
  settle_finished(shelves_[space]);
  grow(space, count);
}

void CapsuleStore::grow(frt_space space, uint64_t count) {
  Shelf& shelf = shelves_[space];
  const std::size_t before = shelf.free.size();
  try {
    shelf.free.reserve(count + shelf.used + idle(space));
    while (shelf.free.size() < count) {
      frt_buffer piece = nullptr;
      frt_error error{};
      check(
          exec::buffer_alloc(state_.context, space, shelf.piece_bytes, "capsules", &piece, &error),
          error);
      shelf.free.push_back(piece);
    }
  } catch (...) {
    for (; shelf.free.size() > before; shelf.free.pop_back()) {
      exec::buffer_release(shelf.free.back());
    }
    throw;
  }
}

void CapsuleStore::trim(frt_space space) noexcept {
  Shelf& shelf = shelves_[space];
  for (Holding& rest : shelf.resting) {
    shelf.free.insert(shelf.free.end(), rest.pieces.begin(), rest.pieces.end());
    rest.pieces.clear();
  }
  for (frt_buffer piece : shelf.free) exec::buffer_release(piece);  // waits for all work
  shelf.free.clear();
  settle_finished(shelf);
}

}  // namespace frt::core
