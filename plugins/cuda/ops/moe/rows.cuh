// SPDX-License-Identifier: Apache-2.0
// rows.cuh - what the mixture-of-experts kernels do with one row: choosing its experts (one
// warp), and the norm before the router (eight warps).
#pragma once

#include <cfloat>
#include <climits>
#include <cstdint>

#include "../common/numbers.cuh"
#include "weights.cuh"

namespace frt::cuda {

// ---- the choice ------------------------------------------------------------------------------
//
// p = e / sum with e = exp(logit - largest) >= 0, whose bits are in the order of p. A key is these
// bits and 2 more; 0 is taken. A NaN among the logits makes the sum a NaN and every key 1: the
// first experts are top_k, with NaN weights, and the defect shows in the output.

__device__ __forceinline__ unsigned order_key(float e, float sum) {
  return isnan(sum) ? 1u : __float_as_uint(e) + 2u;
}
__device__ __forceinline__ float probability_of(unsigned key, float sum) {
  return __uint_as_float(key - 2u) / sum;
}

// TopK weights are divided by their sum; they were written by lane 0.
__device__ __forceinline__ void normalise_top_k(int top_k, float sum, float* weights) {
  __syncwarp();
  for (int j = threadIdx.x % 32; j < top_k; j += 32) weights[j] /= sum;
  __syncwarp();
}

// One warp selects for one row; `experts` <= 32 * kPerLane, kept in registers.
template <int kPerLane>
__device__ __forceinline__ void select_experts(const float* logits, int experts, int top_k,
                                               bool normalise, int* ids, float* weights) {
  const int lane = threadIdx.x % 32;
  float p[kPerLane];
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    p[i] = i * 32 + lane < experts ? logits[i * 32 + lane] : -INFINITY;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) largest = fmaxf(largest, p[i]);
  largest = warp_max(largest);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    p[i] = i * 32 + lane < experts ? expf(p[i] - largest) : 0.0f;
    sum += p[i];
  }
  sum = warp_sum(sum);
  unsigned keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    keys[i] = i * 32 + lane < experts ? order_key(p[i], sum) : 0u;
  }
  float top_k_sum = 0.0f;
  for (int j = 0; j < top_k; ++j) {
    unsigned best = 0u;
    int at = INT_MAX;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (keys[i] > best) {
        best = keys[i];
        at = i * 32 + lane;
      }
    }
    const unsigned most = __reduce_max_sync(~0u, best);
    const int id = __reduce_min_sync(~0u, best == most ? at : INT_MAX);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (i * 32 + lane == id) keys[i] = 0u;
    }
    const float probability = probability_of(most, sum);
    top_k_sum += probability;
    if (lane == 0) {
      ids[j] = id;
      weights[j] = probability;
    }
  }
  if (normalise) normalise_top_k(top_k, top_k_sum, weights);
}

// Any number of experts: each choice looks at all logits again and takes the best one that comes
// after the last choice in the order (falling probability, rising index).
__device__ inline void select_experts_any(const float* logits, int experts, int top_k,
                                          bool normalise, int* ids, float* weights) {
  const int lane = threadIdx.x % 32;
  float largest = -INFINITY;
  for (int e = lane; e < experts; e += 32) largest = fmaxf(largest, logits[e]);
  largest = warp_max(largest);
  float sum = 0.0f;
  for (int e = lane; e < experts; e += 32) sum += expf(logits[e] - largest);
  sum = warp_sum(sum);
  float top_k_sum = 0.0f;
  unsigned last_key = ~0u;
  int last_id = -1;
  for (int j = 0; j < top_k; ++j) {
    unsigned best = 0u;
    int at = INT_MAX;
    for (int e = lane; e < experts; e += 32) {
      const unsigned key = order_key(expf(logits[e] - largest), sum);
      const bool left = key < last_key || (key == last_key && e > last_id);
      if (left && key > best) {
        best = key;
        at = e;
      }
    }
    last_key = __reduce_max_sync(~0u, best);
    last_id = __reduce_min_sync(~0u, best == last_key ? at : INT_MAX);
    const float probability = probability_of(last_key, sum);
    top_k_sum += probability;
    if (lane == 0) {
      ids[j] = last_id;
      weights[j] = probability;
    }
  }
  if (normalise) normalise_top_k(top_k, top_k_sum, weights);
}

