// SPDX-License-Identifier: Apache-2.0
// gemv_x.cuh - of the streaming kernel: x in shared memory, as each kind of weight wants
// it, and the blocks of a cluster, each of which holds its own columns.
#pragma once

#include "../common/arch.cuh"
#include "../common/launch.cuh"
#include "../common/mbarrier.cuh"
#include "gemv_dequantise.cuh"
#include "gemv_plan.hpp"

namespace frt::cuda::gemv {

__device__ __forceinline__ uint4 load_shared(const uint8_t* pointer) {
  return *reinterpret_cast<const uint4*>(pointer);
}
__device__ __forceinline__ uint32_t load_pair(const uint8_t* pointer) {
  return *reinterpret_cast<const uint16_t*>(pointer);
}

// ---- the blocks of a cluster share the columns of a tile ---------------------------------------

__device__ __forceinline__ int cluster_rank(const GemvArgs& a) {
  return static_cast<int>(blockIdx.x) & (a.split - 1);
}
__device__ __forceinline__ int cluster_index(const GemvArgs& a) {
  return static_cast<int>(blockIdx.x) >> (a.split - 1);
}
// The first block counts in `barrier` what the others store into its shared memory: no fence and no
// further barrier of the cluster.
__device__ __forceinline__ void open_shares(const GemvArgs& a, uint64_t* barrier, int bytes) {
#if FRT_ARCH_CLUSTERS
  const bool opens = threadIdx.x == 0 && cluster_rank(a) == 0;
  if (opens) {
    barrier_init(barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();  // a barrier is made by an instruction of the whole warp
  if (opens) barrier_expect(barrier, bytes);
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
// Before the first store_first().
__device__ __forceinline__ void await_first() {
#if FRT_ARCH_CLUSTERS
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// Stores into the shared memory of the cluster's first block, where `target` is in this one.
__device__ __forceinline__ void store_first(float* target, uint64_t* barrier, float value) {
#if FRT_ARCH_CLUSTERS
  uint32_t address, remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(address) : "r"(shared_address(target)));
  asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(remote) : "r"(shared_address(barrier)));
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address),
      "r"(__float_as_uint(value)), "r"(remote)
      : "memory");
#endif
}
// In the first block, until everything has come.
__device__ __forceinline__ void await_shares(uint64_t* barrier) {
#if FRT_ARCH_CLUSTERS
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; "
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(shared_address(barrier))
        : "memory");
  }
#endif
}

// The part of a row that this block multiplies.
struct Columns {
  int chunk, chunks;  // first, and how many
};
__device__ __forceinline__ Columns own_columns(const GemvArgs& a, const GemvPart& part,
                                               GemvKind kind) {
  const int own = a.part_cols >> gemv_chunk_shift(kind), chunk = cluster_rank(a) * own;
  return {chunk, min(part.chunks - chunk, own)};
}

// ---- x ----------------------------------------------------------------------------------------

// Where the eight columns of piece q lie in a row of a copy, bytes. The pieces that the four lanes
// of a weight row read together lie side by side.
__device__ __forceinline__ int x_place(int copy, int q) {
  if (copy == kXBf16) return q * 16;
  if (copy == kXF16) return (q & ~7) * 16 + (q & 1) * 64 + (q >> 1 & 3) * 16;
  return (q & ~15) * 16 + (q & 3) * 64 + (q >> 2 & 3) * 16;
}

// The power of two that x is multiplied by as f16, and its inverse; `largest`: bits of the largest
// |x| as bf16. Both stay normal numbers.
__device__ __forceinline__ int x_exponent(uint32_t largest) {
  const int exponent = static_cast<int>(largest >> 7);
  return exponent < 14 ? 14 : exponent;
}
__device__ __forceinline__ float x_factor(uint32_t largest) {
  return __int_as_float((267 - x_exponent(largest)) << 23);
}
__device__ __forceinline__ float x_inverse(uint32_t largest) {
  return __int_as_float((x_exponent(largest) - 13) << 23);
}

