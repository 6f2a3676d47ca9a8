// SPDX-License-Identifier: Apache-2.0
// elementwise.hpp - rows of values in, rows of values out, for every operator that has them in it,
// so that fused and composed forms agree bit for bit.
//
// Arithmetic in f32, one rounding at the end. A value depends on its inputs alone, not on its
// place in the row. `reference`: plain loops (Device::reference_numerics()). All are [hot].
#pragma once

#include <frt/base.h>

#include <cstdint>

namespace frt::cpu {

enum class Binary : uint8_t { kSiluMul, kSigmoidMul, kAdd };

// y = silu(a) * b, a * sigmoid(b) or a + b; all of `dtype` (f32, bf16). y may be a or b.
void binary_row(bool reference, Binary operation, int64_t count, frt_dtype dtype, const void* a,
                const void* b, void* y) noexcept;

// y = x, or y += x with `accumulate` (in f32, rounded once); x f32 times `scales` unless NULL.
void store_row(bool reference, int64_t count, const float* x, const float* scales, frt_dtype dtype,
               bool accumulate, void* y) noexcept;

// y = a + weight * b: one more summand of a mixture, f32.
void add_scaled_row(bool reference, int64_t count, const float* a, float weight, const float* b,
                    float* y) noexcept;

}  // namespace frt::cpu
