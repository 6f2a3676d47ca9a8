// SPDX-License-Identifier: Apache-2.0
// rms.hpp - root-mean-square norm of one row, for every operator that has a norm in it, so that
// fused and composed forms agree bit for bit. Implemented in norm.cpp.
#pragma once

#include <frt/base.h>

#include <cstdint>

namespace frt::cpu {

// y = x * rsqrt(mean(x^2) + epsilon) * weight. Types f32 and bf16; y may be x. `reference`: plain
// loops in one fixed order (Device::reference_numerics()).  [hot]
void rms_norm_row(bool reference, int32_t width, float epsilon, frt_dtype x_dtype, const void* x,
                  const float* weight, frt_dtype y_dtype, void* y) noexcept;

// residual += delta, rounded to residual_dtype; then y = rms_norm(residual). delta NULL: only the
// norm. y NULL: only the sum.  [hot]
void add_rms_norm_row(bool reference, int32_t width, float epsilon, frt_dtype residual_dtype,
                      void* residual, frt_dtype dtype, const void* delta, const float* weight,
                      void* y) noexcept;

// y = x * rsqrt(mean(x^2) + epsilon) * weight * silu(z).  [hot]
void gated_rms_norm_row(bool reference, int32_t width, float epsilon, frt_dtype x_dtype,
                        const void* x, frt_dtype dtype, const void* z, const float* weight,
                        void* y) noexcept;

}  // namespace frt::cpu
