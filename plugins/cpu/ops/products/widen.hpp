// SPDX-License-Identifier: Apache-2.0
// widen.hpp - packed weights to f32 or bf16 values, without the row scale (weight.hpp).
//
// BF16 values are exact for all formats but two: F32 and FP8_BLOCK (value times block scale) are
// rounded to nearest even.
#pragma once

#include <frt/kernels.h>

#include <cstdint>

namespace frt::cpu {

// out[i] = W[row, first + i] / row_scale for i in [0, count); `first` is a multiple of 16. Plain
// loops.  [hot]
void widen_plain(const frt_weight& weight, int64_t row, int64_t first, int64_t count,
                 float* out) noexcept;

// Rows [first, first + count) of the weight to tile (count, cols) of f32 or bf16.  [hot]
using WidenFunction = void (*)(const frt_weight& weight, int64_t first, int64_t count,
                               frt_dtype dtype, void* tile) noexcept;

// With the vectors of the Highway target in force.  [setup]
WidenFunction widen_function();

}  // namespace frt::cpu
