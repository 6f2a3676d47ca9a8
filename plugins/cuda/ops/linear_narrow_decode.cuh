// SPDX-License-Identifier: Apache-2.0
// linear_narrow_decode.cuh - of the streaming kernel: packed weights to operands of the tensor
// cores, and the tensor cores' products.
#pragma once

#include "fp4.cuh"
#include "numbers.cuh"

namespace frt::cuda::narrow {

// acc += A (16 rows, 16 columns) B (16 columns, 8 rows of x).
__device__ __forceinline__ void multiply_bf16(float (&acc)[4], uint32_t a0, uint32_t a1,
                                              uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_f16(float (&acc)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four e4m3 values to f16.
__device__ __forceinline__ void widen_fp8(uint32_t packed, uint32_t& first, uint32_t& second) {
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
      : "=r"(first), "=r"(second)
      : "r"(packed));
}

__device__ __forceinline__ uint32_t scale_pair(uint32_t pair, uint32_t scale) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(scale));
  return product;
}

// Eight e2m1 values times scale * 2^-14, in the order 0 4 2 6 1 5 3 7: first as the high bytes of
// f16, four to a word, then apart. Where there is an instruction: in order, without the 2^-14,
// which widen_scales() then puts into the scale; the products are the same.
__device__ __forceinline__ void widen_fp4(uint32_t packed, uint32_t scale, uint32_t (&pairs)[4]) {
  if constexpr (kFp4Converts) {
    convert_fp4(packed, pairs);
#pragma unroll
    for (uint32_t& pair : pairs) pair = scale_pair(pair, scale);
  } else {
    const uint32_t even = ((packed << 4) & 0x80808080u) | ((packed << 1) & 0x0E0E0E0Eu);
    const uint32_t odd = (packed & 0x80808080u) | ((packed >> 3) & 0x0E0E0E0Eu);
    pairs[0] = scale_pair(__byte_perm(even, 0, 0x2404), scale);
    pairs[1] = scale_pair(even & 0xFF00FF00u, scale);
    pairs[2] = scale_pair(__byte_perm(odd, 0, 0x2404), scale);
    pairs[3] = scale_pair(odd & 0xFF00FF00u, scale);
  }
}

// Eight columns of x in that order.
__device__ __forceinline__ uint4 order_fp4(const uint4& v) {
  if (kFp4Converts) return v;
  return make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.y, v.w, 0x5410),
                    __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x7632));
}

// Two e4m3 scales as f16, times 2^7; times 2^-7 where widen_fp4() takes them so. Both are exact:
// 2^-16, the smallest, is 256 steps of f16's subnormal numbers.
__device__ __forceinline__ uint32_t widen_scales(uint32_t packed) {
  uint32_t pair;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.rn.f16x2.e4m3x2 %0, l;}"
      : "=r"(pair)
      : "r"(packed));
  return scale_pair(pair, kFp4Converts ? 0x20002000u : 0x58005800u);
}

}  // namespace frt::cuda::narrow
