// SPDX-License-Identifier: Apache-2.0
// State arenas: one device buffer, laid out as frt/capsule.h says. Without blocks:
//
//   slot 0                                                       slot 1
//   | FIXED a | FIXED b |..| ROWS c        | ROWS d        |.....| FIXED a | ...
//   0         ^256      ^   ^256            ^256            ^ slot_stride, multiple of 256
//             `- fixed_bytes: cleared with one fill
//
// With blocks, and a table (slots, slot_blocks) in a buffer of its own:
//
//   slot 0              slot 1              block 0           block 1
//   | FIXED a | b |..   | FIXED a | b |..   | ROWS c | d |..  | ROWS c | d |..
//   0                   ^ slot_stride       ^ pool_offset     ^ + block_stride
//
// Sizes are multiplied and added with overflow checks: a layout comes from a plugin.
#include "capsule/state.hpp"

#include <algorithm>
#include <bit>
#include <frt/contracts.hpp>
#include <frt/core/state.hpp>
#include <limits>
#include <utility>

#include "capsule/store.hpp"
#include "exec/functions.hpp"
#include "exec/objects.hpp"

frt_state_s::frt_state_s() = default;

frt_state_s::~frt_state_s() {
  store.reset();
  frt::core::exec::event_release(freed);
  if (freed_on) frt::core::drop_stream(freed_on);
  frt::core::exec::buffer_release(table);
  frt::core::exec::buffer_release(buffer);
}

namespace frt::core {
namespace {

constexpr uint64_t kAlignment = 256;

uint64_t checked_multiply(uint64_t a, uint64_t b, const std::string& what) {
  uint64_t result;
  if (__builtin_mul_overflow(a, b, &result)) {
    throw Error(FRT_ERR_OUT_OF_RANGE, what + ": its size overflows 64 bits");
  }
  return result;
}

uint64_t checked_add(uint64_t a, uint64_t b, const std::string& what) {
  uint64_t result;
  if (__builtin_add_overflow(a, b, &result)) {
    throw Error(FRT_ERR_OUT_OF_RANGE, what + ": its size overflows 64 bits");
  }
  return result;
}

uint64_t checked_append(uint64_t offset, uint64_t bytes, const std::string& what) {
  uint64_t end;
  if (__builtin_add_overflow(offset, bytes, &end) ||
      end > std::numeric_limits<uint64_t>::max() - kAlignment) {
    throw Error(FRT_ERR_OUT_OF_RANGE, what + ": the slot's size overflows 64 bits");
  }
  return (end + kAlignment - 1) / kAlignment * kAlignment;
}

std::string describe(const frt_state_s& state, const frt_region& region) {
  return "state '" + state.name + "', region '" + (region.name ? region.name : "") + "'";
}

void check_region(const frt_state_s& state, const frt_region& region) {
  const std::string what = describe(state, region);
  if (!region.name || !*region.name) throw Error(FRT_ERR_INVALID_ARGUMENT, what + ": no name");
  if (region.kind != FRT_REGION_FIXED && region.kind != FRT_REGION_ROWS) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, what + ": unknown kind " + std::to_string(region.kind));
  }
  if (region.dtype >= FRT_DTYPE_COUNT) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                what + ": unknown element type " + std::to_string(region.dtype));
  }
  if (region.row_bytes == 0 || region.max_rows == 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, what + ": row_bytes and max_rows must be above 0");
  }
  if (region.kind == FRT_REGION_FIXED && (region.max_rows != 1 || region.row_lag != 0)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                what + ": a FIXED region has max_rows 1 and row_lag 0, found " +
                    std::to_string(region.max_rows) + " and " + std::to_string(region.row_lag));
  }
}

