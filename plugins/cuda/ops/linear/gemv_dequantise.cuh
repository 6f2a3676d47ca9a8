// SPDX-License-Identifier: Apache-2.0
// gemv_dequantise.cuh - of the streaming kernel: quantised weights to operands of the tensor
// cores.
#pragma once

#include "../common/fp4.cuh"
#include "../common/mma.cuh"
#include "../common/numbers.cuh"

namespace frt::cuda::gemv {

// Four e4m3 values to f16.
__device__ __forceinline__ void dequantise_fp8(uint32_t packed, uint32_t& first, uint32_t& second) {
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
      : "=r"(first), "=r"(second)
      : "r"(packed));
}

__device__ __forceinline__ __half2 as_half2(uint32_t bits) {
  return *reinterpret_cast<const __half2*>(&bits);
}
__device__ __forceinline__ uint32_t scale_pair(uint32_t pair, __half2 scale) {
  const __half2 product = __hmul2(as_half2(pair), scale);
  return *reinterpret_cast<const uint32_t*>(&product);
}

// The bits of `set` where `mask` is 1, of `clear` elsewhere; one operation, which the compiler
// would make two of where it knows some bits.
__device__ __forceinline__ uint32_t select_bits(uint32_t mask, uint32_t set, uint32_t clear) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xE4;" : "=r"(result) : "r"(set), "r"(clear), "r"(mask));
  return result;
}

// Eight e2m1 values times scale * 2^-14, in the order 0 4 2 6 1 5 3 7. The sign belongs to bit 15
// of an f16, the other three to 9..11: in bytes first (bits 7 and 1..3), the even ones and the odd
// ones, with other bits of `packed` in between; then every other byte, without those. Seven logic
// operations, which are the scarce ones: they run at half the rate of others. Where there is an
// instruction: in order, without the 2^-14, which dequantise_scales() then puts into the scale; the
// products are the same.
__device__ __forceinline__ void dequantise_fp4(uint32_t packed, __half2 scale,
                                               uint32_t (&pairs)[4]) {
  if constexpr (kFp4Converts) {
    convert_fp4(packed, pairs);
  } else {
    constexpr uint32_t kSigns = 0x80808080u, kFirst = 0x008E008Eu, kSecond = 0x8E008E00u;
    const uint32_t even = select_bits(kSigns, packed << 4, packed << 1);
    const uint32_t odd = select_bits(kSigns, packed, packed >> 3);
    pairs[0] = (even & kFirst) << 8;
    pairs[1] = even & kSecond;
    pairs[2] = (odd & kFirst) << 8;
    pairs[3] = odd & kSecond;
  }
#pragma unroll
  for (uint32_t& pair : pairs) pair = scale_pair(pair, scale);
}

// Eight columns of x in that order.
__device__ __forceinline__ uint4 order_fp4(const uint4& v) {
  if (kFp4Converts) return v;
  return make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.y, v.w, 0x5410),
                    __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x7632));
}

// Two e4m3 scales as f16; times 2^-14 where dequantise_fp4() takes them so. Their products with the
// values are exact in any case: the smallest steps are 2^-9 and 2^-1, and 2^-24 is f16's.
__device__ __forceinline__ __half2 dequantise_scales(uint32_t packed) {
  uint32_t pair;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.rn.f16x2.e4m3x2 %0, l;}"
      : "=r"(pair)
      : "r"(packed));
  return kFp4Converts ? __hmul2(as_half2(pair), as_half2(0x04000400u)) : as_half2(pair);
}

}  // namespace frt::cuda::gemv
