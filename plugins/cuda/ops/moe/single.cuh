// SPDX-License-Identifier: Apache-2.0
// single.cuh - of the decode kernel for one row (single_kernel.cu): its shape and
// arguments, and what it is put together from. One warp's instruction takes about five cycles until
// the next that needs its result, and a launch runs through its code once: what counts is how many
// instructions lie between a row and its result, so all that can be known when this is compiled is.
#pragma once

#include "../common/arch.cuh"
#include "../common/mma.cuh"
#include "fused_ring.cuh"
#include "moe.hpp"
#include "rows.cuh"

namespace frt::cuda {

// The shape it is made for. With it every block but one has the same work: two rows of the router,
// four columns of the shared expert, four units of eight columns of one selected expert, sixteen
// columns of the result. The last one has the rest.
struct Single {
  static constexpr int kInputs = 2048, kWidth = 512, kTopK = 8;
  static constexpr int kExperts = 256;  // at most
  static constexpr int kWarps = 16, kThreads = kWarps * 32;
  static constexpr int kColumns = 16;  // of the result, of a block
  static constexpr int kBlocks = kInputs / kColumns;
  static constexpr int kParts = 4;  // warps that share the columns of a unit
  static constexpr int kBlocksOfExpert = kBlocks / kTopK;
  static_assert(kInputs == kThreads * 4 && kExperts == kBlocks * 2 && kWidth == kBlocks * 4 &&
                kBlocksOfExpert * kWarps / kParts * 8 == kWidth);
  // Cells: logits, pairs of hidden values of the selected experts and of the shared one, its scale.
  static constexpr int kHiddenCells = kExperts, kItemCells = kWidth / 2;
  static constexpr int kScaleCell = kHiddenCells + (kTopK + 1) * kItemCells;
  static constexpr std::size_t kSharedBytes = 184 * 1024;  // at most
};

// A matrix of one or many experts, in FP8 with a scale per 128 x 128 values.
struct SingleMatrix {
  const uint8_t* data;
  const uint8_t* scale;
  int64_t stride, scale_stride;  // bytes from one expert to the next
};

struct SingleArgs {
  MoeNorm norm;  // residual NULL: x is there already
  bf16* x;
  int32_t experts;  // even
  bool normalise;
  bool scale_bf16, shared_scale_bf16;
  const int32_t* row_count;
  const uint8_t *router, *shared_scale;
  SingleMatrix gate, up, down, shared_gate, shared_up, shared_down;
  float* logits;      // (experts)
  int32_t* ids;       // (top_k)
  float* weights;     // (top_k)
  bf16* y;            // (inputs)
  uint32_t* numbers;  // of launches, by block
  uint64_t* cells;
};

// Submits it: one block per SM, all of them there at once (CoResidentLaunch).  [driver]
void launch_single(Stream& stream, bool fp8, int blocks, const SingleArgs& args);

// ---- the choice --------------------------------------------------------------------------------

// The order of floats as that of unsigned numbers.
__device__ __forceinline__ unsigned ordered(float value) {
  const unsigned bits = __float_as_uint(value);
  return bits ^ (static_cast<unsigned>(static_cast<int>(bits) >> 31) | 0x80000000u);
}
__device__ __forceinline__ float unordered(unsigned bits) {
  return __uint_as_float((bits & 0x80000000u) != 0 ? bits ^ 0x80000000u : ~bits);
}

// One warp's part of the choice for a row of at most 256 experts: what select_experts of
// rows.cuh does, by eight warps. Each finds the eight first of its 32 experts, then each looks
// up the places of its eight among all warps' 64. Equals stay in the order of their indices.
struct Choice {
  static constexpr int kWarps = Single::kExperts / 32, kThreads = kWarps * 32;
  alignas(16) unsigned tops[kWarps];  // largest logits, ordered()
  alignas(16) unsigned keys[kWarps * Single::kTopK];
  float e[Single::kExperts];  // exp(logit - largest)
  int ids[Single::kTopK];

#if FRT_ARCH_CLUSTERS
  // By all threads, the first kThreads with a logit each; -inf beyond the last expert. The caller
  // has the barrier that follows.
  __device__ __forceinline__ void select(float logit, bool inside) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool has = warp < kWarps;
    if (has) {
      const unsigned nan = 0xFFFFFFFFu;  // above all numbers
      const unsigned top = __reduce_max_sync(~0u, isnan(logit) ? nan : ordered(logit));
      if (lane == 0) tops[warp] = top;
    }
    __syncthreads();
    int place = 0;
    if (has) {
      unsigned most = 0u;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) most = max(most, tops[w]);
      const float largest = unordered(most);
      const float own = inside ? expf(logit - largest) : 0.0f;
      e[threadIdx.x] = own;
      // As order_key() says: the sum of all is a NaN if and only if `largest` is not a number.
      const unsigned key = !inside ? 0u : isfinite(largest) ? __float_as_uint(own) + 2u : 1u;
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        place += __shfl_sync(~0u, key, i) >= key + (lane <= i ? 1u : 0u);
      }
      if (place < Single::kTopK) keys[warp * Single::kTopK + place] = key;
    }
    __syncthreads();
    if (!has) return;
    // Four lanes count for a candidate.
    constexpr int kSharers = 32 / Single::kTopK, kOwn = kWarps * Single::kTopK / kSharers;
    const int first = lane % kSharers * kOwn, at = warp * Single::kTopK + lane / kSharers;
    const unsigned mine = keys[at];
    int before = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) before += keys[first + i] >= mine + (at <= first + i ? 1u : 0u);
