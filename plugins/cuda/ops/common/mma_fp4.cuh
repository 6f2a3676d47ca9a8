// SPDX-License-Identifier: Apache-2.0
// mma_fp4.cuh - tensor core products of FP4 by FP4 (mma.sync) with f32 sums and a scale for each 16
// values. The instruction exists in machine code of sm_120a and 121a; elsewhere the same function
// exchanges registers and computes in plain arithmetic, hundreds of times slower, for tests
// (FRT_CUDA_DEVICE_LIMITS=emulate=fp4-mma).
#pragma once

#include "arch.cuh"
#include "fp4_fragments.hpp"

namespace frt::cuda {

#if !FRT_ARCH_FP4_MMA
// Not inlined: a kernel has dozens of products.
__device__ __noinline__ inline float4 emulate_mma_fp4(float4 c, Fp4Operands own, int pair,
                                                      int quarter) {
  float sums[4] = {c.x, c.y, c.z, c.w};
  multiply_fp4(static_cast<int>(threadIdx.x) % 32, pair, quarter, sums,
               [&](int number, int lane) { return __shfl_sync(~0u, own.registers[number], lane); });
  return make_float4(sums[0], sums[1], sums[2], sums[3]);
}
#endif

// c += a b: (16, 64) by (64, 8). Fragments, scales, `kPair` (0, 1) and `kQuarter` (0 to 3) as in
// fp4_fragments.hpp. Kept in order; by a whole warp.
template <int kPair, int kQuarter>
__device__ __forceinline__ void mma_fp4(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1, uint32_t scales_a, uint32_t scales_b) {
#if FRT_ARCH_FP4_MMA
  asm volatile(
      "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
      ".f32.e2m1.e2m1.f32.ue4m3 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, "
      "%10, {0, %12}, %11, {0, %13};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(scales_a), "r"(scales_b),
        "n"(kPair), "n"(kQuarter));
#else
  const float4 sums =
      emulate_mma_fp4(make_float4(c[0], c[1], c[2], c[3]),
                      {{a[0], a[1], a[2], a[3], b0, b1, scales_a, scales_b}}, kPair, kQuarter);
  c[0] = sums.x;
  c[1] = sums.y;
  c[2] = sums.z;
  c[3] = sums.w;
#endif
}

}  // namespace frt::cuda