// Appends the regions of one kind from `end` on; returns where they end.
uint64_t lay_out_kind(frt_state_s& state, std::span<const frt_region> regions, uint32_t kind,
                      uint64_t end, uint64_t block_rows) {
  for (const frt_region& region : regions) {
    if (region.kind != kind) continue;
    for (const auto& other : state.regions) {
      if (other.name == region.name) {
        throw Error(FRT_ERR_EXISTS, describe(state, region) + ": the name is used twice");
      }
    }
    const std::string what = describe(state, region);
    state.regions.push_back(
        {region.name, kind, region.dtype, region.row_bytes, region.max_rows, region.row_lag, end});
    const uint64_t rows = kind == FRT_REGION_ROWS && block_rows > 0 ? block_rows : region.max_rows;
    end = checked_append(end, checked_multiply(region.row_bytes, rows, what), what);
  }
  return end;
}

// Fills `rows` and what belongs to it. Returns the bytes of the arena.
uint64_t lay_out_blocks(frt_state_s& state, const frt_capsule_layout& layout,
                        std::span<const frt_region> regions) {
  const std::string what = "state '" + state.name + "'";
  const uint64_t block_rows = layout.block_rows;
  if (!std::has_single_bit(block_rows)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, what + ": block_rows is " + std::to_string(block_rows) +
                                              "; it must be a power of two, or 0");
  }
  uint64_t most_rows = 0, lag = 0;
  for (const frt_region& region : regions) {
    if (region.kind != FRT_REGION_ROWS) continue;
    if (region.row_lag < 0) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, describe(state, region) + ": row_lag is " +
                                                std::to_string(region.row_lag) +
                                                "; with blocks it must not be negative");
    }
    most_rows = std::max(most_rows, region.max_rows);
    lag = std::max(lag, static_cast<uint64_t>(region.row_lag));
  }
  if (most_rows == 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                what + ": block_rows is " + std::to_string(block_rows) + ", but it has no ROWS");
  }
  state.block_stride = lay_out_kind(state, regions, FRT_REGION_ROWS, 0, block_rows);
  state.slot_stride = state.fixed_bytes;
  state.pool_offset = checked_multiply(state.slot_stride, state.slots, what);
  const uint64_t slot_blocks = (most_rows - 1) / block_rows + 1;
  const uint64_t total =
      checked_add(checked_multiply(slot_blocks, state.slots, what), layout.spare_blocks, what);
  const uint64_t bytes =
      checked_add(state.pool_offset, checked_multiply(state.block_stride, total, what), what);
  if (total > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(FRT_ERR_OUT_OF_RANGE, what + ": " + std::to_string(total) +
                                          " blocks are more than a table can number; raise "
                                          "block_rows");
  }
  state.rows.emplace(state.slots, static_cast<uint32_t>(slot_blocks), static_cast<uint32_t>(total),
                     layout.block_rows, lag);
  return bytes;
}

// Fills in everything but buffers. Returns the bytes of the arena.
uint64_t lay_out(frt_state_s& state, const frt_capsule_layout& given) {
  const std::string what = "state '" + state.name + "'";
  const auto layout = read_table<frt_capsule_layout>(&given, what);
  if (layout.region_count == 0 || !layout.regions) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, what + ": a layout without regions");
  }
  const std::span<const frt_region> regions(layout.regions, layout.region_count);
  state.max_rows = std::numeric_limits<uint64_t>::max();
  for (const frt_region& region : regions) {
    check_region(state, region);
    if (region.kind == FRT_REGION_ROWS) state.max_rows = std::min(state.max_rows, region.max_rows);
  }
  state.fixed_bytes = lay_out_kind(state, regions, FRT_REGION_FIXED, 0, 0);
  if (layout.block_rows > 0) {
    return lay_out_blocks(state, layout, regions);
  }
  state.slot_stride = lay_out_kind(state, regions, FRT_REGION_ROWS, state.fixed_bytes, 0);
  state.block_stride = state.slot_stride;
  return checked_multiply(state.slot_stride, state.slots, what);
}

