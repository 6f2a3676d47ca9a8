// SPDX-License-Identifier: Apache-2.0
// The verbs that move bytes. Each builds one list of copies in memory that was set aside, and
// submits it: runs of the payload (payload.hpp), cut where a slab of a capsule ends.
//
//   arena    | fixed ......... | keys rows |      | values rows |     |
//               \                    \                  \  runs, in payload order
//   capsule  | fixed | keys | values |                    (cut at slabs)
//            `---- slab -----' `---- slab -----'
//
// With pages a capsule where the arena is holds the pages of its rows by reference: a snapshot
// copies the FIXED part alone. A slot that is restored takes the full pages by reference, too, and
// gets fresh ones for the other rows, which are copied; the change of the device's page table
// travels in the same list.
#include <algorithm>
#include <bit>
#include <span>

#include "capsule/capsule.hpp"
#include "capsule/payload.hpp"

namespace frt::core {
namespace {

// Changes of the page table that one list carries at most: the ring has room for twice as many.
constexpr uint32_t kSlotsAtOnce = TableRing::kPlaces / 2;

// Where a payload is: in a slot, or in a capsule.
class Side {
 public:
  Side(const frt_state_s& state, uint32_t slot) noexcept
      : state_(state), base_(slot * state.slot_stride) {
    if (state.pages) pages_ = state.pages->entries(slot);
  }
  explicit Side(const frt_capsule_s& capsule) noexcept
      : state_(*capsule.state),
        slab_bytes_(capsule.state->store->slab_bytes(capsule.space)),
        slabs_(capsule.held.slabs),
        pages_(capsule.held.pages) {}

  struct Place {
    frt_buffer buffer;
    uint64_t offset, bytes;  // as far as it is contiguous
  };
  Place find(const Run& run, uint64_t done) const noexcept {
    const uint64_t left = run.bytes - done;
    const bool in_page = run.page != Run::kFixed && !pages_.empty();
    if (!slabs_.empty() && !in_page) {
      // The size of several slabs is a power of two (store.cpp): no division for every copy.
      const uint64_t at = run.at + done;
      const uint64_t slab = slabs_.size() > 1 ? at >> std::countr_zero(slab_bytes_) : 0;
      const uint64_t inside = at - slab * slab_bytes_;
      return {slabs_[slab].memory.get(), inside, std::min(left, slab_bytes_ - inside)};
    }
    const uint64_t base = in_page ? page_offset(state_, pages_[run.page]) : base_;
    return {state_.buffer, base + run.offset + done, left};
  }

 private:
  const frt_state_s& state_;
  uint64_t base_ = 0;               // of the slot
  uint64_t slab_bytes_ = 1;         // of the capsule
  std::span<const Slab> slabs_;     // of a capsule
  std::span<const int32_t> pages_;  // of rows; empty: they are where the rest is
};

// Gathers copies, and submits when the list is full and at the end.
class Submission {
 public:
  Submission(frt_state_s& state, frt_stream stream) noexcept
      : state_(state), copies_(state.store->copies()), stream_(stream) {
    copies_.clear();
  }
  void add(const frt_copy& copy) noexcept {
    if (copies_.size() == FRT_COPY_BATCH_MAX) flush();
    copies_.push_back(copy);
  }
  void transfer(uint64_t boundary, const Side& from, const Side& to) noexcept {
    for_each_run(state_, boundary, [&](const Run& run) { transfer(run, from, to); });
  }
  void transfer_fixed(const Side& from, const Side& to) noexcept {
    if (state_.fixed_bytes) transfer(fixed_run(state_), from, to);
  }
  // Pages as they are.
  void transfer_pages(std::span<const int32_t> from, std::span<const int32_t> to) noexcept {
    const frt_buffer arena = state_.buffer;
    for (std::size_t i = 0; i < from.size(); ++i) {
      add({arena, page_offset(state_, to[i]), arena, page_offset(state_, from[i]),
           state_.page_stride});
    }
  }
  frt_status flush() noexcept {
    if (status_ == FRT_OK) {
      status_ = state_.exec().buffer_copy_batch(copies_.data(), copies_.size(), stream_);
      submitted_ = true;
    }
    copies_.clear();
    return status_;
  }
  bool submitted() const noexcept { return submitted_; }

