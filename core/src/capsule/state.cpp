// SPDX-License-Identifier: Apache-2.0
// State arenas: made, cleared, their rows reserved; and the pages of slots as capsules use them.
#include "capsule/state.hpp"

#include <algorithm>
#include <frt/core/exec_table.hpp>
#include <frt/core/state.hpp>
#include <utility>

#include "capsule/store.hpp"

frt_state_s::frt_state_s() = default;
frt_state_s::~frt_state_s() = default;

namespace frt::core {
namespace {

constexpr uint8_t kNoPages = 0xFF;  // every byte of an entry -1

// Bytes of a full slot.
uint64_t largest_capsule(const frt_state_s& state) {
  return state.pages ? state.fixed_bytes + state.pages->slot_pages() * state.page_stride
                     : state.slot_stride;
}

// Makes every byte of a buffer `value` before anybody sees it.
void fill_new(const frt_state_s& state, const Buffer& buffer, uint8_t value, const Stream& stream) {
  state.check(state.exec().buffer_fill(buffer, 0, buffer.bytes(), value, stream));
  stream.sync();
}

frt_status state_create(frt_context context, const frt_capsule_layout* layout, uint32_t slots,
                        const char* name, frt_state* state, frt_error* error) noexcept {
  if (!context || !layout || !state) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "state_create: a null argument");
  }
  return guard(error, [&] {
    auto made = std::make_unique<frt_state_s>();
    made->context = Context(exec_table(), context);
    made->name = name ? name : "";
    made->slots = slots;
    if (slots == 0) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "state '" + made->name + "': 0 slots; at least 1 is needed");
    }
    const uint64_t bytes = lay_out(*made, *layout);
    made->extents.resize(slots);
    made->origins.resize(slots);
    // Where the host reads it in place, too, if there is such memory.
    const bool shared = (made->context.info().device->flags & FRT_DEVICE_SHARED_MEMORY) != 0;
    made->buffer =
        made->context.alloc(shared ? FRT_SPACE_SHARED : FRT_SPACE_DEVICE, bytes, made->name);
    const Stream stream = made->context.create_stream(made->name);
    fill_new(*made, made->buffer, 0, stream);
    if (made->pages) {
      const uint64_t entries = uint64_t{slots} * made->pages->slot_pages();
      made->table =
          made->context.alloc(FRT_SPACE_DEVICE, entries * sizeof(int32_t), made->name + ".pages");
      fill_new(*made, made->table, kNoPages, stream);
      made->ring.create(made->context, made->pages->slot_pages(), made->name + ".pages.ring");
      made->freed = made->context.create_event();
    }
    made->store = std::make_unique<CapsuleStore>(*made, largest_capsule(*made));
    *state = made.release();
  });
}

void state_release(frt_state state) noexcept {
  if (state) drop_state(state);
}

frt_status state_info(frt_state state, frt_state_info* info) noexcept {
  if (!state) return FRT_ERR_INVALID_ARGUMENT;
  frt_state_info full{};
  full.slots = state->slots;
  full.buffer = state->buffer;
  full.pointer = state->buffer.pointer();
  full.slot_stride = state->slot_stride;
  full.fixed_bytes = state->fixed_bytes;
  full.page_stride = state->page_stride;
  if (const auto& pages = state->pages) {
    full.page_table = state->table.pointer<const int32_t>();
    full.page_rows = pages->page_rows();
    full.slot_pages = pages->slot_pages();
    full.total_pages = pages->total();
    full.free_pages = pages->free();
    full.shared_pages = pages->shared();
  }
  return fill(info, full);
}

frt_status state_region(frt_state state, const char* name, uint64_t* offset,
                        frt_error* error) noexcept {
  if (!state || !name || !offset) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "state_region: a null argument");
  }
  return guard(error, [&] {
    for (const auto& region : state->regions) {
      if (region.name != name) continue;
      const bool in_page = state->pages && region.kind == FRT_REGION_ROWS;
      *offset = region.offset + (in_page ? state->pool_offset : 0);
      return;
    }
    throw Error(FRT_ERR_NOT_FOUND, "state '" + state->name + "' has no region '" + name + "'");
  });
}

