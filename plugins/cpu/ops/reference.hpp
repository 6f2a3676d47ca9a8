// SPDX-License-Identifier: Apache-2.0
// reference.hpp - the sequence operators as their headers in frt/ops state them: plain f32 loops,
// one fixed order of summation, whatever the machine. The device option numerics = "reference"
// selects them; the fast forms are tested against them.
//
// Each function does the part of one task of the operator's node: one row, one head or some
// channels of one sequence. All are [hot].
#pragma once

#include <frt/ops/attention.h>
#include <frt/ops/gated_delta.h>

#include <cstdint>

namespace frt::cpu::reference {

// y = x * rsqrt(mean(x^2) + epsilon) * weight, and * silu(z) if z is not NULL.
void rms_norm(int32_t width, float epsilon, frt_dtype x_dtype, const void* x, const float* weight,
              frt_dtype z_dtype, const void* z, frt_dtype y_dtype, void* y) noexcept;

// Channels [first, end) of sequence `b`, all its rows and the window.
void causal_conv(const frt_causal_conv_args& args, int64_t b, int32_t first, int32_t end) noexcept;

// Value head `head` of sequence `b`, as the recurrence for any number of rows. `work`:
// delta_work_floats().
void gated_delta(const frt_gated_delta_args& args, int64_t b, int32_t head, float* work) noexcept;

// Row `q` of sequence `b`, all heads. `work`: rotary_dim + head_dim floats.
void attention_append(const frt_attention_append_args& args, int64_t b, int32_t q,
                      float* work) noexcept;

// Row `q` of sequence `b`, query head `head`. `work`: max_rows + 2 * head_dim floats.
void attention(const frt_attention_args& args, int64_t b, int32_t q, int32_t head,
               float* work) noexcept;

}  // namespace frt::cpu::reference
