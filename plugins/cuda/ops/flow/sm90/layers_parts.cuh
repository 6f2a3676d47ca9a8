// SPDX-License-Identifier: Apache-2.0
// layers_parts.cuh - what the attention of an expert's layers (layers_attention.cuh) is
// put together from: a product whose first factor lies in registers, moves to and from shared
// memory by its address, stores to other blocks of the cluster that a barrier there counts, and
// reductions over some lanes of a warp (sm_90a).
#pragma once

#include "../../common/arch.cuh"
#include "../../common/mma.cuh"

namespace frt::cuda {

#if FRT_ARCH_WGMMA_OR_HOST

// c (64 x 32) += a (64 x 16, in registers) b^T, or = where not `add`; rows of b hold the
// inner dimension.
__device__ __forceinline__ void multiply_registers(float (&c)[4][4], const uint32_t (&a)[4],
                                                   uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n"
      "}"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]),
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

// 16 bytes at each 64 of a row that other SMs may have written in this launch: past the
// first cache. `there`: or nothing, without a branch, so that nothing waits for what is on its way.
__device__ __forceinline__ void load_fresh(uint4& a, uint4& b, uint4& c, uint4& d,
                                           const void* pointer, bool there) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.s32 p, %17, 0;\n"
      "@p ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%16];\n"
      "@p ld.global.cg.v4.u32 {%4, %5, %6, %7}, [%16 + 64];\n"
      "@p ld.global.cg.v4.u32 {%8, %9, %10, %11}, [%16 + 128];\n"
      "@p ld.global.cg.v4.u32 {%12, %13, %14, %15}, [%16 + 192];\n}"
      : "+r"(a.x), "+r"(a.y), "+r"(a.z), "+r"(a.w), "+r"(b.x), "+r"(b.y), "+r"(b.z), "+r"(b.w),
        "+r"(c.x), "+r"(c.y), "+r"(c.z), "+r"(c.w), "+r"(d.x), "+r"(d.y), "+r"(d.z), "+r"(d.w)
      : "l"(pointer), "r"(static_cast<int>(there))
      : "memory");
}

__device__ __forceinline__ void store_word(uint32_t to, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void store_words(uint32_t to, const uint4& value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ uint32_t load_word(uint32_t from) {
  uint32_t value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ float load_float(uint32_t from) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ float4 load_floats(uint32_t from) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ uint2 load_pair(uint32_t from) {
  uint2 value;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(value.x), "=r"(value.y)
               : "r"(from)
               : "memory");
  return value;
}
// Four 8x8 matrices turned round: lane l names row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices_transposed(uint32_t to, uint32_t a, uint32_t b,
                                                          uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// Of block `rank`, where `address` is here.
__device__ __forceinline__ uint32_t address_of(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// To another block's memory, and counted by a barrier there.
__device__ __forceinline__ void send(uint32_t to, uint32_t a, uint32_t b, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "r"(a), "r"(b), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void send_four(uint32_t to, const uint32_t* words, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void send_one(uint32_t to, uint32_t word, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
      "r"(word), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

struct FlowMaximum {
  static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
};
struct FlowSum {
  static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
// Over the eight lanes that differ in l / 4: lane l has the results of values
// l / 4 * (kCount / 8) and following.
template <class Operation, int kCount, int kOffset = 16, int kLeft = kCount / 2>
__device__ __forceinline__ void reduce_lanes(float (&values)[kCount]) {
  const bool upper = (threadIdx.x & kOffset) != 0;
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const float low = values[i], high = values[i + kLeft];
    values[i] =
        Operation::of(upper ? high : low, __shfl_xor_sync(~0u, upper ? low : high, kOffset));
  }
  if constexpr (kOffset > 4) {
    reduce_lanes<Operation, kCount, kOffset / 2, kLeft / 2>(values);
  }
}

#endif

}  // namespace frt::cuda