// Allocates a buffer whose bytes are all `value` before anybody sees it.
void allocate(frt_context context, frt_space space, uint64_t bytes, const std::string& name,
              uint8_t value, frt_buffer& buffer) {
  frt_error reason{};
  check(exec::buffer_alloc(context, space, bytes, name.c_str(), &buffer, &reason), reason);
  frt_stream_s& stream = internal_stream(*context);
  check(exec::buffer_fill(buffer, 0, buffer->bytes, value, &stream), context->last_error);
  check(exec::stream_sync(&stream), context->last_error);
}

// Bytes of a full slot.
uint64_t largest_capsule(const frt_state_s& state) {
  return state.rows ? state.fixed_bytes + state.rows->slot_blocks() * state.block_stride
                    : state.slot_stride;
}

constexpr uint8_t kNoBlocks = 0xFF;  // every byte of an entry -1

frt_status state_create(frt_context context, const frt_capsule_layout* layout, uint32_t slots,
                        const char* name, frt_state* state, frt_error* error) noexcept {
  if (!context || !layout || !state) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "state_create: a null argument");
  }
  return guard(error, [&] {
    auto made = std::make_unique<frt_state_s>();
    made->context = context;
    made->name = name ? name : "";
    made->slots = slots;
    if (slots == 0) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "state '" + made->name + "': 0 slots; at least 1 is needed");
    }
    const uint64_t bytes = lay_out(*made, *layout);
    made->extents.resize(slots);
    // Where the host reads it in place, too, if there is such memory.
    const frt_space space = shares_memory(*context) ? FRT_SPACE_SHARED : FRT_SPACE_DEVICE;
    allocate(context, space, bytes, made->name, 0, made->buffer);
    if (made->rows) {
      const uint64_t entries = uint64_t{slots} * made->rows->slot_blocks();
      allocate(context, FRT_SPACE_DEVICE, entries * sizeof(int32_t), made->name + ".blocks",
               kNoBlocks, made->table);
      made->ring.create(context, made->rows->slot_blocks(), made->name + ".blocks.ring");
      frt_error reason{};
      check(exec::event_create(context, 0, &made->freed, &reason), reason);
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
  full.pointer = state->buffer->pointer;
  full.slot_stride = state->slot_stride;
  full.fixed_bytes = state->fixed_bytes;
  full.block_stride = state->block_stride;
  if (const auto& rows = state->rows) {
    full.blocks = reinterpret_cast<const int32_t*>(state->table->pointer);
    full.block_rows = rows->block_rows();
    full.slot_blocks = rows->slot_blocks();
    full.total_blocks = rows->total();
    full.free_blocks = rows->free();
    full.shared_blocks = rows->shared();
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
      const bool in_block = state->rows && region.kind == FRT_REGION_ROWS;
      *offset = region.offset + (in_block ? state->pool_offset : 0);
      return;
    }
    throw Error(FRT_ERR_NOT_FOUND, "state '" + state->name + "' has no region '" + name + "'");
  });
}

// FRT_OK, or why `slot` cannot be changed in the order of `stream`.
frt_status check_slot(const frt_state_s& state, uint32_t slot, frt_stream stream,
                      const char* call) noexcept {
  if (slot >= state.slots) {
    return fail(*state.context, FRT_ERR_OUT_OF_RANGE, "%s: state '%.200s': slot %u of %u", call,
                state.name.c_str(), slot, state.slots);
  }
  // What is recorded runs again and again; who holds which block changes once.
  if (state.rows && stream->capturing) {
    return fail(*state.context, FRT_ERR_BAD_STATE,
                "%s: state '%.200s': not inside a record callback; do it before the replay", call,
                state.name.c_str());
  }
  return FRT_OK;
}

