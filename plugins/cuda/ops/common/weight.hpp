// SPDX-License-Identifier: Apache-2.0
// weight.hpp - a weight matrix as host and device code of the products see it.
#pragma once

#include <frt/kernels.h>
#include <frt/ops/moe.h>
#include <frt/weights.hpp>

#include <cstdint>
#include <span>

namespace frt::cuda {

// The formats of the products; those of tables that are copied alone.
extern const std::span<const frt_weight_format> kWeightFormats;
extern const std::span<const frt_weight_format> kPlainFormats;

// A frt_weight in one of kWeightFormats, so small and flat that kernels take it as an argument.
struct Weight {
  Weight() = default;
  Weight(const frt_weight& weight);  // converts: arguments become parts of a product

  WeightType type = WeightType::kF32;
  frt_dtype scale_dtype = FRT_DTYPE_NONE;  // kFp8Block, kFp8Channel: F32 or BF16
  int32_t rows = 0, cols = 0;
  const void* data = nullptr;
  const void* scale = nullptr;
  int32_t block_rows = 0, block_cols = 0;  // kFp8Block: that share a scale
  float global_scale = 1;                  // 1 where the format has none
};

}  // namespace frt::cuda
