// SPDX-License-Identifier: Apache-2.0
// The verbs that move bytes. Each builds one list of copies in memory that was set aside, and
// submits it: runs of the payload (payload.hpp), cut where a piece of a capsule ends.
//
//   arena    | fixed ......... | keys rows |      | values rows |     |
//               \                    \                  \  runs, in payload order
//   capsule  | fixed | keys | values |                    (cut at pieces)
//            `---- piece ----' `---- piece ----'
//
// With row blocks a capsule where the arena is holds the blocks of its rows by reference: a
// snapshot copies the FIXED part alone. A slot that is restored takes the whole blocks by
// reference, too, and gets fresh ones for the other rows, which are copied; the change of the
// device's block table travels in the same list.
#include <algorithm>
#include <span>

#include "capsule/capsule.hpp"
#include "capsule/payload.hpp"
#include "exec/functions.hpp"
#include "exec/objects.hpp"

namespace frt::core {
namespace {

// Changes of the block table that one list carries at most: the ring has room for twice as many.
constexpr uint32_t kSlotsAtOnce = TableRing::kPlaces / 2;

// Where a payload is: in a slot, or in a capsule.
class Side {
 public:
  Side(const frt_state_s& state, uint32_t slot) noexcept
      : state_(state), base_(slot * state.slot_stride) {
    if (state.rows) blocks_ = state.rows->entries(slot);
  }
  explicit Side(const frt_capsule_s& capsule) noexcept
      : state_(*capsule.state),
        piece_bytes_(capsule.state->store->piece_bytes(capsule.space)),
        pieces_(capsule.held.pieces),
        blocks_(capsule.held.blocks) {}

  struct Place {
    frt_buffer buffer;
    uint64_t offset, bytes;  // as far as it is contiguous
  };
  Place find(const Run& run, uint64_t done) const noexcept {
    const uint64_t left = run.bytes - done;
    const bool in_piece = !pieces_.empty() && (run.block == Run::kFixed || blocks_.empty());
    if (in_piece) {
      const uint64_t at = run.at + done, inside = at % piece_bytes_;
      return {pieces_[at / piece_bytes_], inside, std::min(left, piece_bytes_ - inside)};
    }
    const bool in_block = run.block != Run::kFixed && !blocks_.empty();
    const uint64_t base =
        in_block
            ? state_.pool_offset + static_cast<uint64_t>(blocks_[run.block]) * state_.block_stride
            : base_;
    return {state_.buffer, base + run.offset + done, left};
  }

 private:
  const frt_state_s& state_;
  uint64_t base_ = 0;                   // of the slot
  uint64_t piece_bytes_ = 1;            // of the capsule
  std::span<const frt_buffer> pieces_;  // of a capsule
  std::span<const int32_t> blocks_;     // of rows; empty: they are where the rest is
};

// Gathers copies, and submits when the list is full and at the end.
class Submission {
 public:
  Submission(frt_state_s& state, frt_stream stream) noexcept
      : copies_(state.store->copies()), stream_(stream) {
    copies_.clear();
  }
  void add(const frt_copy& copy) noexcept {
    if (copies_.size() == FRT_COPY_BATCH_MAX) flush();
    copies_.push_back(copy);
  }
  // Every run, or those of the FIXED part alone.
  void transfer(const frt_state_s& state, uint64_t boundary, const Side& from, const Side& to,
                bool rows = true) noexcept {
    for_each_run(state, boundary, [&](const Run& run) {
      if (run.block != Run::kFixed && !rows) return;
      for (uint64_t done = 0; done < run.bytes;) {
        const Side::Place source = from.find(run, done), target = to.find(run, done);
        const uint64_t bytes = std::min(source.bytes, target.bytes);
        add({target.buffer, target.offset, source.buffer, source.offset, bytes});
        done += bytes;
      }
    });
  }
  // Row blocks as they are.
  void transfer_blocks(const frt_state_s& state, std::span<const int32_t> from,
                       std::span<const int32_t> to) noexcept {
    const auto offset = [&](int32_t block) {
      return state.pool_offset + static_cast<uint64_t>(block) * state.block_stride;
    };
    for (std::size_t i = 0; i < from.size(); ++i) {
      add({state.buffer, offset(to[i]), state.buffer, offset(from[i]), state.block_stride});
    }
  }
  frt_status flush() noexcept {
    if (status_ == FRT_OK) {
      status_ = exec::buffer_copy_batch(copies_.data(), copies_.size(), stream_);
      submitted_ = true;
    }
    copies_.clear();
    return status_;
  }
  bool submitted() const noexcept { return submitted_; }

