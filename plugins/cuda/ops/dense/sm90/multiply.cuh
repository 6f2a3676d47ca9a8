// SPDX-License-Identifier: Apache-2.0
// multiply.cuh - the products of a warpgroup (sm_90a) in the widths that wgmma.cuh and
// flow/sm90/layers_products.cuh are made for: c (64 x kRows) += a (64 x 16) b (kRows x 16)^T, both
// in shared memory, started here and waited for with products_wait(). In FP8 they are 32 values
// wide, which is as many bytes.
//
// The sums of lane 4 g + t of warp w: c[4 j] and c[4 j + 1] belong to row 16 w + g and columns
// 8 j + 2 t and + 1, the next two to row + 8.
#pragma once

#include <cstdint>

namespace frt::cuda {

template <int kRows>
__device__ __forceinline__ void multiply_64(float (&c)[kRows / 2], uint64_t a, uint64_t b);
template <int kRows>
__device__ __forceinline__ void multiply_64_fp8(float (&c)[kRows / 2], uint64_t a, uint64_t b);

#define FRT_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"

#define FRT_REGISTERS_32                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

#define FRT_REGISTERS_36 \
  FRT_REGISTERS_32       \
  ", %32, %33, %34, %35"

#define FRT_REGISTERS_48 \
  FRT_REGISTERS_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"

#define FRT_REGISTERS_64 \
  FRT_REGISTERS_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define FRT_REGISTERS_68 \
  FRT_REGISTERS_64       \
  ", %64, %65, %66, %67"

#define FRT_REGISTERS_80 \
  FRT_REGISTERS_68       \
  ", %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"

#define FRT_REGISTERS_88 \
  FRT_REGISTERS_80       \
  ", %80, %81, %82, %83, %84, %85, %86, %87"

#define FRT_REGISTERS_92 \
  FRT_REGISTERS_80       \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91"

#define FRT_REGISTERS_96 \
  FRT_REGISTERS_92       \
  ", %92, %93, %94, %95"

#define FRT_REGISTERS_100 \
  FRT_REGISTERS_92        \
  ", %92, %93, %94, %95, %96, %97, %98, %99"

#define FRT_REGISTERS_128                                                          \
  FRT_REGISTERS_92                                                                 \
  ", %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, " \
  "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, " \
  "%119, %120, %121, %122, %123, %124, %125, %126, %127"

#define FRT_SUMS(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])

#define FRT_SUMS_16 FRT_SUMS(0), FRT_SUMS(4), FRT_SUMS(8), FRT_SUMS(12)

#define FRT_SUMS_32                                                                              \
  FRT_SUMS(0), FRT_SUMS(4), FRT_SUMS(8), FRT_SUMS(12), FRT_SUMS(16), FRT_SUMS(20), FRT_SUMS(24), \
      FRT_SUMS(28)

#define FRT_SUMS_36 FRT_SUMS_32, FRT_SUMS(32)

#define FRT_SUMS_48 FRT_SUMS_32, FRT_SUMS(32), FRT_SUMS(36), FRT_SUMS(40), FRT_SUMS(44)

#define FRT_SUMS_64 FRT_SUMS_48, FRT_SUMS(48), FRT_SUMS(52), FRT_SUMS(56), FRT_SUMS(60)

#define FRT_SUMS_68 FRT_SUMS_64, FRT_SUMS(64)

#define FRT_SUMS_80 FRT_SUMS_68, FRT_SUMS(68), FRT_SUMS(72), FRT_SUMS(76)

#define FRT_SUMS_88 FRT_SUMS_80, FRT_SUMS(80), FRT_SUMS(84)

#define FRT_SUMS_92 FRT_SUMS_80, FRT_SUMS(80), FRT_SUMS(84), FRT_SUMS(88)

#define FRT_SUMS_96 FRT_SUMS_92, FRT_SUMS(92)

#define FRT_SUMS_100 FRT_SUMS_92, FRT_SUMS(92), FRT_SUMS(96)

#define FRT_SUMS_128                                                                    \
  FRT_SUMS_92, FRT_SUMS(92), FRT_SUMS(96), FRT_SUMS(100), FRT_SUMS(104), FRT_SUMS(108), \
      FRT_SUMS(112), FRT_SUMS(116), FRT_SUMS(120), FRT_SUMS(124)

// rows = columns of c, sums = registers of c, the numbers of the two operands behind them.
#define FRT_MULTIPLY(rows, sums, first, second)                                                \
  template <>                                                                                  \
  __device__ __forceinline__ void multiply_64<rows>(float(&c)[sums], uint64_t a, uint64_t b) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #rows                                     \
                 "k16.f32.bf16.bf16 {" FRT_REGISTERS_##sums "}, %" #first ", %" #second        \
                                                            ", 1, 1, 1, 0, 0;"                 \
                 : FRT_SUMS_##sums                                                             \
                 : "l"(a), "l"(b));                                                            \
  }

