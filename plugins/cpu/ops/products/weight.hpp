// SPDX-License-Identifier: Apache-2.0
// weight.hpp - what the products know of a stored weight matrix.
//
// A weight is value(row, col) * local(row, col) * row_scale(row). `local` is the block's or group's
// scale, which changes along a row and is therefore applied to each value; row_scale is constant
// along a row and applied once, to the finished sum. So kFp8Block, kNvfp4 and kOther alone have a
// local one, and with a zero point the value is (data - zero).
#pragma once

#include <frt/kernels.h>
#include <frt/ops/moe.h>
#include <frt/weights.hpp>

#include <cstdint>
#include <span>

#include "../numbers.hpp"

namespace frt::cpu {

// Values per scale of NVFP4.
inline constexpr int64_t kFp4Group = 16;

// The formats of the products and of embedding tables; those of tables that are copied alone.
extern const std::span<const frt_weight_format> kWeightFormats;
extern const std::span<const frt_weight_format> kPlainFormats;

// A frt_weight with what the products ask for every row and every group worked out once. kOther is
// the general form of frt/kernels.h (products/groups.hpp).
struct Weight {
  Weight() noexcept : Weight(frt_weight{}) {}
  Weight(const frt_weight& weight) noexcept;  // converts: arguments become parts of a group

  WeightType type;
  frt_dtype scale_dtype;
  int32_t rows, cols;
  int32_t block_rows, block_cols;  // that share a scale: groups of a whole side have its size
  float global_scale;              // 1 where the format has none
  int32_t bits;                    // of a value
  const void* data;
  const void* scale;
  const void* zero;
  frt_weight_format format;
};

// Bytes of `cols` packed values.  [any]
inline int64_t packed_bytes(const Weight& weight, int64_t cols) noexcept {
  return (cols * weight.bits + 7) / 8;
}

// The first value of `row`.  [any]
inline const uint8_t* weight_row(const Weight& weight, int64_t row) noexcept {
  return static_cast<const uint8_t*>(weight.data) + row * packed_bytes(weight, weight.cols);
}

// See above.  [any]
inline float row_scale(const Weight& weight, int64_t row) noexcept {
  if (weight.type == WeightType::kFp8Channel) {
    return load_float(weight.scale_dtype, weight.scale, row);
  }
  return weight.global_scale;
}

// kFp8Block: columns per scale, no more than the row has.  [any]
inline int64_t block_columns(const Weight& weight) noexcept {
  return weight.block_cols < weight.cols ? weight.block_cols : weight.cols;
}

// kFp8Block: the scale of the block that holds (row, col).  [any]
inline float block_scale(const Weight& weight, int64_t row, int64_t col) noexcept {
  const int64_t blocks = (int64_t{weight.cols} + weight.block_cols - 1) / weight.block_cols;
  return load_float(weight.scale_dtype, weight.scale,
                    row / weight.block_rows * blocks + col / weight.block_cols);
}

// kNvfp4: the E4M3 scales of `row`, one per group.  [any]
inline const uint8_t* group_scales(const Weight& weight, int64_t row) noexcept {
  return static_cast<const uint8_t*>(weight.scale) + row * (weight.cols / kFp4Group);
}

// The same matrix of every expert.
struct ExpertWeights {
  ExpertWeights(const frt_expert_weight& weights) noexcept;

  // The matrix of one expert.  [hot]
  Weight of(int64_t index) const noexcept {
    Weight weight = expert;
    weight.data = byte_offset(weight.data, index * data_stride);
    if (weight.scale) weight.scale = byte_offset(weight.scale, index * scale_stride);
    if (weight.zero) weight.zero = byte_offset(weight.zero, index * zero_stride);
    if (global_scales) weight.global_scale = global_scales[index];
    return weight;
  }

  Weight expert;
  int64_t data_stride, scale_stride, zero_stride;  // bytes
  const float* global_scales;                      // NULL where the format has none
};

}  // namespace frt::cpu