 private:
  std::vector<frt_copy>& copies_;
  frt_stream stream_;
  frt_status status_ = FRT_OK;
  bool submitted_ = false;
};

// ---- checks --------------------------------------------------------------------------------

frt_status check_call(frt_state_s& state, frt_stream stream, const char* call) noexcept {
  frt_context_s& context = *state.context;
  const frt_status status = check_submission(context, stream, call);
  if (status != FRT_OK) return status;
  if (!context.capturing) return FRT_OK;
  return fail(context, FRT_ERR_BAD_STATE, "%s: not allowed inside a record callback", call);
}

frt_status check_slot(frt_state_s& state, uint32_t slot, const char* call) noexcept {
  if (slot < state.slots) return FRT_OK;
  return fail(*state.context, FRT_ERR_OUT_OF_RANGE, "%s: state '%.200s': slot %u of %u", call,
              state.name.c_str(), slot, state.slots);
}

// A slot to copy from.
frt_status check_source(frt_state_s& state, uint32_t slot, uint64_t boundary,
                        const char* call) noexcept {
  if (frt_status status = check_slot(state, slot, call); status != FRT_OK) return status;
  const char* region = nullptr;
  const uint64_t limit = row_limit(state, boundary, &region);
  if (region) {
    return fail(*state.context, FRT_ERR_OUT_OF_RANGE,
                "%s: state '%.100s': boundary %llu, but region '%.100s' has %llu rows", call,
                state.name.c_str(), static_cast<unsigned long long>(boundary), region,
                static_cast<unsigned long long>(limit));
  }
  if (boundary > state.extents[slot]) {
    return fail(*state.context, FRT_ERR_OUT_OF_RANGE,
                "%s: state '%.200s': boundary %llu of slot %u, which has %llu rows; reserve rows "
                "before they are written",
                call, state.name.c_str(), static_cast<unsigned long long>(boundary), slot,
                static_cast<unsigned long long>(state.extents[slot]));
  }
  return FRT_OK;
}

frt_status check_targets(frt_state_s& state, std::span<const uint32_t> slots,
                         const char* call) noexcept {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (frt_status status = check_slot(state, slots[i], call); status != FRT_OK) return status;
    if (std::find(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(i), slots[i]) !=
        slots.begin() + static_cast<std::ptrdiff_t>(i)) {
      return fail(*state.context, FRT_ERR_INVALID_ARGUMENT, "%s: slot %u is named twice", call,
                  slots[i]);
    }
  }
  return FRT_OK;
}

frt_status check_content(const frt_capsule_s& capsule, const char* call) noexcept {
  const Filled filled = capsule.filled.load(std::memory_order_acquire);
  if (filled == Filled::kSubmitted || filled == Filled::kComplete) return FRT_OK;
  return fail(*capsule.state->context, FRT_ERR_NOT_READY,
              "%s: the capsule was not loaded to its end; call load_finish first", call);
}

// ---- use of a capsule ----------------------------------------------------------------------

// Orders `stream` behind the last verb with the capsule.
frt_status begin_use(frt_capsule_s& capsule, frt_stream stream) noexcept {
  if (!capsule.last_stream || capsule.last_stream == stream) return FRT_OK;
  return exec::stream_wait(stream, capsule.held.event);
}

// Puts the capsule's event behind what was submitted. Work that no event covers must be done before
// the capsule's memory goes elsewhere.
frt_status end_use(frt_capsule_s& capsule, frt_stream stream) noexcept {
  const frt_status status = exec::event_record(capsule.held.event, stream);
  if (status == FRT_OK) {
    capsule.last_stream = stream;
  } else {
    exec::stream_sync(stream);
  }
  return status;
}

// ---- row blocks ----------------------------------------------------------------------------

// Room for the rows of `slot`: the whole blocks of `shared`, fresh ones for the rest.
frt_status adopt(frt_state_s& state, uint32_t slot, std::span<const int32_t> shared,
                 uint64_t boundary, frt_stream stream, frt_copy& table) noexcept {
  const frt_status status = adopt_rows(state, slot, shared, boundary, stream, table);
  if (status != FRT_ERR_OUT_OF_MEMORY || !state.store->hand_over_rows(stream)) return status;
  return adopt_rows(state, slot, shared, boundary, stream, table);
}

// The payload `from` into some slots, in one list. `blocks`: the row blocks that it is in; empty:
// it is copied run by run.
frt_status fill_some(frt_state_s& state, const Side& from, std::span<const int32_t> blocks,
                     uint64_t boundary, std::span<const uint32_t> slots,
                     frt_stream stream) noexcept {
  const auto shared = blocks.first(blocks.empty() ? 0 : whole_blocks(state, boundary));
  Submission submission(state, stream);
  frt_status status = FRT_OK;
  std::size_t adopted = 0;
  for (const uint32_t slot : slots) {
    if (state.rows) {
      frt_copy table{};
      status = adopt(state, slot, shared, boundary, stream, table);
      if (status != FRT_OK) break;
      ++adopted;
      submission.add(table);
    }
    submission.transfer(state, boundary, from, Side(state, slot), blocks.empty());
    if (!blocks.empty()) {
      submission.transfer_blocks(state, blocks.subspan(shared.size()),
                                 state.rows->entries(slot).subspan(shared.size()));
    }
  }
  if (status == FRT_OK) status = submission.flush();
  const bool filled = status == FRT_OK;
  if (state.rows) {
    if (submission.submitted()) {
      const frt_status noted = table_submitted(state, stream);
      if (filled) status = noted;
    }
    if (!filled) {
      for (const uint32_t slot : slots.first(adopted)) table_withdrawn(state, slot);
    }
  }
  for (const uint32_t slot : state.rows ? slots.first(adopted) : slots) {
    state.extents[slot] = status == FRT_OK ? boundary : 0;
  }
  return status;
}

frt_status fill_slots(frt_state_s& state, const Side& from, std::span<const int32_t> blocks,
                      uint64_t boundary, std::span<const uint32_t> slots,
                      frt_stream stream) noexcept {
  const std::size_t most = state.rows ? kSlotsAtOnce : slots.size();
  while (!slots.empty()) {
    const auto now = slots.first(std::min(slots.size(), most));
    const frt_status status = fill_some(state, from, blocks, boundary, now, stream);
    if (status != FRT_OK) return status;
    slots = slots.subspan(now.size());
  }
  return FRT_OK;
}

frt_status restore_into(frt_capsule capsule, const uint32_t* slots, uint32_t count,
                        frt_stream stream, const char* call) noexcept {
  if (!capsule || !stream || (!slots && count)) return FRT_ERR_INVALID_ARGUMENT;
  frt_state_s& state = *capsule->state;
  const std::span<const uint32_t> targets(slots, count);
  DriverScope scope(*state.context);
  frt_status status = scope.clash();
  if (status != FRT_OK) return status;
  if ((status = check_call(state, stream, call)) != FRT_OK) return status;
  if ((status = check_targets(state, targets, call)) != FRT_OK) return status;
  if ((status = check_content(*capsule, call)) != FRT_OK) return status;
  if ((status = begin_use(*capsule, stream)) != FRT_OK) return status;
  status =
      fill_slots(state, Side(*capsule), capsule->held.blocks, capsule->boundary, targets, stream);
  // Also behind half of the work: what was submitted must be waited for.
  const frt_status recorded = end_use(*capsule, stream);
  return status == FRT_OK ? recorded : status;
}

}  // namespace

