// SPDX-License-Identifier: Apache-2.0
// Sizes of pieces: large enough that a capsule is few copies and pinning is seldom, small enough
// that the last piece of a capsule wastes little: a sixteenth of the largest capsule as a power of
// two, 4 KiB to 32 MiB. With row blocks a capsule in device memory has the FIXED part alone for
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
    shelves_[FRT_SPACE_DEVICE].piece_bytes = state.fixed_bytes;
  }
  copies_.reserve(FRT_COPY_BATCH_MAX);
}

CapsuleStore::~CapsuleStore() {
  for (frt_space space = 0; space < FRT_SPACE_COUNT; ++space) trim(space);
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

// Nothing submitted uses `holding` any more, or whoever takes of it waits.
void CapsuleStore::settle(Shelf& shelf, Holding& holding) noexcept {
  shelf.free.insert(shelf.free.end(), holding.pieces.begin(), holding.pieces.end());
  if (!holding.blocks.empty()) release_rows(state_, holding.blocks);
  events_.push_back(holding.event);
}

void CapsuleStore::settle_finished(Shelf& shelf) noexcept {
  std::erase_if(shelf.resting, [&](Holding& rest) {
    if (exec::event_query(rest.event) == FRT_ERR_NOT_READY) return false;
    settle(shelf, rest);
    return true;
  });
}

CapsuleStore::Holding CapsuleStore::take(frt_space space, uint64_t count, frt_stream stream) {
  Shelf& shelf = shelves_[space];
  shelf.resting.reserve(shelf.resting.size() + shelf.holders + 1);
  settle_finished(shelf);
  while (shelf.free.size() < count && !shelf.resting.empty()) {
    Holding& oldest = shelf.resting.front();
    check(stream ? exec::stream_wait(stream, oldest.event) : exec::event_sync(oldest.event),
          state_.context->last_error);
    settle(shelf, oldest);
    shelf.resting.erase(shelf.resting.begin());
  }
  reserve(space, count);
  Holding taken;
  if (events_.empty()) {
    events_.reserve(made_events_ + 1);
    frt_event event = nullptr;
    frt_error error{};
    check(exec::event_create(state_.context, 0, &event, &error), error);
    ++made_events_;
    events_.push_back(event);
  }
  taken.pieces.assign(shelf.free.end() - static_cast<std::ptrdiff_t>(count), shelf.free.end());
  shelf.free.resize(shelf.free.size() - count);
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
  if (exec::event_query(holding.event) == FRT_ERR_NOT_READY) {
    shelf.resting.push_back(std::move(holding));
  } else {
    settle(shelf, holding);
  }
}

bool CapsuleStore::hand_over_rows(frt_stream stream) noexcept {
  bool any = false;
  for (Holding& rest : shelves_[FRT_SPACE_DEVICE].resting) {
    if (rest.blocks.empty() || exec::stream_wait(stream, rest.event) != FRT_OK) continue;
    release_rows(state_, rest.blocks);
    rest.blocks.clear();
    any = true;
  }
  return any;
}

void CapsuleStore::reserve(frt_space space, uint64_t count) {
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
    exec::event_sync(rest.event);
    settle(shelf, rest);
  }
  shelf.resting.clear();
  for (frt_buffer piece : shelf.free) exec::buffer_release(piece);
  shelf.free.clear();
}

}  // namespace frt::core
