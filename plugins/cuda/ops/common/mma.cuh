// SPDX-License-Identifier: Apache-2.0
// mma.cuh - tensor core products (mma.sync) with f32 sums, and the moves around them (ldmatrix,
// movmatrix). All of it exists on every architecture from sm_80 on, e4m3 from sm_89 on.
//
// Fragments of m16n8k16 for lane l = 4 g + t:
//   a[0] (g, 2t..2t+1)  a[1] (g+8, 2t..)  a[2] (g, 2t+8..)  a[3] (g+8, 2t+8..)   (row, k)
//   b[0] (2t..2t+1, g)  b[1] (2t+8.., g)                                          (k, column)
//   c[0], c[1] (g, 2t..2t+1)  c[2], c[3] (g+8, 2t..2t+1)                          (row, column)
#pragma once

#include "async_copy.cuh"
#include "numbers.cuh"
#include "shared_address.cuh"

namespace frt::cuda {

// Whether the compiler may move a product. kKept: it stays in order with copies, loads of matrices
// and other kept products, for kernels whose order of instructions was measured.
enum class Order { kFree, kKept };

// c += a b: (16, 16) by (16, 8), of bf16.
template <Order kOrder = Order::kFree>
__device__ __forceinline__ void mma_bf16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (kOrder == Order::kKept) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}
template <Order kOrder = Order::kFree>
__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  mma_bf16<kOrder>(c, a[0], a[1], a[2], a[3], b0, b1);
}
// The same of f16.
template <Order kOrder = Order::kFree>
__device__ __forceinline__ void mma_f16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                        uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (kOrder == Order::kKept) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}
template <Order kOrder = Order::kFree>
__device__ __forceinline__ void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  mma_f16<kOrder>(c, a[0], a[1], a[2], a[3], b0, b1);
}
// (16, 32) by (32, 8), of e4m3. Fragments lie as those of 16-bit values with half the columns.
// Kept in order.
__device__ __forceinline__ void mma_e4m3(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8x8 matrices of 16-bit elements; lane l names row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4],
                                                         uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address)
               : "memory");
}

// An 8x8 matrix that lies across the warp, one register per lane.
__device__ __forceinline__ uint32_t transpose_8x8(uint32_t from) {
  uint32_t to;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(from));
  return to;
}

// Low half: `low`.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Two e4m3 in the upper bytes of the halves of `codes` (the lower bytes are ignored) as bf16,
// exactly: the code's exponent and mantissa moved to their places are the value times 2^-120,
// subnormal codes included.
__device__ __forceinline__ uint32_t dequantise_e4m3(uint32_t codes) {
  const uint32_t small = (codes & 0x80008000u) | ((codes & 0x7F007F00u) >> 4);
  uint32_t values;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(values)
      : "r"(small), "r"(0x7B807B80u), "r"(0x80008000u));
  return values;
}

// Eight e4m3 codes as bf16 to 16 bytes of shared memory.
__device__ __forceinline__ void store_dequantised(uint32_t to, uint32_t low, uint32_t high) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(dequantise_e4m3(__byte_perm(low, 0, 0x1000))),
               "r"(dequantise_e4m3(__byte_perm(low, 0, 0x3020))),
               "r"(dequantise_e4m3(__byte_perm(high, 0, 0x1000))),
               "r"(dequantise_e4m3(__byte_perm(high, 0, 0x3020)))
               : "memory");
}

}  // namespace frt::cuda
