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

enum class Binary : uint8_t { kSiluMul, kSigmoidMul, kAdd, kGeluMul };

// y = silu(a) * b, a * sigmoid(b), a + b or gelu(a) * b; all of `dtype` (f32, bf16). y may be a or
// b.
void binary_row(bool reference, Binary operation, int64_t count, frt_dtype dtype, const void* a,
                const void* b, void* y) noexcept;

// y = x, or y += x with `accumulate` (in f32, rounded once); x f32 times `scales` unless NULL.
void store_row(bool reference, int64_t count, const float* x, const float* scales, frt_dtype dtype,
               bool accumulate, void* y) noexcept;

// What follows a product (frt/ops/dense.h), in this order; the pointers may be NULL.
struct RowFinish {
  const float* bias = nullptr;
  uint32_t activation = 0;  // FRT_ACTIVATION_*
  const float* gate = nullptr;
  const float* addend = nullptr;
  bool accumulate = false;
};

// y = z or y += z (in f32, rounded once), z = activation(x * scales + bias) * gate + addend.
void finish_row(bool reference, int64_t count, const float* x, const float* scales,
                const RowFinish& finish, frt_dtype dtype, void* y) noexcept;

// y = sum over j in [0, parts) of weights[j] * x[j, :], in that order; x (parts, count) f32.
void mix_row(bool reference, int64_t count, int64_t parts, const float* weights, const float* x,
             frt_dtype dtype, void* y) noexcept;

// y = a + sigmoid(gate) * b, all of `dtype`. y may be a.
void gated_add_row(bool reference, int64_t count, frt_dtype dtype, const void* a, float gate,
                   const void* b, void* y) noexcept;

}  // namespace frt::cpu
