// SPDX-License-Identifier: Apache-2.0
// fp4.cuh - e2m1, the four-bit floats of NVFP4, where the architecture has an instruction for them.
//
// cvt.rn.f16x2.e2m1x2 dequantises two values at once and exactly. It exists in the code of 100a,
// 103a, 110a, 120a and 121a, not in PTX of a base architecture. Elsewhere each user has its own
// trick with the bits, made for its order of values; kFp4Converts selects when the device code is
// compiled.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "arch.cuh"

namespace frt::cuda {

inline constexpr bool kFp4Converts = FRT_ARCH_FP4_CONVERTS;

// Eight values as four f16x2, in order, the lower one in the lower half. Only where kFp4Converts.
__device__ __forceinline__ void convert_fp4(uint32_t eight, uint32_t (&pairs)[4]) {
#if FRT_ARCH_FP4_CONVERTS
  asm("{.reg .b8 b0, b1, b2, b3; mov.b32 {b0, b1, b2, b3}, %4;"
      " cvt.rn.f16x2.e2m1x2 %0, b0; cvt.rn.f16x2.e2m1x2 %1, b1;"
      " cvt.rn.f16x2.e2m1x2 %2, b2; cvt.rn.f16x2.e2m1x2 %3, b3;}"
      : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
      : "r"(eight));
#else
  pairs[0] = pairs[1] = pairs[2] = pairs[3] = eight;
#endif
}

}  // namespace frt::cuda
