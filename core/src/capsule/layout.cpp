// SPDX-License-Identifier: Apache-2.0
// The layout of an arena, one buffer, as frt/capsule.h says. Without pages:
//
//   slot 0                                                       slot 1
//   | FIXED a | FIXED b |..| ROWS c        | ROWS d        |.....| FIXED a | ...
//   0         ^256      ^   ^256            ^256            ^ slot_stride, multiple of 256
//             `- fixed_bytes: cleared with one fill
//
// With pages, and a table (slots, slot_pages) in a buffer of its own:
//
//   slot 0              slot 1              page 0            page 1
//   | FIXED a | b |..   | FIXED a | b |..   | ROWS c | d |..  | ROWS c | d |..
//   0                   ^ slot_stride       ^ pool_offset     ^ + page_stride
//
// Sizes are multiplied and added with overflow checks: a layout comes from a plugin.
#include <algorithm>
#include <bit>
#include <frt/contracts.hpp>
#include <limits>
#include <string_view>
#include <unordered_set>

#include "capsule/state.hpp"

namespace frt::core {
namespace {

constexpr uint64_t kAlignment = 256;
// Some regions per layer of a model are usual; each is copied with its name.
constexpr uint32_t kMostRegions = 1u << 20;

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

// Where the next region begins, behind `bytes` at `offset`.
uint64_t checked_append(uint64_t offset, uint64_t bytes, const std::string& what) {
  const uint64_t end = checked_add(offset, bytes, what);
  return checked_add(end, kAlignment - 1, what) / kAlignment * kAlignment;
}

std::string describe(const frt_state_s& state, const frt_region& region) {
  return "state '" + state.name + "', region '" + (region.name ? region.name : "") + "'";
}

void check_region(const frt_state_s& state, const frt_region& region) {
  const std::string what = describe(state, region);
  if (!region.name || !*region.name) throw Error(FRT_ERR_INVALID_ARGUMENT, what + ": no name");
  if (region.kind != FRT_REGION_FIXED && region.kind != FRT_REGION_ROWS) {
    throw Error(FRT_ERR_UNSUPPORTED, what + ": unknown kind " + std::to_string(region.kind));
  }
  if (region.dtype >= FRT_DTYPE_COUNT) {
    throw Error(FRT_ERR_UNSUPPORTED,
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
  // A region whose rows run ahead of the boundary has those rows.
  const uint64_t lead = region.row_lag < 0 ? -static_cast<uint64_t>(region.row_lag) : 0;
  if (lead > region.max_rows) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, what + ": row_lag is " + std::to_string(region.row_lag) +
                                              ", which is ahead by more than its max_rows of " +
                                              std::to_string(region.max_rows));
  }
}

// Appends the regions of one kind from `end` on; returns where they end.
uint64_t lay_out_kind(frt_state_s& state, std::span<const frt_region> regions, uint32_t kind,
                      uint64_t end, uint64_t page_rows) {
  for (const frt_region& region : regions) {
    if (region.kind != kind) continue;
    const std::string what = describe(state, region);
    state.regions.push_back(
        {region.name, kind, region.dtype, region.row_bytes, region.max_rows, region.row_lag, end});
    const uint64_t rows = kind == FRT_REGION_ROWS && page_rows > 0 ? page_rows : region.max_rows;
    end = checked_append(end, checked_multiply(region.row_bytes, rows, what), what);
  }
  return end;
}

// Fills `pages` and what belongs to it. Returns the bytes of the arena.
uint64_t lay_out_pages(frt_state_s& state, const frt_capsule_layout& layout,
                       std::span<const frt_region> regions) {
  const std::string what = "state '" + state.name + "'";
  const uint64_t page_rows = layout.page_rows;
  if (!std::has_single_bit(page_rows)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, what + ": page_rows is " + std::to_string(page_rows) +
                                              "; it must be a power of two, or 0");
  }
  uint64_t most_rows = 0, lag = 0;
  for (const frt_region& region : regions) {
    if (region.kind != FRT_REGION_ROWS) continue;
    if (region.row_lag < 0) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, describe(state, region) + ": row_lag is " +
                                                std::to_string(region.row_lag) +
                                                "; with page_rows it must not be negative");
    }
    most_rows = std::max(most_rows, region.max_rows);
    lag = std::max(lag, static_cast<uint64_t>(region.row_lag));
  }
  if (most_rows == 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                what + ": page_rows is " + std::to_string(page_rows) + ", but it has no ROWS");
  }
  state.page_stride = lay_out_kind(state, regions, FRT_REGION_ROWS, 0, page_rows);
  state.slot_stride = state.fixed_bytes;
  state.pool_offset = checked_multiply(state.slot_stride, state.slots, what);
  const uint64_t slot_pages = (most_rows - 1) / page_rows + 1;
  const uint64_t total =
      checked_add(checked_multiply(slot_pages, state.slots, what), layout.spare_pages, what);
  const uint64_t bytes =
      checked_add(state.pool_offset, checked_multiply(state.page_stride, total, what), what);
  if (total > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    throw Error(FRT_ERR_OUT_OF_RANGE, what + ": " + std::to_string(total) +
                                          " pages are more than a table can number; raise "
                                          "page_rows");
  }
  state.pages.emplace(state.slots, static_cast<uint32_t>(slot_pages), static_cast<uint32_t>(total),
                      layout.page_rows, lag);
  return bytes;
}

}  // namespace

uint64_t lay_out(frt_state_s& state, const frt_capsule_layout& given) {
  const std::string what = "state '" + state.name + "'";
  const auto layout = read_table<frt_capsule_layout>(&given, what);
  if (layout.region_count == 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, what + ": a layout without regions");
  }
  if (layout.region_count > kMostRegions) {
    throw Error(FRT_ERR_OUT_OF_RANGE, what + ": " + std::to_string(layout.region_count) +
                                          " regions; at most " + std::to_string(kMostRegions) +
                                          " are taken");
  }
  const std::span<const frt_region> regions(layout.regions, layout.region_count);
  state.max_rows = std::numeric_limits<uint64_t>::max();
  std::unordered_set<std::string_view> names;
  for (const frt_region& region : regions) {
    check_region(state, region);
    if (!names.insert(region.name).second) {
      throw Error(FRT_ERR_EXISTS, describe(state, region) + ": the name is used twice");
    }
    if (region.kind == FRT_REGION_ROWS) state.max_rows = std::min(state.max_rows, region.max_rows);
  }
  state.fixed_bytes = lay_out_kind(state, regions, FRT_REGION_FIXED, 0, 0);
  if (layout.page_rows > 0) return lay_out_pages(state, layout, regions);
  state.slot_stride = lay_out_kind(state, regions, FRT_REGION_ROWS, state.fixed_bytes, 0);
  state.page_stride = state.slot_stride;
  return checked_multiply(state.slot_stride, state.slots, what);
}

}  // namespace frt::core