// FRT_OK, or why `slot` cannot be changed now with `stream`.
frt_status check_change(const frt_state_s& state, uint32_t slot, frt_stream stream,
                        const char* call) noexcept {
  if (const frt_status status = check_slot(state, slot, call); status != FRT_OK) return status;
  // Before anything changes: a stream that is kept outlives the call which the table refuses.
  if (const frt_status status = check_stream(state.context, stream, call); status != FRT_OK) {
    return status;
  }
  // What is recorded runs again and again; who holds which page changes once.
  if (!state.pages || !is_recording(state.context)) return FRT_OK;
  return call_failed(state.context, FRT_ERR_BAD_STATE,
                     "%s: state '%.200s': not inside a record callback; do it before the replay",
                     call, state.name.c_str());
}

frt_status too_few_pages(const frt_state_s& state, uint32_t slot, const char* call,
                         uint64_t rows) noexcept {
  const PageTable& pages = *state.pages;
  return call_failed(
      state.context, FRT_ERR_OUT_OF_MEMORY,
      "%s: state '%.200s': %llu rows of slot %u need %u pages of %u rows; it has %u, and %u of %u "
      "are free; release capsules, clear slots, or make the state with more spare_pages",
      call, state.name.c_str(), Rows{rows}, slot, pages.count(rows), pages.page_rows(),
      pages.held(slot), pages.free(), pages.total());
}

uint64_t table_offset(const frt_state_s& state, uint32_t slot, uint32_t index) noexcept {
  return (uint64_t{slot} * state.pages->slot_pages() + index) * sizeof(int32_t);
}

// `stream`, or, if it is null, this thread goes on behind the work that may read pages which were
// given back.
frt_status wait_for_freed_pages(const frt_state_s& state, frt_stream stream) noexcept {
  const frt_stream freed_on = state.freed_on.get();
  if (!freed_on || freed_on == stream) return FRT_OK;
  const frt_status status = state.exec().event_record(state.freed, freed_on);
  return status == FRT_OK ? wait_for(state, state.freed, stream) : status;
}

// Runs `take`, and once more with pages whose free is deferred, before it says that there are too
// few.
template <class Take>
PageTable::Result attempt(frt_state_s& state, frt_stream stream, Take&& take) noexcept {
  const PageTable::Result result = take();
  const bool retry = result == PageTable::Result::kTooFew && state.store->reclaim_pages(stream);
  return retry ? take() : result;
}

// The copy of entries [begin, end) of a slot to the device.
frt_status stage(frt_state_s& state, uint32_t slot, PageTable::Change change,
                 frt_copy& copy) noexcept {
  const auto entries = state.pages->entries(slot).subspan(change.begin, change.end - change.begin);
  copy.target = state.table;
  copy.target_offset = table_offset(state, slot, change.begin);
  return state.ring.stage(entries, copy);
}

frt_status state_clear(frt_state state, uint32_t slot, frt_stream stream) noexcept {
  if (!state || !stream) return FRT_ERR_INVALID_ARGUMENT;
  if (frt_status status = check_change(*state, slot, stream, "state_clear"); status != FRT_OK) {
    return status;
  }
  const frt_exec_v1& exec = state->exec();
  if (state->pages) {
    frt_status status = pages_freed_on(*state, stream);
    if (status != FRT_OK) return status;
    const uint64_t bytes = uint64_t{state->pages->slot_pages()} * sizeof(int32_t);
    status = exec.buffer_fill(state->table, table_offset(*state, slot, 0), bytes, kNoPages, stream);
    if (status != FRT_OK) return status;
    state->pages->drop(slot, 0);
  }
  state->extents[slot] = 0;
  state->origins[slot].reset();
  if (state->fixed_bytes == 0) return FRT_OK;
  return exec.buffer_fill(state->buffer, slot * state->slot_stride, state->fixed_bytes, 0, stream);
}

