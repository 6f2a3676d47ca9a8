// SPDX-License-Identifier: Apache-2.0
// active.hpp - how much there is to do, read when the work runs.
#pragma once

#include <frt/ops/sequences.h>

#include <cstdint>

namespace frt::cpu {

// The rows to compute: all, or what `row_count` says when the work runs.  [hot]
inline int64_t active_rows(int32_t rows, const int32_t* row_count) noexcept {
  if (!row_count || *row_count >= rows) return rows;
  return *row_count < 0 ? 0 : *row_count;
}

// The valid rows of sequence `b`.  [hot]
inline int32_t active_length(const frt_sequences& sequences, int64_t b) noexcept {
  const int32_t length = sequences.length[b];
  return length < 0 ? 0 : length > sequences.rows ? sequences.rows : length;
}

}  // namespace frt::cpu