frt_status too_few(const frt_state_s& state, uint32_t slot, const char* call,
                   uint64_t rows) noexcept {
  return fail(*state.context, FRT_ERR_OUT_OF_MEMORY,
              "%s: state '%.200s': %llu rows of slot %u need %u blocks of %u rows; it has %u, and "
              "%u of %u are free; release capsules, clear slots, or make the state with more spare "
              "blocks",
              call, state.name.c_str(), static_cast<unsigned long long>(rows), slot,
              state.rows->count(rows), state.rows->block_rows(), state.rows->held(slot),
              state.rows->free(), state.rows->total());
}

uint64_t table_offset(const frt_state_s& state, uint32_t slot, uint32_t index) noexcept {
  return (uint64_t{slot} * state.rows->slot_blocks() + index) * sizeof(int32_t);
}

// `stream`, or, if it is null, this thread goes on behind the work that may read blocks which were
// given back.
frt_status wait_for_freed_rows(const frt_state_s& state, frt_stream stream) noexcept {
  if (!state.freed_on || state.freed_on == stream) return FRT_OK;
  const frt_status status = exec::event_record(state.freed, state.freed_on);
  if (status != FRT_OK) return status;
  return stream ? exec::stream_wait(stream, state.freed) : exec::event_sync(state.freed);
}

// The copy of entries [begin, end) of a slot to the device.
frt_status stage(frt_state_s& state, uint32_t slot, RowBlocks::Change change,
                 frt_copy& copy) noexcept {
  const auto entries = state.rows->entries(slot).subspan(change.begin, change.end - change.begin);
  copy.target = state.table;
  copy.target_offset = table_offset(state, slot, change.begin);
  return state.ring.stage(entries, copy);
}

frt_status state_clear(frt_state state, uint32_t slot, frt_stream stream) noexcept {
  if (!state || !stream) return FRT_ERR_INVALID_ARGUMENT;
  if (const frt_status status = check_slot(*state, slot, stream, "state_clear"); status != FRT_OK) {
    return status;
  }
  state->extents[slot] = 0;
  if (state->rows) {
    frt_status status = rows_freed_on(*state, stream);
    if (status != FRT_OK) return status;
    state->rows->drop(slot, 0);
    const uint64_t bytes = uint64_t{state->rows->slot_blocks()} * sizeof(int32_t);
    status =
        exec::buffer_fill(state->table, table_offset(*state, slot, 0), bytes, kNoBlocks, stream);
    if (status != FRT_OK) return status;
  }
  if (state->fixed_bytes == 0) return FRT_OK;
  return exec::buffer_fill(state->buffer, slot * state->slot_stride, state->fixed_bytes, 0, stream);
}