namespace capsules {

// ---- memory --------------------------------------------------------------------------------

frt_status reserve(frt_state state, frt_space space, uint64_t boundary, uint32_t count,
                   frt_error* error) noexcept {
  if (!state) return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsule reserve: a null state");
  return setup(*state->context, "capsule reserve", error, [&] {
    const frt_space where = capsule_space(*state, space, "capsule reserve");
    check_boundary(*state, boundary);
    CapsuleStore& store = *state->store;
    const bool by_reference = rows_by_reference(*state, where);
    const uint64_t bytes = by_reference ? state->fixed_bytes : payload_bytes(*state, boundary);
    store.reserve(where, store.pieces_for(where, bytes) * count);
  });
}

void trim(frt_state state, frt_space space) noexcept {
  if (!state || space >= FRT_SPACE_COUNT) return;
  state->store->trim(space == FRT_SPACE_DEVICE ? state->buffer->space : space);
}

frt_status usage(frt_state state, frt_space space, frt_capsule_usage* usage) noexcept {
  if (!state || space >= FRT_SPACE_COUNT) return FRT_ERR_INVALID_ARGUMENT;
  const CapsuleStore& store = *state->store;
  if (space == FRT_SPACE_DEVICE) space = state->buffer->space;
  frt_capsule_usage full{};
  full.piece_bytes = store.piece_bytes(space);
  full.used_bytes = store.used(space) * full.piece_bytes;
  full.free_bytes = store.idle(space) * full.piece_bytes;
  return fill(usage, full);
}

// ---- verbs ---------------------------------------------------------------------------------

frt_status snapshot(frt_state state, uint32_t slot, uint64_t boundary, frt_space space,
                    frt_stream stream, frt_capsule* capsule, frt_error* error) noexcept {
  if (!state || !stream || !capsule) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "snapshot: a null argument");
  }
  frt_context_s& context = *state->context;
  return setup(context, "snapshot", error, [&] {
    check(check_call(*state, stream, "snapshot"), context.last_error);
    check(check_source(*state, slot, boundary, "snapshot"), context.last_error);
    const frt_space where = capsule_space(*state, space, "snapshot");
    CapsuleOwner made = make_capsule(*state, boundary, where, stream);
    const bool by_reference = rows_by_reference(*state, where);
    if (by_reference) {
      std::vector<int32_t>& blocks = made->held.blocks;
      blocks.resize(state->rows->count(boundary));
      const frt_status status = share_rows(*state, slot, boundary, blocks);
      if (status != FRT_OK) blocks.clear();
      check(status, context.last_error);
    }
    Submission submission(*state, stream);
    submission.transfer(*state, boundary, Side(*state, slot), Side(*made), !by_reference);
    const frt_status status = submission.flush();
    check(end_use(*made, stream), context.last_error);
    check(status, context.last_error);
    *capsule = made.release();
  });
}

