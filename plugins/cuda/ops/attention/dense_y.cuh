// SPDX-License-Identifier: Apache-2.0
// dense_y.cuh - results of dense attention as they are stored: bf16, or e4m3 with a
// scale.
#pragma once

#include <frt/ops/dense_attention.h>

#include "../common/convert_values.cuh"
#include "../common/mma.cuh"

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

// What results of kernels with little code are multiplied by, and four such results from element
// `at` of y on, aligned.
__device__ __forceinline__ float result_factor(const frt_dense_attention_args& a) {
  return a.y_scale > 0 ? __fdividef(1.0f, a.y_scale) : 1.0f;
}
__device__ __forceinline__ void store_four(const frt_dense_attention_args& a, int64_t at,
                                           const float4& v) {
  if (a.y_scale > 0) {
    const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(v.x, v.y), __NV_SATFINITE, __NV_E4M3);
    const uint32_t high =
        __nv_cvt_float2_to_fp8x2(make_float2(v.z, v.w), __NV_SATFINITE, __NV_E4M3);
    *reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(a.y) + at) = high << 16 | low;
  } else {
    *reinterpret_cast<uint2*>(static_cast<bf16*>(a.y) + at) =
        make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
  }
}

}  // namespace frt::cuda
