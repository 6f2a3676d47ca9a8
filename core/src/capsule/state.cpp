// SPDX-License-Identifier: Apache-2.0
// State arenas: one device buffer of N slots, laid out as frt/capsule.h says:
//
//   slot 0                                                       slot 1
//   | FIXED a | FIXED b |..| ROWS c        | ROWS d        |.....| FIXED a | ...
//   0         ^256      ^   ^256            ^256            ^ slot_stride, multiple of 256
//             `- fixed_bytes: cleared with one fill
//
// Sizes are multiplied and added with overflow checks: a layout comes from a plugin.
#include <frt/core/state.hpp>

#include <limits>

#include "exec/functions.hpp"
#include "exec/objects.hpp"

struct frt_state_s {
  struct Region {
    std::string name;
    uint64_t offset;  // in the slot, bytes
  };

  frt_context context = nullptr;
  frt_buffer buffer = nullptr;
  std::string name;
  uint32_t slots = 0;
  uint64_t slot_stride = 0;
  uint64_t fixed_bytes = 0;
  std::vector<Region> regions;
};

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

// Fills regions, fixed_bytes and slot_stride.
void lay_out(frt_state_s& state, const frt_capsule_layout& layout) {
  if (!FRT_HAS(&layout, frt_capsule_layout, regions)) {
    throw Error(FRT_ERR_ABI, "state '" + state.name + "': the layout has " +
                                 std::to_string(layout.struct_size) + " bytes, expected " +
                                 std::to_string(sizeof(frt_capsule_layout)));
  }
  if (layout.region_count == 0 || !layout.regions) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "state '" + state.name + "': a layout without regions");
  }
  const std::span<const frt_region> regions(layout.regions, layout.region_count);
  for (const frt_region& region : regions) check_region(state, region);
  uint64_t end = 0;
  for (uint32_t kind : {FRT_REGION_FIXED, FRT_REGION_ROWS}) {
    for (const frt_region& region : regions) {
      if (region.kind != kind) continue;
      for (const auto& other : state.regions) {
        if (other.name == region.name) {
          throw Error(FRT_ERR_EXISTS, describe(state, region) + ": the name is used twice");
        }
      }
      const std::string what = describe(state, region);
      state.regions.push_back({region.name, end});
      end = checked_append(end, checked_multiply(region.row_bytes, region.max_rows, what), what);
    }
    if (kind == FRT_REGION_FIXED) state.fixed_bytes = end;
  }
  state.slot_stride = end;
}

// Zeroes the whole arena before anybody sees it.
void zero(frt_context_s& context, frt_buffer_s& buffer) {
  frt_stream_s& stream = internal_stream(context);
  check(exec::buffer_fill(&buffer, 0, buffer.bytes, 0, &stream), context.last_error);
  check(exec::stream_sync(&stream), context.last_error);
}

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
    lay_out(*made, *layout);
    const uint64_t bytes = checked_multiply(made->slot_stride, slots, "state '" + made->name + "'");
    frt_error reason{};
    check(exec::buffer_alloc(context, FRT_SPACE_DEVICE, bytes, made->name.c_str(), &made->buffer,
                             &reason),
          reason);
    try {
      zero(*context, *made->buffer);
    } catch (...) {
      exec::buffer_release(made->buffer);
      throw;
    }
    *state = made.release();
  });
}

void state_release(frt_state state) noexcept {
  if (!state) return;
  exec::buffer_release(state->buffer);
  delete state;
}

frt_status state_info(frt_state state, frt_state_info* info) noexcept {
  if (!state) return FRT_ERR_INVALID_ARGUMENT;
  frt_state_info full{};
  full.slots = state->slots;
  full.buffer = state->buffer;
  full.pointer = state->buffer->pointer;
  full.slot_stride = state->slot_stride;
  full.fixed_bytes = state->fixed_bytes;
  return copy_out(info, full);
}

frt_status state_region(frt_state state, const char* name, uint64_t* offset,
                        frt_error* error) noexcept {
  if (!state || !name || !offset) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "state_region: a null argument");
  }
  return guard(error, [&] {
    for (const auto& region : state->regions) {
      if (region.name != name) continue;
      *offset = region.offset;
      return;
    }
    throw Error(FRT_ERR_NOT_FOUND, "state '" + state->name + "' has no region '" + name + "'");
  });
}

frt_status state_clear(frt_state state, uint32_t slot, frt_stream stream) noexcept {
  if (!state || !stream) return FRT_ERR_INVALID_ARGUMENT;
  if (slot >= state->slots) {
    return fail(*state->context, FRT_ERR_OUT_OF_RANGE, "state '%.200s': slot %u of %u",
                state->name.c_str(), slot, state->slots);
  }
  if (state->fixed_bytes == 0) return FRT_OK;
  return exec::buffer_fill(state->buffer, slot * state->slot_stride, state->fixed_bytes, 0, stream);
}

constexpr frt_state_v1 kTable = {
    sizeof(frt_state_v1), 0, state_create, state_release, state_info, state_region, state_clear,
};

}  // namespace

const frt_state_v1* state_table() noexcept {
  return &kTable;
}

}  // namespace frt::core