frt_status state_reserve(frt_state state, uint32_t slot, uint64_t first, uint64_t end,
                         frt_stream stream) noexcept {
  if (!state || !stream) return FRT_ERR_INVALID_ARGUMENT;
  constexpr const char* kCall = "state_reserve";
  if (frt_status status = check_change(*state, slot, stream, kCall); status != FRT_OK)
    return status;
  const frt_context context = state->context;
  const char* name = state->name.c_str();
  if (first > end || end > state->max_rows) {
    return call_failed(context, FRT_ERR_OUT_OF_RANGE,
                       "%s: state '%.200s': rows %llu .. %llu of slot %u; it has room for %llu",
                       kCall, name, Rows{first}, Rows{end}, slot, Rows{state->max_rows});
  }
  uint64_t& extent = state->extents[slot];
  if (first > extent) {
    return call_failed(context, FRT_ERR_OUT_OF_RANGE,
                       "%s: state '%.200s': rows from %llu of slot %u, which has %llu; the rows "
                       "between would be those of an earlier sequence: go on where the slot ends",
                       kCall, name, Rows{first}, slot, Rows{extent});
  }
  const uint64_t before = extent, after = std::max(extent, end);
  if (!state->pages) {
    extent = after;
    return FRT_OK;
  }
  PageTable::Change change;
  const auto result =
      attempt(*state, stream, [&] { return state->pages->reserve(slot, first, end, change); });
  if (result == PageTable::Result::kTooFew) return too_few_pages(*state, slot, kCall, end);
  if (result == PageTable::Result::kHeld) {
    return call_failed(context, FRT_ERR_BAD_STATE,
                       "%s: state '%.200s': rows from %llu of slot %u on are held by a capsule or "
                       "another slot; restore a capsule of that boundary, or clear the slot",
                       kCall, name, Rows{first}, slot);
  }
  extent = after;
  if (change.begin == change.end) return FRT_OK;
  frt_copy copy{};
  frt_status status = wait_for_freed_pages(*state, stream);
  if (status == FRT_OK) status = stage(*state, slot, change, copy);
  if (status == FRT_OK) status = state->exec().buffer_copy_batch(&copy, 1, stream);
  if (status == FRT_OK) return state->ring.submitted(stream);
  state->ring.withdraw();
  state->pages->drop(slot, change.begin);
  extent = before;
  return status;
}

constexpr frt_state_v1 kTable = {
    sizeof(frt_state_v1), 0,           state_create,  state_release, state_info,
    state_region,         state_clear, state_reserve,
};

}  // namespace

const frt_state_v1* state_table() noexcept {
  return &kTable;
}

void drop_state(frt_state state) noexcept {
  if (--state->references == 0) delete state;
}

frt_status share_pages(frt_state_s& state, uint32_t slot, uint64_t boundary,
                       std::span<int32_t> pages) noexcept {
  const uint32_t held = state.pages->held(slot), page_rows = state.pages->page_rows();
  if (boundary > uint64_t{held} * page_rows) {
    return call_failed(state.context, FRT_ERR_OUT_OF_RANGE,
                       "state '%.200s': boundary %llu of slot %u, which has %u pages of %u rows",
                       state.name.c_str(), Rows{boundary}, slot, held, page_rows);
  }
  state.pages->share(slot, boundary, pages.data());
  return FRT_OK;
}

frt_status take_pages(frt_state_s& state, std::span<int32_t> pages, frt_stream stream) noexcept {
  if (frt_status status = wait_for_freed_pages(state, stream); status != FRT_OK) return status;
  const auto result = attempt(state, stream, [&] { return state.pages->take(pages); });
  if (result == PageTable::Result::kDone) return FRT_OK;
  return call_failed(state.context, FRT_ERR_OUT_OF_MEMORY,
                     "state '%.200s': %zu pages of %u rows are needed, %u of %u are free; release "
                     "capsules, clear slots, or make the state with more spare_pages",
                     state.name.c_str(), pages.size(), state.pages->page_rows(),
                     state.pages->free(), state.pages->total());
}

frt_status pages_freed_on(frt_state_s& state, frt_stream stream) noexcept {
  if (state.freed_on.get() == stream) return FRT_OK;
  // Streams on which pages were given back form a chain: the last is behind all of them.
  if (frt_status status = wait_for_freed_pages(state, stream); status != FRT_OK) return status;
  state.freed_on.keep(stream);
  return FRT_OK;
}

frt_status adopt_pages(frt_state_s& state, uint32_t slot, std::span<const int32_t> shared,
                       uint64_t boundary, frt_stream stream, frt_copy& table,
                       const char* call) noexcept {
  if (frt_status status = pages_freed_on(state, stream); status != FRT_OK) return status;
  const auto result =
      attempt(state, stream, [&] { return state.pages->adopt(slot, shared, boundary); });
  if (result != PageTable::Result::kDone) {
    return too_few_pages(state, slot, call, boundary);
  }
  state.extents[slot] = 0;  // until the copies are submitted
  const frt_status status = stage(state, slot, {0, state.pages->slot_pages()}, table);
  if (status != FRT_OK) state.pages->drop(slot, 0);
  return status;
}

void table_withdrawn(frt_state_s& state, uint32_t slot) noexcept {
  state.ring.withdraw();
  state.pages->drop(slot, 0);
}

}  // namespace frt::core