frt_status restore(frt_capsule capsule, uint32_t slot, frt_stream stream) noexcept {
  return restore_into(capsule, &slot, 1, stream, "restore");
}

frt_status fork(frt_capsule capsule, const uint32_t* slots, uint32_t count,
                frt_stream stream) noexcept {
  return restore_into(capsule, slots, count, stream, "fork");
}

frt_status fork_slot(frt_state state, uint32_t slot, uint64_t boundary, const uint32_t* slots,
                     uint32_t count, frt_stream stream) noexcept {
  if (!state || !stream || (!slots && count)) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_s& context = *state->context;
  const std::span<const uint32_t> targets(slots, count);
  DriverScope scope(context);
  frt_status status = scope.clash();
  if (status != FRT_OK) return status;
  if ((status = check_call(*state, stream, "fork_slot")) != FRT_OK) return status;
  if ((status = check_source(*state, slot, boundary, "fork_slot")) != FRT_OK) return status;
  if ((status = check_targets(*state, targets, "fork_slot")) != FRT_OK) return status;
  if (std::find(targets.begin(), targets.end(), slot) != targets.end()) {
    return fail(context, FRT_ERR_INVALID_ARGUMENT, "fork_slot: slot %u into itself", slot);
  }
  const Side from(*state, slot);
  if (!state->rows) return fill_slots(*state, from, {}, boundary, targets, stream);
  const auto blocks = std::span(state->store->slot_rows()).first(state->rows->count(boundary));
  if ((status = share_rows(*state, slot, boundary, blocks)) != FRT_OK) return status;
  status = fill_slots(*state, from, blocks, boundary, targets, stream);
  release_rows(*state, blocks);
  return status;
}

frt_status copy(frt_capsule capsule, frt_space space, frt_stream stream, frt_capsule* made,
                frt_error* error) noexcept {
  if (!capsule || !stream || !made) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsule copy: a null argument");
  }
  frt_state_s& state = *capsule->state;
  frt_context_s& context = *state.context;
  return setup(context, "capsule copy", error, [&] {
    check(check_call(state, stream, "capsule copy"), context.last_error);
    check(check_content(*capsule, "capsule copy"), context.last_error);
    const frt_space where = capsule_space(state, space, "capsule copy");
    CapsuleOwner copied = make_capsule(state, capsule->boundary, where, stream);
    if (rows_by_reference(state, where)) take_row_blocks(*copied, stream);
    check(begin_use(*capsule, stream), context.last_error);
    Submission submission(state, stream);
    const bool in_blocks = !capsule->held.blocks.empty() && !copied->held.blocks.empty();
    submission.transfer(state, capsule->boundary, Side(*capsule), Side(*copied), !in_blocks);
    if (in_blocks) {
      submission.transfer_blocks(state, capsule->held.blocks, copied->held.blocks);
    }
    const frt_status status = submission.flush();
    const frt_status used = end_use(*capsule, stream);
    check(end_use(*copied, stream), context.last_error);
    check(used, context.last_error);
    check(status, context.last_error);
    *made = copied.release();
  });
}

}  // namespace capsules
}  // namespace frt::core
