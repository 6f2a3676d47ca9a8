// SPDX-License-Identifier: Apache-2.0
// weight.hpp - what the products know of a packed weight matrix.
//
// A weight is value(row, col) * local(row, col) * row_scale(row). `local` is the block's or group's
// scale, which changes along a row and is therefore applied to each value; row_scale is constant
// along a row and applied once, to the finished sum. So only FP8_BLOCK and NVFP4 have a local one.
#pragma once

#include <frt/kernels.h>
#include <frt/ops/moe.h>

#include <cstdint>

#include "../checks.hpp"
#include "../numbers.hpp"

namespace frt::cpu {

// Values per scale of NVFP4.
inline constexpr int64_t kFp4Group = 16;

// Bytes of `cols` packed values (for F4 an even number).  [any]
inline int64_t packed_bytes(frt_weight_format format, int64_t cols) noexcept {
  switch (format) {
    case FRT_WEIGHT_F32:
      return cols * 4;
    case FRT_WEIGHT_BF16:
      return cols * 2;
    case FRT_WEIGHT_NVFP4:
      return cols / 2;
    default:
      return cols;
  }
}

// The first value of `row`.  [any]
inline const uint8_t* weight_row(const frt_weight& weight, int64_t row) noexcept {
  return static_cast<const uint8_t*>(weight.data) + row * packed_bytes(weight.format, weight.cols);
}

// See above.  [any]
inline float row_scale(const frt_weight& weight, int64_t row) noexcept {
  switch (weight.format) {
    case FRT_WEIGHT_FP8_TENSOR:
    case FRT_WEIGHT_NVFP4:
      return weight.global_scale;
    case FRT_WEIGHT_FP8_CHANNEL:
      return load_float(weight.scale_dtype, weight.scale, row);
    default:
      return 1.0f;
  }
}

// FP8_BLOCK: columns per scale, no more than the row has.  [any]
inline int64_t block_columns(const frt_weight& weight) noexcept {
  return weight.block_cols < weight.cols ? weight.block_cols : weight.cols;
}

// FP8_BLOCK: the scale of the block that holds (row, col).  [any]
inline float block_scale(const frt_weight& weight, int64_t row, int64_t col) noexcept {
  const int64_t blocks = (weight.cols + weight.block_cols - 1) / weight.block_cols;
  return load_float(weight.scale_dtype, weight.scale,
                    row / weight.block_rows * blocks + col / weight.block_cols);
}

// NVFP4: the E4M3 scales of `row`, one per group.  [any]
inline const uint8_t* group_scales(const frt_weight& weight, int64_t row) noexcept {
  return static_cast<const uint8_t*>(weight.scale) + row * (weight.cols / kFp4Group);
}

// The matrix of one expert.  [any]
inline frt_weight expert_weight(const frt_expert_weight& experts, int64_t index) noexcept {
  frt_weight weight = experts.expert;
  weight.data = byte_offset(weight.data, index * experts.data_stride);
  if (weight.scale) weight.scale = byte_offset(weight.scale, index * experts.scale_stride);
  if (experts.global_scales) weight.global_scale = experts.global_scales[index];
  return weight;
}

// Throws unless `weight` is complete and one this backend computes with.  [setup]
void check_weight(const Checks& check, const char* argument, const frt_weight& weight);

// The same for all experts of `weight`.  [setup]
void check_expert_weight(const Checks& check, const char* argument,
                         const frt_expert_weight& weight);

}  // namespace frt::cpu
