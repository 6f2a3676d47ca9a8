// SPDX-License-Identifier: Apache-2.0
// blas_parts.hpp - in how many parts cuBLASLt adds the sum over the inputs of a product.
//
// The number decides the bits of the result, so it follows from the shape alone, never from a
// timing. Few rows or few outputs do not fill the chip: there a sum in parts is up to 1.8 times as
// fast. Measured on an H200: notes/2026-11-28-parts-of-a-sum.md.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace frt::cuda {

// Above so many rows and outputs every sum is in one part.
inline constexpr int32_t kFewRowsOrOutputs = 64;

constexpr bool may_have_parts(int32_t rows, int32_t outputs) {
  return rows <= kFewRowsOrOutputs || outputs <= kFewRowsOrOutputs;
}

// 1, 2, 4 or 8. `rows`: of the class of rows that share an algorithm.
constexpr int32_t blas_parts(int32_t rows, int32_t outputs, int32_t inputs) {
  constexpr int64_t kTileRows = 32, kTileOutputs = 64;  // of a block that would be alone on its SM
  constexpr int64_t kBlocks = 128;                      // that fill the chip
  constexpr int64_t kMostParts = 8, kLeastInputs = 2048, kLeastInputsOfPart = 512;
  if (!may_have_parts(rows, outputs) || inputs < kLeastInputs) return 1;
  const int64_t tiles =
      ((rows + kTileRows - 1) / kTileRows) * ((outputs + kTileOutputs - 1) / kTileOutputs);
  const int64_t parts =
      std::min({kMostParts, kBlocks / std::max<int64_t>(tiles, 1), inputs / kLeastInputsOfPart});
  return static_cast<int32_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(parts, 1))));
}

}  // namespace frt::cuda
