// SPDX-License-Identifier: Apache-2.0
// state.hpp - what stands behind frt_state, and what capsules do with its rows.
//
// A capsule of a slot is a copy of the FIXED range and, for a state with blocks, the blocks of its
// rows by reference. To restore it: adopt_rows() gives the slot the whole blocks by reference and a
// fresh one for the rest; the caller copies the rest's valid rows (from the capsule's last block to
// rows.entries(slot)[same index]) in the same batch as the FIXED range and the table, and calls
// table_submitted(). What a capsule holds it gives back with release_rows(), in stream order behind
// all work that reads the blocks.
#pragma once

#include <frt/capsule.h>
#include <frt/exec.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capsule/identity.hpp"
#include "capsule/row_blocks.hpp"
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
    uint64_t offset;  // in the slot; ROWS with blocks: in the block
  };

  frt_context context = nullptr;
  frt_buffer buffer = nullptr;
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

  // With blocks.
  std::optional<frt::core::RowBlocks> rows;
  uint64_t pool_offset = 0;    // block 0, from the start of the arena
  uint64_t block_stride = 0;   // bytes; without blocks slot_stride
  frt_buffer table = nullptr;  // i32 (slots, slot_blocks), device
  frt::core::TableRing ring;
  // Blocks are free as soon as a slot gives them back, though work on that stream may still read
  // them. Whoever takes blocks on another stream waits for it.
  frt_stream freed_on = nullptr;  // counted; null: none was given back
  frt_event freed = nullptr;

  std::unique_ptr<frt::core::CapsuleStore> store;  // memory of capsules
  frt::core::CapsuleIdentity identity;             // fingerprint of their files

  frt_state_s();
  ~frt_state_s();
};

namespace frt::core {

// Gives one reference back; the last one frees the arena.  [setup]
void drop_state(frt_state state) noexcept;

// Where a block's row `row` of a region is, in bytes from the start of the arena.
inline uint64_t row_offset(const frt_state_s& state, const frt_state_s::Region& region,
                           int32_t block, uint64_t row) noexcept {
  return state.pool_offset + static_cast<uint64_t>(block) * state.block_stride + region.offset +
         row * region.row_bytes;
}

// The blocks of the slot's first `boundary` rows, held from now on; their rows before `boundary`
// are not written any more. FRT_ERR_OUT_OF_RANGE: the slot has fewer. With blocks.  [hot]
frt_status share_rows(frt_state_s& state, uint32_t slot, uint64_t boundary,
                      std::span<int32_t> blocks) noexcept;

// Blocks that belong to no slot, held from now on (rows that come from elsewhere), for work that
// `stream` gets from now on, or, if it is null, for the host, which waits. FRT_ERR_OUT_OF_MEMORY:
// too few are free.  [hot]
frt_status take_rows(frt_state_s& state, std::span<int32_t> blocks, frt_stream stream) noexcept;

// Gives back blocks that nothing submitted uses, or that are used behind rows_freed_on().  [hot]
void release_rows(frt_state_s& state, std::span<const int32_t> blocks) noexcept;
// Work that `stream` holds may read blocks that are given back now.  [hot]
frt_status rows_freed_on(frt_state_s& state, frt_stream stream) noexcept;

// The slot's rows before `boundary` become those of `shared` (blocks that are held: the first ones,
// at most rows->whole(boundary)) and fresh ones. `table` is the copy that tells the device; it must
// be submitted with the copies into the fresh blocks, or before them, and then table_submitted() or
// table_withdrawn() be called. FRT_ERR_OUT_OF_MEMORY: too few are free; nothing has changed.  [hot]
frt_status adopt_rows(frt_state_s& state, uint32_t slot, std::span<const int32_t> shared,
                      uint64_t boundary, frt_stream stream, frt_copy& table) noexcept;
frt_status table_submitted(frt_state_s& state, frt_stream stream) noexcept;
// After a submission that failed: the slot is left without rows.  [hot]
void table_withdrawn(frt_state_s& state, uint32_t slot) noexcept;

}  // namespace frt::core