__device__ __forceinline__ uint32_t to_f16(uint32_t pair, float factor) {
  const float low = __uint_as_float(pair << 16) * factor;
  const float high = __uint_as_float(pair & 0xFFFF0000u) * factor;
  const __half2 result = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&result);
}

// The bits of the largest |value| of a warp's 256 columns, as bf16; all lanes together.
__device__ __forceinline__ uint32_t largest_magnitude(const uint4& v) {
  const uint32_t pair = __vmaxu2(__vmaxu2(v.x & 0x7FFF7FFFu, v.y & 0x7FFF7FFFu),
                                 __vmaxu2(v.z & 0x7FFF7FFFu, v.w & 0x7FFF7FFFu));
  return __reduce_max_sync(~0u, max(pair & 0xFFFFu, pair >> 16));
}
__device__ __forceinline__ uint4 scaled_f16(const uint4& v, float factor) {
  return make_uint4(to_f16(v.x, factor), to_f16(v.y, factor), to_f16(v.z, factor),
                    to_f16(v.w, factor));
}

constexpr int kXBatch = 4;  // loads of x in flight per thread

// The columns of one row that a warp loads together, and that share a power of two; the next of a
// warp are `warps` units on.
struct XUnit {
  int row, unit;
  __device__ __forceinline__ void advance(int warps, int units) {
    unit += warps;
    while (unit >= units) {
      unit -= units;
      ++row;
    }
  }
};

// Copies this block's columns of x into shared memory in the forms that are needed. Calls
// `meanwhile` once, while the first loads are on their way.
template <class Meanwhile>
__device__ __forceinline__ void load_x(const GemvArgs& a, uint8_t* shared,
                                       const Meanwhile& meanwhile) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int begin = cluster_rank(a) * a.part_cols;
  const int units = a.part_cols / kGemvXUnit, valid = (a.cols - begin) / 8;
  const int padded = gemv_padded_rows(a.rows);
  const bool bits = a.x_offset[kXBf16] >= 0, halves = a.x_inverse_offset >= 0;
  const bf16* const source = static_cast<const bf16*>(a.x) + begin;
  float* const inverses = reinterpret_cast<float*>(shared + a.x_inverse_offset);
  XUnit unit{0, 0};
  unit.advance(static_cast<int>(threadIdx.x) / 32, units);
  for (bool first = true; first || unit.row < a.rows; first = false) {
    uint4 v[kXBatch];
    XUnit at[kXBatch];
#pragma unroll
    for (int i = 0; i < kXBatch; ++i) {
      at[i] = unit;
      unit.advance(warps, units);
      const int q = at[i].unit * 32 + lane;
      v[i] = make_uint4(0, 0, 0, 0);
      if (at[i].row < a.rows && q < valid) {
        v[i] = __ldcg(reinterpret_cast<const uint4*>(source + at[i].row * a.x_stride) + q);
      }
    }
    if (first) meanwhile();
#pragma unroll
    for (int i = 0; i < kXBatch; ++i) {
      const int row = at[i].row, q = at[i].unit * 32 + lane;
      if (row >= a.rows) break;
      const auto store = [&](GemvX copy, const uint4& value) {
        uint8_t* const target = shared + a.x_offset[copy] + row * a.x_pitch[copy];
        *reinterpret_cast<uint4*>(target + x_place(copy, q)) = value;
      };
      if (bits) store(kXBf16, v[i]);
      if (!halves) continue;
      const uint32_t largest = largest_magnitude(v[i]);
      const uint4 half = scaled_f16(v[i], x_factor(largest));
      if (a.x_offset[kXF16] >= 0) store(kXF16, half);
      if (a.x_offset[kXF16Fp4] >= 0) store(kXF16Fp4, order_fp4(half));
      // Rows beyond the last are the last one.
      if (lane < padded && min(lane, a.rows - 1) == row) {
        inverses[at[i].unit * padded + lane] = x_inverse(largest);
      }
    }
  }
  __syncthreads();
}

}  // namespace frt::cuda::gemv
