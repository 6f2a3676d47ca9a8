// SPDX-License-Identifier: Apache-2.0
// frt/row_blocks.hpp - the checks of a backend's operators on frt_row_blocks (frt/ops/attention.h).
// Header-only.  [setup]
#pragma once

#include <frt/ops/attention.h>
#include <frt/checks.hpp>

#include <cstdint>
#include <string>

namespace frt {

// Of an operator on keys and values of kv_dtype with max_rows positions.
inline void check_row_blocks(const Checks& check, const frt_row_blocks& blocks, int32_t max_rows,
                             frt_dtype kv_dtype) {
  if (!blocks.table) return;
  check.at_least("blocks.rows", blocks.rows, FRT_ROW_BLOCKS_LEAST);
  check.require((blocks.rows & (blocks.rows - 1)) == 0, "blocks.rows",
                "is " + std::to_string(blocks.rows) + ", which is no power of two");
  check.positive("blocks.slot_blocks", blocks.slot_blocks);
  check.require(static_cast<int64_t>(blocks.slot_blocks) * blocks.rows >= max_rows,
                "blocks.slot_blocks",
                "is " + std::to_string(blocks.slot_blocks) + ": too few blocks of " +
                    std::to_string(blocks.rows) + " rows for max_rows " + std::to_string(max_rows));
  check.positive("blocks.stride", blocks.stride);
  check.require(blocks.stride % (dtype_bits(kv_dtype) / 8) == 0, "blocks.stride",
                "is no multiple of an element's bytes");
}

}  // namespace frt
