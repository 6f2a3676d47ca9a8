// SPDX-License-Identifier: Apache-2.0
// linear_narrow_x.cuh - of the streaming kernel: x in shared memory, as each kind of weight wants
// it, and the blocks of a cluster, each of which holds its own columns.
#pragma once

#include "launch.cuh"
#include "linear_narrow_decode.cuh"
#include "linear_narrow_plan.hpp"

namespace frt::cuda::narrow {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ uint4 load_shared(const uint8_t* pointer) {
  return *reinterpret_cast<const uint4*>(pointer);
}
__device__ __forceinline__ uint32_t load_pair(const uint8_t* pointer) {
  return *reinterpret_cast<const uint16_t*>(pointer);
}

// ---- the blocks of a cluster share the columns of a tile ---------------------------------------

__device__ __forceinline__ int cluster_rank() {
#if __CUDA_ARCH__ >= 900
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
#else
  return 0;
#endif
}
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// Stores into the shared memory of the cluster's first block, where `target` is in this one.
__device__ __forceinline__ void store_first(float* target, float value) {
#if __CUDA_ARCH__ >= 900
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(address) : "r"(shared_address(target)));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
#endif
}

// The part of a row that this block multiplies.
struct Columns {
  int chunk, chunks;  // first, and how many
};
__device__ __forceinline__ Columns own_columns(const NarrowArgs& a, const NarrowPart& part) {
  const int width = narrow_chunk_cols(part.kind);
  const int chunk = cluster_rank() * a.part_cols / width;
  return {chunk, min(part.chunks - chunk, a.part_cols / width)};
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

constexpr int kXBatch = 4;  // loads of x in flight per thread

// Piece `q` of row `row`; the next of a thread is `threads` pieces on.
struct XPiece {
  int row, q;
  __device__ __forceinline__ void advance(int threads, int pieces) {
    q += threads;
    while (q >= pieces) {
      q -= pieces;
      ++row;
    }
  }
};

// Copies this block's columns of x into shared memory in the forms that are needed. `largest`:
// (rows) zeroed before.
__device__ __forceinline__ void load_x(const NarrowArgs& a, uint8_t* shared, uint32_t* largest) {
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int begin = cluster_rank() * a.part_cols;
  const int pieces = a.part_cols / 8, valid = (a.cols - begin) / 8;
  // The bits as they come lie where the first copy in f16 will be.
  const int half = a.x_offset[kXF16] >= 0 ? kXF16 : kXF16Fp4;
  const bool halves = a.x_offset[half] >= 0, bits = a.x_offset[kXBf16] >= 0;
  const bf16* const source = static_cast<const bf16*>(a.x) + begin;
  XPiece first{0, 0};
  first.advance(thread, pieces);
  // `pieces` is a multiple of 16: a half of a warp is of one row.
  const unsigned half_warp = 0xFFFFu << (thread & 16);
  for (XPiece piece = first; __any_sync(~0u, piece.row < a.rows);) {
    uint4 v[kXBatch];
    XPiece at[kXBatch];
#pragma unroll
    for (int i = 0; i < kXBatch; ++i) {
      at[i] = piece;
      piece.advance(threads, pieces);
      v[i] = make_uint4(0, 0, 0, 0);
      if (at[i].row < a.rows && at[i].q < valid) {
        v[i] = __ldcg(reinterpret_cast<const uint4*>(source + at[i].row * a.x_stride) + at[i].q);
      }
    }
#pragma unroll
    for (int i = 0; i < kXBatch; ++i) {
      const bool inside = at[i].row < a.rows;
      if (inside && bits) {
        uint8_t* target = shared + a.x_offset[kXBf16] + at[i].row * a.x_pitch[kXBf16];
        *reinterpret_cast<uint4*>(target + x_place(kXBf16, at[i].q)) = v[i];
      }
      if (!halves) continue;
      if (inside) {
        uint8_t* target = shared + a.x_offset[half] + at[i].row * a.x_pitch[half];
        *reinterpret_cast<uint4*>(target + x_place(half, at[i].q)) = v[i];
      }
      const uint32_t pair = __vmaxu2(__vmaxu2(v[i].x & 0x7FFF7FFFu, v[i].y & 0x7FFF7FFFu),
                                     __vmaxu2(v[i].z & 0x7FFF7FFFu, v[i].w & 0x7FFF7FFFu));
      const uint32_t most = __reduce_max_sync(half_warp, max(pair & 0xFFFFu, pair >> 16));
      if (thread % 16 == 0 && inside) atomicMax(largest + at[i].row, most);
    }
  }
  __syncthreads();
  if (!halves) return;
  const bool both = half == kXF16 && a.x_offset[kXF16Fp4] >= 0;
  for (XPiece piece = first; piece.row < a.rows; piece.advance(threads, pieces)) {
    const float factor = x_factor(largest[piece.row]);
    uint8_t* const place =
        shared + a.x_offset[half] + piece.row * a.x_pitch[half] + x_place(half, piece.q);
    uint4 v = load_shared(place);
    v = make_uint4(to_f16(v.x, factor), to_f16(v.y, factor), to_f16(v.z, factor),
                   to_f16(v.w, factor));
    const uint4 fp4 = order_fp4(v);
    *reinterpret_cast<uint4*>(place) = half == kXF16 ? v : fp4;
    if (both) {
      uint8_t* target = shared + a.x_offset[kXF16Fp4] + piece.row * a.x_pitch[kXF16Fp4];
      *reinterpret_cast<uint4*>(target + x_place(kXF16Fp4, piece.q)) = fp4;
    }
  }
  __syncthreads();
}

}  // namespace frt::cuda::narrow