// The most experts that select_experts keeps in registers.
inline constexpr int kRegisterExperts = 512;

__device__ __forceinline__ void select_experts(const float* logits, int experts, int top_k,
                                               bool normalise, int* ids, float* weights) {
  if (experts <= 256) {
    select_experts<8>(logits, experts, top_k, normalise, ids, weights);
  } else if (experts <= kRegisterExperts) {
    select_experts<16>(logits, experts, top_k, normalise, ids, weights);
  } else {
    select_experts_any(logits, experts, top_k, normalise, ids, weights);
  }
}

// silu(gate) * up of sums that are rounded to bf16 first, as where they are written in between.
__device__ __forceinline__ float gated_bf16(float gate, float up) {
  return silu(to_float(from_float<bf16>(gate))) * to_float(from_float<bf16>(up));
}

// ---- the norm --------------------------------------------------------------------------------
//
// A row's sum of squares is cut into kNormSegments sums of one warp each, added up in order: the
// same bits whoever computes it. Rows are multiples of eight values, pointers aligned to 16 bytes.

struct MoeNorm {
  void* residual;       // (rows, inputs); NULL: no norm
  const void* delta;    // (rows, inputs) bf16 or NULL
  const float* weight;  // (inputs)
  float epsilon;
  bool residual_f32;
};
inline constexpr int kNormSegments = 8;

// The eight values of residual + delta at element `at`, rounded to the residual's type.
__device__ __forceinline__ void load_residual(const MoeNorm& norm, int64_t at, float (&values)[8]) {
  if (norm.residual_f32) {
    const auto* four =
        reinterpret_cast<const float4*>(static_cast<const float*>(norm.residual) + at);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      values[4 * i] = four[i].x;
      values[4 * i + 1] = four[i].y;
      values[4 * i + 2] = four[i].z;
      values[4 * i + 3] = four[i].w;
    }
  } else {
    floats_of_bf16(*reinterpret_cast<const uint4*>(static_cast<const bf16*>(norm.residual) + at),
                   values);
  }
  if (!norm.delta) return;
  float delta[8];
  floats_of_bf16(*reinterpret_cast<const uint4*>(static_cast<const bf16*>(norm.delta) + at), delta);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values[i] += delta[i];
    if (!norm.residual_f32) values[i] = to_float(from_float<bf16>(values[i]));
  }
}

__device__ __forceinline__ uint4 pack_bf16(const float (&values)[8]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
    words[i] = *reinterpret_cast<const uint32_t*>(&pair);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ void store_residual(const MoeNorm& norm, int64_t at,
                                               const float (&values)[8]) {
  if (norm.residual_f32) {
    auto* four = reinterpret_cast<float4*>(static_cast<float*>(norm.residual) + at);
    four[0] = make_float4(values[0], values[1], values[2], values[3]);
    four[1] = make_float4(values[4], values[5], values[6], values[7]);
  } else {
    *reinterpret_cast<uint4*>(static_cast<bf16*>(norm.residual) + at) = pack_bf16(values);
  }
}

// One warp: the sum of squares of segment `segment` of the row that starts at element `first`.
__device__ __forceinline__ float segment_squares(const MoeNorm& norm, int64_t first, int inputs,
                                                 int segment) {
  const int lane = threadIdx.x % 32;
  float sum = 0.0f;
  for (int k = (segment * 32 + lane) * 8; k < inputs; k += kNormSegments * 256) {
    float values[8];
    load_residual(norm, first + k, values);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(values[i], values[i], sum);
  }
  return warp_sum(sum);
}

__device__ __forceinline__ float norm_factor(const float* segments, int inputs, float epsilon) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kNormSegments; ++i) sum += segments[i];
  return rsqrtf(sum / static_cast<float>(inputs) + epsilon);
}

// Eight values of the normed row, from column k on.
__device__ __forceinline__ uint4 normed_eight(const MoeNorm& norm, int k, float factor,
                                              const float (&values)[8]) {
  const auto* four = reinterpret_cast<const float4*>(norm.weight + k);
  const float4 low = four[0], high = four[1];
  const float weights[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  float normed[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) normed[i] = values[i] * factor * weights[i];
  return pack_bf16(normed);
}

}  // namespace frt::cuda
