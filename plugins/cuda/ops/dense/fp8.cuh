// SPDX-License-Identifier: Apache-2.0
// fp8.cuh - what follows an FP8 product, N outputs of a row at a time.
#pragma once

#include "../common/convert_values.cuh"
#include "../common/row_norm.cuh"
#include "fp8.hpp"

namespace frt::cuda {

__device__ __forceinline__ float fp8_activate(uint32_t activation, float z) {
  return activation == FRT_ACTIVATION_GELU   ? gelu(z)
         : activation == FRT_ACTIVATION_SILU ? silu(z)
                                             : z;
}

// y = z, as it is stored.
template <int N>
__device__ __forceinline__ void fp8_store(const Fp8Part& part, int64_t at, float (&z)[N]) {
  if (part.y_scale > 0) {
    const float factor = 1.0f / part.y_scale;
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] *= factor;
  }
  store_values(part.y_dtype, part.y, at, z);
}

// The sums z of outputs [column, column + N) of `row` become y. N values are aligned, or N is 1.
template <int N>
__device__ __forceinline__ void fp8_finish(const Fp8Part& part, const Fp8Factors& factors, int row,
                                           int column, float (&z)[N]) {
  const int64_t outputs = part.weight.rows;
  float other[N];
#pragma unroll
  for (int i = 0; i < N; ++i) z[i] *= factors.all;
  if (factors.outputs) {
    load_values(factors.dtype, factors.outputs, column, other);
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] *= other[i];
  }
  if (part.bias) {
    load_typed(part.bias + column, other);
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] += other[i];
  }
  if (part.activation != FRT_ACTIVATION_NONE) {
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] = fp8_activate(part.activation, z[i]);
  }
  if (part.gate.rows) {
    load_typed(modulation_of(part.gate, row) + 2 * outputs + column, other);
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] *= other[i];
  }
  if (part.addend) {
    load_typed(part.addend + row % part.addend_rows * outputs + column, other);
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] += other[i];
  }
  const int64_t at = row * part.y_stride + column;
  if (part.accumulate) {
    load_values(part.y_dtype, part.y, at, other);
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] += other[i];
  }
  fp8_store(part, at, z);
}

}  // namespace frt::cuda
