// SPDX-License-Identifier: Apache-2.0
// attention_mma.cuh - tensor core products of bf16 matrices with f32 sums, and the moves around
// them. All of it exists on every architecture from sm_80 on.
//
// Fragments of m16n8k16 for lane l = 4 g + t:
//   a[0] (g, 2t..2t+1)  a[1] (g+8, 2t..)  a[2] (g, 2t+8..)  a[3] (g+8, 2t+8..)   (row, k)
//   b[0] (2t..2t+1, g)  b[1] (2t+8.., g)                                          (k, column)
//   c[0], c[1] (g, 2t..2t+1)  c[2], c[3] (g+8, 2t..2t+1)                          (row, column)
#pragma once

#include "numbers.cuh"
#include "shared_address.cuh"

namespace frt::cuda {

__device__ __forceinline__ void multiply_16x8x16(float (&c)[4], uint32_t a0, uint32_t a1,
                                                 uint32_t a2, uint32_t a3, uint32_t b0,
                                                 uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four 8x8 matrices of 16-bit elements; lane l names row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address));
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4],
                                                         uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address));
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
__device__ __forceinline__ uint32_t widen_e4m3(uint32_t codes) {
  const uint32_t small = (codes & 0x80008000u) | ((codes & 0x7F007F00u) >> 4);
  uint32_t wide;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(wide)
      : "r"(small), "r"(0x7B807B80u), "r"(0x80008000u));
  return wide;
}

// Eight e4m3 codes as bf16 to 16 bytes of shared memory.
__device__ __forceinline__ void store_widened(uint32_t to, uint32_t low, uint32_t high) {
  asm volatile(
      "st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to),
      "r"(widen_e4m3(__byte_perm(low, 0, 0x1000))), "r"(widen_e4m3(__byte_perm(low, 0, 0x3020))),
      "r"(widen_e4m3(__byte_perm(high, 0, 0x1000))), "r"(widen_e4m3(__byte_perm(high, 0, 0x3020)))
      : "memory");
}

__device__ __forceinline__ void copy_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// The same, or 16 zeros where there is nothing; `from` is an address all the same.
__device__ __forceinline__ void copy_or_zero(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `kPending` groups of this thread are under way.
template <int kPending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace frt::cuda