FRT_MULTIPLY(32, 16, 16, 17)
FRT_MULTIPLY(64, 32, 32, 33)
FRT_MULTIPLY(72, 36, 36, 37)
FRT_MULTIPLY(96, 48, 48, 49)
FRT_MULTIPLY(128, 64, 64, 65)
FRT_MULTIPLY(136, 68, 68, 69)
FRT_MULTIPLY(160, 80, 80, 81)
FRT_MULTIPLY(176, 88, 88, 89)
FRT_MULTIPLY(184, 92, 92, 93)
FRT_MULTIPLY(192, 96, 96, 97)
FRT_MULTIPLY(200, 100, 100, 101)
FRT_MULTIPLY(256, 128, 128, 129)

#define FRT_MULTIPLY_FP8(rows, sums, first, second)                                                \
  template <>                                                                                      \
  __device__ __forceinline__ void multiply_64_fp8<rows>(float(&c)[sums], uint64_t a, uint64_t b) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #rows                                         \
                 "k32.f32.e4m3.e4m3 {" FRT_REGISTERS_##sums "}, %" #first ", %" #second            \
                                                            ", 1, 1, 1;"                           \
                 : FRT_SUMS_##sums                                                                 \
                 : "l"(a), "l"(b));                                                                \
  }

FRT_MULTIPLY_FP8(32, 16, 16, 17)
FRT_MULTIPLY_FP8(64, 32, 32, 33)
FRT_MULTIPLY_FP8(72, 36, 36, 37)
FRT_MULTIPLY_FP8(128, 64, 64, 65)
FRT_MULTIPLY_FP8(136, 68, 68, 69)
FRT_MULTIPLY_FP8(160, 80, 80, 81)
FRT_MULTIPLY_FP8(176, 88, 88, 89)
FRT_MULTIPLY_FP8(184, 92, 92, 93)
FRT_MULTIPLY_FP8(200, 100, 100, 101)
FRT_MULTIPLY_FP8(256, 128, 128, 129)

#undef FRT_MULTIPLY_FP8
#undef FRT_MULTIPLY
#undef FRT_SUMS_100
#undef FRT_REGISTERS_100
#undef FRT_SUMS_16
#undef FRT_REGISTERS_16
#undef FRT_SUMS_36
#undef FRT_REGISTERS_36
#undef FRT_SUMS_32
#undef FRT_REGISTERS_32
#undef FRT_SUMS_48
#undef FRT_REGISTERS_48
#undef FRT_SUMS_64
#undef FRT_REGISTERS_64
#undef FRT_SUMS_68
#undef FRT_REGISTERS_68
#undef FRT_SUMS_80
#undef FRT_REGISTERS_80
#undef FRT_SUMS_88
#undef FRT_REGISTERS_88
#undef FRT_SUMS_92
#undef FRT_REGISTERS_92
#undef FRT_SUMS_96
#undef FRT_REGISTERS_96
#undef FRT_SUMS_128
#undef FRT_REGISTERS_128
#undef FRT_SUMS

}  // namespace frt::cuda