frt_status state_reserve(frt_state state, uint32_t slot, uint64_t first, uint64_t end,
                         frt_stream stream) noexcept {
  if (!state || !stream) return FRT_ERR_INVALID_ARGUMENT;
  constexpr const char* kCall = "state_reserve";
  if (const frt_status status = check_slot(*state, slot, stream, kCall); status != FRT_OK) {
    return status;
  }
  if (first > end || end > state->max_rows) {
    return fail(*state->context, FRT_ERR_OUT_OF_RANGE,
                "%s: state '%.200s': rows %llu .. %llu of slot %u; it has room for %llu", kCall,
                state->name.c_str(), static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(end), slot,
                static_cast<unsigned long long>(state->max_rows));
  }
  uint64_t& extent = state->extents[slot];
  if (first > extent) {
    return fail(*state->context, FRT_ERR_OUT_OF_RANGE,
                "%s: state '%.200s': rows from %llu of slot %u, which has %llu; the rows between "
                "would be those of an earlier sequence: go on where the slot ends",
                kCall, state->name.c_str(), static_cast<unsigned long long>(first), slot,
                static_cast<unsigned long long>(extent));
  }
  if (!state->rows) {
    extent = std::max(extent, end);
    return FRT_OK;
  }
  RowBlocks::Change change;
  auto result = state->rows->reserve(slot, first, end, change);
  if (result == RowBlocks::Result::kTooFew && state->store->hand_over_rows(stream)) {
    result = state->rows->reserve(slot, first, end, change);
  }
  switch (result) {
    case RowBlocks::Result::kTooFew:
      return too_few(*state, slot, kCall, end);
    case RowBlocks::Result::kHeld:
      return fail(
          *state->context, FRT_ERR_BAD_STATE,
          "%s: state '%.200s': rows from %llu of slot %u on are held by a capsule or another "
          "slot; restore a capsule of that boundary, or clear the slot",
          kCall, state->name.c_str(), static_cast<unsigned long long>(first), slot);
    case RowBlocks::Result::kDone:
      break;
  }
  const uint64_t before = std::exchange(extent, std::max(extent, end));
  if (change.begin == change.end) return FRT_OK;
  frt_copy copy{};
  frt_status status = wait_for_freed_rows(*state, stream);
  if (status == FRT_OK) status = stage(*state, slot, change, copy);
  if (status == FRT_OK) status = exec::buffer_copy_batch(&copy, 1, stream);
  if (status == FRT_OK) return state->ring.submitted(stream);
  state->ring.withdraw();
  state->rows->drop(slot, change.begin);
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

frt_status share_rows(frt_state_s& state, uint32_t slot, uint64_t boundary,
                      std::span<int32_t> blocks) noexcept {
  if (boundary > uint64_t{state.rows->held(slot)} * state.rows->block_rows()) {
    return fail(*state.context, FRT_ERR_OUT_OF_RANGE,
                "state '%.200s': boundary %llu of slot %u, which has %u blocks of %u rows",
                state.name.c_str(), static_cast<unsigned long long>(boundary), slot,
                state.rows->held(slot), state.rows->block_rows());
  }
  state.rows->share(slot, boundary, blocks.data());
  return FRT_OK;
}

frt_status take_rows(frt_state_s& state, std::span<int32_t> blocks, frt_stream stream) noexcept {
  if (const frt_status status = wait_for_freed_rows(state, stream); status != FRT_OK) return status;
  if (state.rows->take(blocks)) return FRT_OK;
  return fail(*state.context, FRT_ERR_OUT_OF_MEMORY,
              "state '%.200s': %zu blocks of %u rows are needed, %u of %u are free; release "
              "capsules, clear slots, or make the state with more spare blocks",
              state.name.c_str(), blocks.size(), state.rows->block_rows(), state.rows->free(),
              state.rows->total());
}

void release_rows(frt_state_s& state, std::span<const int32_t> blocks) noexcept {
  state.rows->release(blocks);
}

frt_status rows_freed_on(frt_state_s& state, frt_stream stream) noexcept {
  if (state.freed_on == stream) return FRT_OK;
  // Streams on which blocks were given back form a chain: the last is behind all of them.
  if (const frt_status status = wait_for_freed_rows(state, stream); status != FRT_OK) return status;
  retain(*stream);
  if (frt_stream before = std::exchange(state.freed_on, stream)) drop_stream(before);
  return FRT_OK;
}

frt_status adopt_rows(frt_state_s& state, uint32_t slot, std::span<const int32_t> shared,
                      uint64_t boundary, frt_stream stream, frt_copy& table) noexcept {
  if (const frt_status status = rows_freed_on(state, stream); status != FRT_OK) return status;
  if (state.rows->adopt(slot, shared, boundary) != RowBlocks::Result::kDone) {
    return too_few(state, slot, "adopt_rows", boundary);
  }
  state.extents[slot] = 0;  // until the copies are submitted
  const frt_status status = stage(state, slot, {0, state.rows->slot_blocks()}, table);
  if (status != FRT_OK) state.rows->drop(slot, 0);
  return status;
}

frt_status table_submitted(frt_state_s& state, frt_stream stream) noexcept {
  return state.ring.submitted(stream);
}

void table_withdrawn(frt_state_s& state, uint32_t slot) noexcept {
  state.ring.withdraw();
  state.rows->drop(slot, 0);
}

}  // namespace frt::core
