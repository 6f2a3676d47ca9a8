// SPDX-License-Identifier: Apache-2.0
// dense_attention_y.cuh - results of dense attention as they are stored: bf16, or e4m3 with a
// scale.
#pragma once

#include <frt/ops/dense_attention.h>

#include "attention_mma.cuh"
#include "convert_values.cuh"

namespace frt::cuda {

// Four results divided by their total, from element `at` of y on, aligned.
__device__ __forceinline__ void store_results(const frt_dense_attention_args& a, int64_t at,
                                              const float4& sums, float total) {
  if (a.y_scale > 0) {
    const float factor = 1.0f / a.y_scale;
    const float values[4] = {sums.x / total * factor, sums.y / total * factor,
                             sums.z / total * factor, sums.w / total * factor};
    store_values(FRT_DTYPE_F8_E4M3, a.y, at, values);
  } else {
    *reinterpret_cast<uint2*>(static_cast<bf16*>(a.y) + at) = make_uint2(
        pack_bf16(sums.x / total, sums.y / total), pack_bf16(sums.z / total, sums.w / total));
  }
}

// Two results, to element `at` of y and the next one; `at` is even.
__device__ __forceinline__ void store_pair(const frt_dense_attention_args& a, int64_t at, float x,
                                           float y) {
  if (a.y_scale > 0) {
    const float factor = 1.0f / a.y_scale;
    const uint32_t low = e4m3_bits(x * factor), high = e4m3_bits(y * factor);
    *reinterpret_cast<uint16_t*>(static_cast<uint8_t*>(a.y) + at) =
        static_cast<uint16_t>(high << 8 | low);
  } else {
    *reinterpret_cast<uint32_t*>(static_cast<bf16*>(a.y) + at) = pack_bf16(x, y);
  }
}

}  // namespace frt::cuda