 private:
  void transfer(const Run& run, const Side& from, const Side& to) noexcept {
    for (uint64_t done = 0; done < run.bytes;) {
      const Side::Place source = from.find(run, done), target = to.find(run, done);
      const uint64_t bytes = std::min(source.bytes, target.bytes);
      add({target.buffer, target.offset, source.buffer, source.offset, bytes});
      done += bytes;
    }
  }

  const frt_state_s& state_;
  std::vector<frt_copy>& copies_;
  frt_stream stream_;
  frt_status status_ = FRT_OK;
  bool submitted_ = false;
};

// ---- checks --------------------------------------------------------------------------------

// A slot to copy from.
frt_status check_source(frt_state_s& state, uint32_t slot, uint64_t boundary,
                        const char* call) noexcept {
  if (frt_status status = check_slot(state, slot, call); status != FRT_OK) return status;
  if (frt_status status = check_boundary(state, boundary, call); status != FRT_OK) return status;
  if (boundary > state.extents[slot]) {
    return call_failed(
        state.context, FRT_ERR_OUT_OF_RANGE,
        "%s: state '%.200s': boundary %llu of slot %u, which has %llu rows; reserve rows "
        "before they are written",
        call, state.name.c_str(), Rows{boundary}, slot, Rows{state.extents[slot]});
  }
  return FRT_OK;
}

frt_status check_targets(frt_state_s& state, std::span<const uint32_t> slots,
                         const char* call) noexcept {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (frt_status status = check_slot(state, slots[i], call); status != FRT_OK) return status;
    if (std::find(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(i), slots[i]) !=
        slots.begin() + static_cast<std::ptrdiff_t>(i)) {
      return call_failed(state.context, FRT_ERR_INVALID_ARGUMENT, "%s: slot %u is named twice",
                         call, slots[i]);
    }
  }
  return FRT_OK;
}

frt_status check_content(const frt_capsule_s& capsule, const char* call) noexcept {
  const Filled filled = capsule.filled.load(std::memory_order_acquire);
  if (filled == Filled::kSubmitted || filled == Filled::kComplete) return FRT_OK;
  return call_failed(capsule.state->context, FRT_ERR_NOT_READY,
                     "%s: the capsule was not loaded to its end; call load_finish first", call);
}

// ---- use of a capsule ----------------------------------------------------------------------

// Orders `stream` behind the last verb with the capsule.
frt_status begin_use(frt_capsule_s& capsule, frt_stream stream) noexcept {
  if (!capsule.last_stream || capsule.last_stream == stream) return FRT_OK;
  return capsule.state->exec().stream_wait(stream, capsule.held.event);
}

// Puts the capsule's event behind what was submitted. Work that no event covers must be done before
// the capsule's memory goes elsewhere.
frt_status end_use(frt_capsule_s& capsule, frt_stream stream) noexcept {
  const frt_exec_v1& exec = capsule.state->exec();
  const frt_status status = exec.event_record(capsule.held.event, stream);
  if (status == FRT_OK) {
    capsule.last_stream = stream;
  } else {
    exec.stream_sync(stream);
  }
  return status;
}

// ---- slots ---------------------------------------------------------------------------------

// The payload `from` into some slots, in one list. `pages`: those that it is in; empty: it is
// copied run by run. `origin`: what the slots remember.
frt_status fill_some(frt_state_s& state, const Side& from, std::span<const int32_t> pages,
                     const BuildOrigin& origin, uint64_t boundary, std::span<const uint32_t> slots,
                     frt_stream stream, const char* call) noexcept {
  const auto shared = pages.first(pages.empty() ? 0 : full_pages(state, boundary));
  Submission submission(state, stream);
  frt_status status = FRT_OK;
  std::size_t adopted = 0;
  for (const uint32_t slot : slots) {
    if (state.pages) {
      frt_copy table{};
      status = adopt_pages(state, slot, shared, boundary, stream, table, call);
      if (status != FRT_OK) break;
      ++adopted;
      submission.add(table);
    }
    if (pages.empty()) {
      submission.transfer(boundary, from, Side(state, slot));
      continue;
    }
    submission.transfer_fixed(from, Side(state, slot));
    submission.transfer_pages(pages.subspan(shared.size()),
                              state.pages->entries(slot).subspan(shared.size()));
  }
  if (status == FRT_OK) status = submission.flush();
  const bool filled = status == FRT_OK;
  if (state.pages) {
    if (submission.submitted()) {
      const frt_status noted = state.ring.submitted(stream);
      if (filled) status = noted;
    }
    if (!filled) {
      for (const uint32_t slot : slots.first(adopted)) table_withdrawn(state, slot);
    }
  }
  for (const uint32_t slot : state.pages ? slots.first(adopted) : slots) {
    state.extents[slot] = status == FRT_OK ? boundary : 0;
    state.origins[slot] = origin;
  }
  return status;
}

frt_status fill_slots(frt_state_s& state, const Side& from, std::span<const int32_t> pages,
                      const BuildOrigin& origin, uint64_t boundary, std::span<const uint32_t> slots,
                      frt_stream stream, const char* call) noexcept {
  const std::size_t most = state.pages ? kSlotsAtOnce : slots.size();
  while (!slots.empty()) {
    const auto now = slots.first(std::min(slots.size(), most));
    const frt_status status = fill_some(state, from, pages, origin, boundary, now, stream, call);
    if (status != FRT_OK) return status;
    slots = slots.subspan(now.size());
  }
  return FRT_OK;
}

frt_status restore_into(frt_capsule capsule, const uint32_t* slots, uint32_t count,
                        frt_stream stream, const char* name) noexcept {
  if (!capsule || !stream || (!slots && count)) return FRT_ERR_INVALID_ARGUMENT;
  frt_state_s& state = *capsule->state;
  const std::span<const uint32_t> targets(slots, count);
  const ContextCall call(state.context, stream, name);
  frt_status status = call.status();
  if (status != FRT_OK) return status;
  if ((status = check_targets(state, targets, name)) != FRT_OK) return status;
  if ((status = check_content(*capsule, name)) != FRT_OK) return status;
  if ((status = begin_use(*capsule, stream)) != FRT_OK) return status;
  status = fill_slots(state, Side(*capsule), capsule->held.pages, continuation(capsule->origin),
                      capsule->boundary, targets, stream, name);
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
  return guard(error, [&] {
    const ContextCall call(state->context, nullptr, "capsule reserve");
    call.check();
    const frt_space where = capsule_space(*state, space, "capsule reserve");
    state->check(check_boundary(*state, boundary, "capsule reserve"));
    CapsuleStore& store = *state->store;
    const bool by_reference = holds_pages(*state, where);
    const uint64_t bytes = by_reference ? state->fixed_bytes : payload_bytes(*state, boundary);
    store.reserve(where, store.slabs_for(where, bytes) * count, count);
  });
}

void trim(frt_state state, frt_space space) noexcept {
  if (!state || space >= FRT_SPACE_COUNT) return;
  state->store->trim(space == FRT_SPACE_DEVICE ? state->space() : space);
}

frt_status usage(frt_state state, frt_space space, frt_capsule_usage* usage) noexcept {
  if (!state || space >= FRT_SPACE_COUNT) return FRT_ERR_INVALID_ARGUMENT;
  const CapsuleStore& store = *state->store;
  if (space == FRT_SPACE_DEVICE) space = state->space();
  frt_capsule_usage full{};
  full.slab_bytes = store.slab_bytes(space);
  full.used_bytes = store.used(space) * full.slab_bytes;
  full.free_bytes = store.idle(space) * full.slab_bytes;
  return fill(usage, full);
}

// ---- verbs ---------------------------------------------------------------------------------

frt_status snapshot(frt_state state, uint32_t slot, uint64_t boundary, frt_space space,
                    frt_stream stream, frt_capsule* capsule, frt_error* error) noexcept {
  if (!state || !stream || !capsule) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "snapshot: a null argument");
  }
  return guard(error, [&] {
    const ContextCall call(state->context, stream, "snapshot");
    call.check();
    state->check(check_source(*state, slot, boundary, "snapshot"));
    const frt_space where = capsule_space(*state, space, "snapshot");
    CapsuleOwner made = make_capsule(*state, boundary, where, stream);
    made->origin = state->origins[slot];
    Submission submission(*state, stream);
    if (holds_pages(*state, where)) {
      std::vector<int32_t>& pages = made->held.pages;
      pages.resize(state->pages->count(boundary));
      const frt_status status = share_pages(*state, slot, boundary, pages);
      if (status != FRT_OK) pages.clear();
      state->check(status);
      submission.transfer_fixed(Side(*state, slot), Side(*made));
    } else {
      submission.transfer(boundary, Side(*state, slot), Side(*made));
    }
    const frt_status status = submission.flush();
    state->check(end_use(*made, stream));
    state->check(status);
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
  const std::span<const uint32_t> targets(slots, count);
  constexpr const char* name = "fork_slot";
  const ContextCall call(state->context, stream, name);
  frt_status status = call.status();
  if (status != FRT_OK) return status;
  if ((status = check_source(*state, slot, boundary, name)) != FRT_OK) return status;
  if ((status = check_targets(*state, targets, name)) != FRT_OK) return status;
  if (std::find(targets.begin(), targets.end(), slot) != targets.end()) {
    return call_failed(state->context, FRT_ERR_INVALID_ARGUMENT, "fork_slot: slot %u into itself",
                       slot);
  }
  const Side from(*state, slot);
  const BuildOrigin& origin = state->origins[slot];
  if (!state->pages) return fill_slots(*state, from, {}, origin, boundary, targets, stream, name);
  const auto pages = std::span(state->store->slot_pages()).first(state->pages->count(boundary));
  if ((status = share_pages(*state, slot, boundary, pages)) != FRT_OK) return status;
  status = fill_slots(*state, from, pages, origin, boundary, targets, stream, name);
  state->pages->release(pages);
  return status;
}

frt_status copy(frt_capsule capsule, frt_space space, frt_stream stream, frt_capsule* made,
                frt_error* error) noexcept {
  if (!capsule || !stream || !made) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsule copy: a null argument");
  }
  frt_state_s& state = *capsule->state;
  return guard(error, [&] {
    const ContextCall call(state.context, stream, "capsule copy");
    call.check();
    state.check(check_content(*capsule, "capsule copy"));
    const frt_space where = capsule_space(state, space, "capsule copy");
    CapsuleOwner copied = make_capsule(state, capsule->boundary, where, stream);
    copied->origin = capsule->origin;
    if (holds_pages(state, where)) take_pages(*copied, stream);
    state.check(begin_use(*capsule, stream));
    Submission submission(state, stream);
    if (!capsule->held.pages.empty() && !copied->held.pages.empty()) {
      submission.transfer_fixed(Side(*capsule), Side(*copied));
      submission.transfer_pages(capsule->held.pages, copied->held.pages);
    } else {
      submission.transfer(capsule->boundary, Side(*capsule), Side(*copied));
    }
    const frt_status status = submission.flush();
    const frt_status used = end_use(*capsule, stream);
    state.check(end_use(*copied, stream));
    state.check(used);
    state.check(status);
    *made = copied.release();
  });
}

}  // namespace capsules
}  // namespace frt::core