#pragma unroll
    for (int step = 1; step < kSharers; step *= 2) before += __shfl_xor_sync(~0u, before, step);
    before = __shfl_sync(~0u, before, place % Single::kTopK * kSharers);
    if (place < Single::kTopK && before < Single::kTopK) {
      ids[before] = static_cast<int>(threadIdx.x);
    }
  }

  // The weights of those selected, in the first lanes; any warp, behind a barrier.
  __device__ __forceinline__ float weight(bool normalise) const {
    constexpr int kOwn = Single::kExperts / 32;
    const int lane = threadIdx.x % 32;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) sum += e[i * 32 + lane];
    sum = warp_sum(sum);
    const float probability = lane < Single::kTopK ? e[ids[lane]] / sum : 0.0f;
    return normalise ? probability / warp_sum(probability) : probability;
  }
#endif
};

#if FRT_ARCH_CLUSTERS

// ---- sums --------------------------------------------------------------------------------------

// Over the lanes of the warp: lane i has the sum of values[i / (32 / kCount)].
template <int kCount>
__device__ __forceinline__ float sum_lanes(float (&values)[kCount]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 1; half < kCount; half *= 2) {
    const int left = kCount / 2 / half, offset = 16 / half;
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int i = 0; i < left; ++i) {
      const float other = upper ? values[i] : values[i + left];
      values[i] = (upper ? values[i + left] : values[i]) + __shfl_xor_sync(~0u, other, offset);
    }
  }
#pragma unroll
  for (int offset = 16 / kCount; offset > 0; offset /= 2) {
    values[0] += __shfl_xor_sync(~0u, values[0], offset);
  }
  return values[0];
}

// Of sums[warp][line], by one warp: lane i has the sum of line i / (32 / kCount).
template <int kCount>
__device__ __forceinline__ float sum_warps(const float* sums) {
  constexpr int kSharers = 32 / kCount, kOwn = Single::kWarps / kSharers;
  const int line = threadIdx.x % 32 / kSharers, sharer = threadIdx.x % kSharers;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) sum += sums[(sharer * kOwn + i) * kCount + line];
#pragma unroll
  for (int offset = kSharers / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(~0u, sum, offset);
  }
  return sum;
}

template <int kCount>
__device__ __forceinline__ void tell_warp_sums(float (&values)[kCount], float* sums) {
  constexpr int kSharers = 32 / kCount;
  const float sum = sum_lanes(values);
  if (threadIdx.x % kSharers == 0) {
    sums[threadIdx.x / 32 * kCount + threadIdx.x % 32 / kSharers] = sum;
  }
}

// ---- rows --------------------------------------------------------------------------------------

__device__ __forceinline__ void dequantise_four(uint2 raw, float (&values)[4]) {
  const float2 low = float2_of_bf16x2(raw.x), high = float2_of_bf16x2(raw.y);
  values[0] = low.x;
  values[1] = low.y;
  values[2] = high.x;
  values[3] = high.y;
}
__device__ __forceinline__ uint2 pack_four(const float (&values)[4]) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(values[0], values[1]);
  const __nv_bfloat162 high = __floats2bfloat162_rn(values[2], values[3]);
  return make_uint2(*reinterpret_cast<const uint32_t*>(&low),
                    *reinterpret_cast<const uint32_t*>(&high));
}

