// SPDX-License-Identifier: Apache-2.0
// state.hpp - what stands behind frt_state, and what capsules do with its pages.
//
// A capsule of a slot is a copy of the FIXED range and, for a state with pages, references to the
// pages of its rows. To restore it: adopt_pages() gives the slot the full pages by reference and
// fresh ones for the rest; the caller copies the rest in the same batch as the FIXED range and the
// table, and calls ring.submitted(). What a capsule holds it gives back in stream order behind all
// work that reads the pages.
#pragma once

#include <frt/capsule.h>

#include <cstdint>
#include <frt/core/context_call.hpp>
#include <frt/exec.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capsule/identity.hpp"
#include "capsule/other_build.hpp"
#include "capsule/page_table.hpp"
#include "capsule/table_ring.hpp"

namespace frt::core {
class CapsuleStore;
}

// Counted: a capsule keeps its arena alive, so that releasing the model first is harmless.
struct frt_state_s {
  struct Region {
    std::string name;
    uint32_t kind;
    frt_dtype dtype;
    uint64_t row_bytes, max_rows;
    int64_t row_lag;
    uint64_t offset;  // in the slot; ROWS with pages: in the page
  };

  frt::Context context;
  std::string name;
  uint32_t references = 1;  // the owner and capsules
  uint32_t slots = 0;
  uint64_t slot_stride = 0;
  uint64_t fixed_bytes = 0;
  std::vector<Region> regions;  // FIXED ones first

  uint64_t max_rows = 0;  // of a slot: of the region that has fewest
  // (slots) How many rows are the slot's own: those it was restored with and those announced by
  // state_reserve since. What lies behind them is of whoever had the memory before.
  std::vector<uint64_t> extents;
  std::vector<frt::core::BuildOrigin> origins;  // (slots) which other build computed a part of it
  frt::core::LoadedOrigins loaded_origins;      // holds what `origins` and capsules may drop

  frt::Buffer buffer;  // the arena

  // With pages. A page is free as soon as a slot gives it back, though work on that stream may
  // still read it. Whoever takes pages on another stream waits for it.
  std::optional<frt::core::PageTable> pages;
  uint64_t pool_offset = 0;  // page 0, from the start of the arena
  uint64_t page_stride = 0;  // bytes; without pages slot_stride
  frt::Buffer table;         // i32 (slots, slot_pages), device
  frt::core::TableRing ring;
  frt::core::KeptStream freed_on;  // none: none was given back
  frt::Event freed;

  std::unique_ptr<frt::core::CapsuleStore> store;  // memory of capsules
  frt::core::CapsuleIdentity identity;             // fingerprint of their files

  frt_state_s();
  ~frt_state_s();

  const frt_exec_v1& exec() const noexcept { return context.table(); }
  frt_space space() const noexcept { return buffer.space(); }
  // Throws what a call on the context returned, with the text of its last error.  [driver]
  void check(frt_status status) const { context.checked(status, {}); }
};

namespace frt::core {

using Rows = unsigned long long;  // as %llu takes a number of rows

// Fills in everything but buffers, from a layout that need not be right. Returns the bytes of the
// arena. Throws FRT_ERR_INVALID_ARGUMENT, FRT_ERR_EXISTS, FRT_ERR_OUT_OF_RANGE (layout.cpp).
uint64_t lay_out(frt_state_s& state, const frt_capsule_layout& layout);

// Gives one reference back; the last one frees the arena.  [setup]
void drop_state(frt_state state) noexcept;

// FRT_OK, or that the state has no such slot.  [hot]
inline frt_status check_slot(const frt_state_s& state, uint32_t slot, const char* call) noexcept {
  if (slot < state.slots) return FRT_OK;
  return call_failed(state.context, FRT_ERR_OUT_OF_RANGE, "%s: state '%.200s': slot %u of %u", call,
                     state.name.c_str(), slot, state.slots);
}

// Where a page is, in bytes from the start of the arena.  [any]
inline uint64_t page_offset(const frt_state_s& state, int32_t page) noexcept {
  return state.pool_offset + static_cast<uint64_t>(page) * state.page_stride;
}

// `stream`, or, if it is null, this thread goes on behind `event`.  [driver]
inline frt_status wait_for(const frt_state_s& state, const frt::Event& event,
                           frt_stream stream) noexcept {
  return stream ? state.exec().stream_wait(stream, event) : state.exec().event_sync(event);
}

// References to the pages of the slot's first `boundary` rows; those rows are not written any more.
// FRT_ERR_OUT_OF_RANGE: the slot has fewer.  [hot]
frt_status share_pages(frt_state_s& state, uint32_t slot, uint64_t boundary,
                       std::span<int32_t> pages) noexcept;

// Pages that belong to no slot (rows that come from elsewhere), for work that `stream` gets from
// now on, or, if it is null, for the host, which waits. FRT_ERR_OUT_OF_MEMORY: too few are free.
// [hot]
frt_status take_pages(frt_state_s& state, std::span<int32_t> pages, frt_stream stream) noexcept;

// Work that `stream` holds may read pages that are given back now.  [hot]
frt_status pages_freed_on(frt_state_s& state, frt_stream stream) noexcept;

// The slot's rows before `boundary` become those of `shared` (pages that are held: the first ones,
// at most pages->full(boundary)) and fresh ones. `table` is the copy that tells the device; it must
// be submitted with the copies into the fresh pages, or before them, and then ring.submitted() or
// table_withdrawn() be called. FRT_ERR_OUT_OF_MEMORY: too few are free; nothing has changed.  [hot]
frt_status adopt_pages(frt_state_s& state, uint32_t slot, std::span<const int32_t> shared,
                       uint64_t boundary, frt_stream stream, frt_copy& table,
                       const char* call) noexcept;
// After a submission that failed: the slot is left without rows.  [hot]
void table_withdrawn(frt_state_s& state, uint32_t slot) noexcept;

}  // namespace frt::core
