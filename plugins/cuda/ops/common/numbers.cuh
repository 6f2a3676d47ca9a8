// SPDX-License-Identifier: Apache-2.0
// numbers.cuh - element types on the device: conversion to and from f32, 16-byte loads, sums over a
// warp. Conversions round to nearest even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <frt/ops/sequences.h>

#include <cstdint>

namespace frt::cuda {

using bf16 = __nv_bfloat16;
using f8e4m3 = __nv_fp8_e4m3;

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(bf16 value) {
  return __bfloat162float(value);
}
__device__ __forceinline__ float to_float(__half value) {
  return __half2float(value);
}
__device__ __forceinline__ float to_float(f8e4m3 value) {
  return static_cast<float>(value);
}

template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ f8e4m3 from_float<f8e4m3>(float value) {
  return f8e4m3(value);
}

// N values loaded or stored as one access of at most 16 bytes; the address must be aligned to it.
template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  T values[N];
};

// 16 bytes that are read once: past L1, streamed.
__device__ __forceinline__ uint4 load_stream(const void* pointer) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(pointer));
  return value;
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  }
  return value;
}

__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + __expf(-x));
}
__device__ __forceinline__ float silu(float x) {
  return x / (1.0f + __expf(-x));
}

// z/2 (1 + tanh(u)), u = 0.7978845608 (z + 0.044715 z^3), as z sigmoid(2u).
__device__ __forceinline__ float gelu(float z) {
  return z / (1.0f + __expf(-1.5957691216f * (z + 0.044715f * z * z * z)));
}

// The rows to compute: all, or what `row_count` says when the work runs.
__device__ __forceinline__ int active_rows(int rows, const int32_t* row_count) {
  if (!row_count) return rows;
  const int count = *row_count;
  return count < 0 ? 0 : count < rows ? count : rows;
}

// The valid rows of sequence `b`.
__device__ __forceinline__ int active_length(const frt_sequences& sequences, int b) {
  const int length = sequences.length[b];
  return length < 0 ? 0 : length < sequences.rows ? length : sequences.rows;
}

}  // namespace frt::cuda