// Four values of residual + delta, rounded to the residual's type; without residual, of x.
__device__ __forceinline__ void load_four(const SingleArgs& args, int at, float (&values)[4]) {
  const MoeNorm& norm = args.norm;
  if (!norm.residual) {
    dequantise_four(*reinterpret_cast<const uint2*>(args.x + at), values);
    return;
  }
  if (norm.residual_f32) {
    const float4 four =
        *reinterpret_cast<const float4*>(static_cast<const float*>(norm.residual) + at);
    values[0] = four.x;
    values[1] = four.y;
    values[2] = four.z;
    values[3] = four.w;
  } else {
    dequantise_four(*reinterpret_cast<const uint2*>(static_cast<const bf16*>(norm.residual) + at),
                    values);
  }
  if (!norm.delta) return;
  float delta[4];
  dequantise_four(*reinterpret_cast<const uint2*>(static_cast<const bf16*>(norm.delta) + at),
                  delta);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[i] += delta[i];
    if (!norm.residual_f32) values[i] = to_float(from_float<bf16>(values[i]));
  }
}
__device__ __forceinline__ void store_residual_four(const MoeNorm& norm, int at,
                                                    const float (&values)[4]) {
  if (norm.residual_f32) {
    *reinterpret_cast<float4*>(static_cast<float*>(norm.residual) + at) =
        make_float4(values[0], values[1], values[2], values[3]);
  } else {
    *reinterpret_cast<uint2*>(static_cast<bf16*>(norm.residual) + at) = pack_four(values);
  }
}

// Products of four bf16 or FP8 weights with x.
template <MoeFormat kFormat>
__device__ __forceinline__ float dot_four(uint2 raw, const float (&x)[4]) {
  float2 low, high;
  if constexpr (kFormat == MoeFormat::kBf16) {
    low = float2_of_bf16x2(raw.x);
    high = float2_of_bf16x2(raw.y);
  } else {
    low = dequantise_fp8x2(raw.x);
    high = dequantise_fp8x2(raw.x >> 16);
  }
  return fmaf(low.x, x[0], low.y * x[1]) + fmaf(high.x, x[2], high.y * x[3]);
}

// ---- FP8 ---------------------------------------------------------------------------------------
//
// FP8 weights are dequantised to f16, exactly. Their x is in f16, too, multiplied by a power of two
// that brings the largest value near 2^15: what is rounded then is 2^-39 of that and less.

// Of values whose largest has this f32 exponent.
__device__ __forceinline__ float unit_of(unsigned exponent) {
  return __uint_as_float((268u - max(exponent, 15u)) << 23);
}
__device__ __forceinline__ float inverse_unit_of(unsigned exponent) {
  return __uint_as_float((max(exponent, 15u) - 14u) << 23);
}
__device__ __forceinline__ uint32_t pack_f16(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t dequantise_fp8_f16(uint32_t pair) {
  const __half2_raw half =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair & 0xFFFFu), __NV_E4M3);
  return *reinterpret_cast<const uint32_t*>(&half);
}
__device__ __forceinline__ float load_scale(const uint8_t* scales, bool is_bf16, int index) {
  return is_bf16 ? to_float(reinterpret_cast<const bf16*>(scales)[index])
                 : reinterpret_cast<const float*>(scales)[index];
}

// c += this lane's sixteen bytes of two of the product's sixteen rows times x: 8 values of bf16 or
// 16 of f16, in the places of column lane / 4.
template <MoeFormat kFormat>
__device__ __forceinline__ void multiply_sixteen(float (&c)[4], const uint4& low, const uint4& high,
                                                 const uint4* x) {
  const uint4 v = x[0];
  if constexpr (kFormat == MoeFormat::kBf16) {
    mma_bf16<Order::kKept>(c, low.x, high.x, low.y, high.y, v.x, v.y);
    mma_bf16<Order::kKept>(c, low.z, high.z, low.w, high.w, v.z, v.w);
  } else {
    const uint4 w = x[1];
    const auto four = [&](uint32_t l, uint32_t h, uint32_t b0, uint32_t b1) {
      mma_f16<Order::kKept>(c, dequantise_fp8_f16(l), dequantise_fp8_f16(h),
                            dequantise_fp8_f16(l >> 16), dequantise_fp8_f16(h >> 16), b0, b1);
    };
    four(low.x, high.x, v.x, v.y);
    four(low.y, high.y, v.z, v.w);
    four(low.z, high.z, w.x, w.y);
    four(low.w, high.w, w.z, w.w);
  }
}

// A weight row is two rows of the product, its first 64 bytes the even one, which meet their part
// of x in even columns, the others in odd ones. This lane's half of the result.
__device__ __forceinline__ float own_half(float even, float odd) {
  return threadIdx.x / 4 % 2 == 0 ? even : odd;
}
__device__ __forceinline__ float add_halves(float half) {
  return half + __shfl_xor_sync(~0u, half, 4);
}

#endif

}  // namespace frt::cuda
