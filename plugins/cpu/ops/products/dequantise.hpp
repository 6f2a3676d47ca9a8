// SPDX-License-Identifier: Apache-2.0
// dequantise.hpp - stored weights to f32 or bf16 values, without the row scale (weight.hpp).
//
// BF16 values are exact for all formats but three: F32, kFp8Block and kOther (value times scale)
// are rounded to nearest even.
#pragma once

#include <cstdint>

#include "weight.hpp"

namespace frt::cpu {

// out[i] = W[row, first + i] / row_scale for i in [0, count); `first` is a multiple of 16. Plain
// loops.  [hot]
void dequantise_plain(const Weight& weight, int64_t row, int64_t first, int64_t count,
                      float* out) noexcept;

// Rows [first, first + count) of the weight to tile (count, cols) of f32 or bf16.  [hot]
using DequantiseFunction = void (*)(const Weight& weight, int64_t first, int64_t count,
                                    frt_dtype dtype, void* tile) noexcept;

// With the vectors of the Highway target in force.  [setup]
DequantiseFunction dequantise_function();

}  // namespace frt::cpu
