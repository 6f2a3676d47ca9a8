// SPDX-License-Identifier: Apache-2.0
// ops/delta/gated_delta.cuh - what the kernels of the gated delta net share: where the channels of
// a head are, the gates, and the variants that compute the delta rule.
//
//   recurrent.cu   any dimensions, f32 and bf16: row by row, the other parts as own launches
//   step.cu        heads of 128 in bf16, few rows: everything in one kernel
//   chunk.cu       heads of 128 in bf16, many rows: chunks of 64 on tensor cores
#pragma once

#include <frt/ops/gated_delta.h>

#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../variants.hpp"

namespace frt::cuda {

class KernelList;

// The operator frt.gated_delta/1, or the whole block: then `block` is set and delta is its part.
struct DeltaWork {
  frt_gated_delta_args delta;
  const frt_gated_delta_block_args* block = nullptr;
};

// o and the state from c.  [driver]
void launch_delta_recurrent(Stream& stream, const frt_gated_delta_args& args);
// y from o and z.  [driver]
void launch_gated_norm(Stream& stream, const frt_gated_delta_block_args& args);

// What the variants are given.
using DeltaCall = const DeltaWork;

// Few rows in one kernel, with the convolution of a block where a cluster can hold the value heads
// of a key head. Without, a block's convolution is a launch of its own.
bool supports_delta_step_conv(Device& device, DeltaCall& work);
void launch_delta_step_conv(Stream& stream, DeltaCall& work);
bool supports_delta_step(Device& device, DeltaCall& work);
void launch_delta_step(Stream& stream, DeltaCall& work);

// Many rows in chunks.
bool supports_delta_chunk(Device& device, DeltaCall& work);
void launch_delta_chunk(Stream& stream, DeltaCall& work);
void register_delta_chunk(KernelList& list);

inline bool aligned(const void* pointer, int64_t stride, std::size_t bytes) {
  return (reinterpret_cast<uintptr_t>(pointer) | static_cast<uintptr_t>(stride)) % bytes == 0;
}

// Channels of a row of c: [q | k | v].
__host__ __device__ inline int64_t delta_channels(const frt_gated_delta_args& args) {
  return 2LL * args.key_heads * args.key_dim +
         static_cast<int64_t>(args.value_heads) * args.value_dim;
}

__device__ __forceinline__ float* delta_state(const frt_gated_delta_args& args, int sequence,
                                              int head) {
  char* slot = static_cast<char*>(args.state) + args.sequences.slot[sequence] * args.slot_stride;
  return reinterpret_cast<float*>(slot) +
         static_cast<int64_t>(head) * args.key_dim * args.value_dim;
}

__device__ __forceinline__ float softplus(float x) {
  return x > 20.0f ? x : log1pf(expf(x));
}

// silu for results in bf16: two approximate functions, no division.
__device__ __forceinline__ float silu_fast(float x) {
  float exponential, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(x * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + exponential));
  return x * inverse;
}

// g of a row: the logarithm of its decay. exp(g) is 0 long before -128; cut there, infinities stay
// out of the sums, and NaN stays NaN.
__device__ __forceinline__ float delta_log_decay(float a, float dt_bias, float decay) {
  const float g = decay * softplus(a + dt_bias);
  return g < -128.0f ? -128.0f : g;
}

}  // namespace frt::cuda
