// SPDX-License-Identifier: Apache-2.0
// payload.hpp - which bytes of a slot a capsule consists of, and in which order (frt/capsule.h,
// "Payload"). Everything here is computed from the arena's own layout, never from a file.
#pragma once

#include <algorithm>
#include <cstdint>

#include "capsule/state.hpp"

namespace frt::core {

// A contiguous part of the payload that is contiguous in the arena, too.
struct Run {
  static constexpr uint32_t kFixed = UINT32_MAX;

  uint64_t at;     // in the payload
  uint64_t bytes;  // > 0
  // Where it is in the arena: kFixed: in the slot's FIXED range; else in the slot's page of this
  // number, or, without pages, in the slot itself.
  uint32_t page;
  uint64_t offset;  // there
};

// The valid rows of a ROWS region at `boundary`.  [hot]
uint64_t valid_rows(const frt_state_s::Region& region, uint64_t boundary) noexcept;

// FRT_OK, or that a region has fewer rows than `boundary` needs: FRT_ERR_OUT_OF_RANGE.  [hot]
frt_status check_boundary(const frt_state_s& state, uint64_t boundary, const char* call) noexcept;

// Pages that the payload holds in full; 0 without pages.  [hot]
inline uint64_t full_pages(const frt_state_s& state, uint64_t boundary) noexcept {
  return state.pages ? state.pages->full(boundary) : 0;
}

// The FIXED part, where it is not empty.  [hot]
inline Run fixed_run(const frt_state_s& state) noexcept {
  return {0, state.fixed_bytes, Run::kFixed, 0};
}

// Calls visit(Run) for every run of a boundary that is possible, in payload order.  [hot]
template <class Visit>
void for_each_run(const frt_state_s& state, uint64_t boundary, Visit&& visit) {
  if (state.fixed_bytes) visit(fixed_run(state));
  uint64_t at = state.fixed_bytes;
  const uint64_t full = full_pages(state, boundary);
  for (uint32_t page = 0; page < full; ++page, at += state.page_stride) {
    visit(Run{at, state.page_stride, page, 0});
  }
  for (const frt_state_s::Region& region : state.regions) {
    if (region.kind != FRT_REGION_ROWS) continue;
    const uint64_t end = valid_rows(region, boundary);
    const uint64_t page_rows = state.pages ? state.pages->page_rows() : std::max<uint64_t>(end, 1);
    for (uint64_t row = full * page_rows; row < end;) {
      const uint64_t inside = row % page_rows, rows = std::min(end - row, page_rows - inside);
      visit(Run{at, rows * region.row_bytes, static_cast<uint32_t>(row / page_rows),
                region.offset + inside * region.row_bytes});
      at += rows * region.row_bytes;
      row += rows;
    }
  }
}

// Bytes of the payload at a boundary that is possible.  [hot]
uint64_t payload_bytes(const frt_state_s& state, uint64_t boundary) noexcept;

}  // namespace frt::core
