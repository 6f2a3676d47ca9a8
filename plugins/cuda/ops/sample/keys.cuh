// SPDX-License-Identifier: Apache-2.0
// keys.cuh - the order of tokens: ascending keys are falling logits, then rising ids.
#pragma once

#include "../common/numbers.cuh"

namespace frt::cuda {

inline constexpr uint64_t kNoToken = ~uint64_t{0};

// No NaN. -0 and +0 are the same logit: add 0 first.
__device__ __forceinline__ uint64_t token_key(float logit, uint32_t id) {
  const uint32_t bits = __float_as_uint(logit);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (static_cast<uint64_t>(~ordered) << 32) | id;
}

__device__ __forceinline__ float logit_of(uint64_t key) {
  const uint32_t ordered = ~static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered & 0x80000000u ? ordered ^ 0x80000000u : ~ordered);
}

__device__ __forceinline__ uint32_t id_of(uint64_t key) {
  return static_cast<uint32_t>(key);
}

__device__ __forceinline__ uint64_t warp_min(uint64_t key) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    key = min(key, static_cast<uint64_t>(__shfl_xor_sync(~0u, key, offset)));
  }
  return key;
}

// The smallest key of the block, in every thread. `warps`: (32) shared.
__device__ __forceinline__ uint64_t block_min(uint64_t key, uint64_t* warps) {
  const unsigned lane = threadIdx.x % 32;
  key = warp_min(key);
  if (lane == 0) warps[threadIdx.x / 32] = key;
  __syncthreads();
  return warp_min(lane < blockDim.x / 32 ? warps[lane] : kNoToken);
}

// The sum over the block in a fixed order, in every thread. `warps`: (32) shared.
__device__ __forceinline__ float block_total(float value, float* warps) {
  const unsigned lane = threadIdx.x % 32;
  value = warp_sum(value);
  if (lane == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(lane < blockDim.x / 32 ? warps[lane] : 0.0f);
}

// The largest of the block, in every thread. `warps`: (32) shared.
__device__ __forceinline__ float block_max(float value, float* warps) {
  const unsigned lane = threadIdx.x % 32;
  value = warp_max(value);
  if (lane == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_max(lane < blockDim.x / 32 ? warps[lane] : -INFINITY);
}

}  // namespace frt::cuda
