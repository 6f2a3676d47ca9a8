// SPDX-License-Identifier: Apache-2.0
// attention_rows.cuh - what the forms of attention share on the device: the positions a row sees,
// a vector's norm and rotation, a cache of three element types.
#pragma once

#include <frt/ops/attention.h>

#include "launch.cuh"
#include "numbers.cuh"

namespace frt::cuda {

// Positions that row `q` of a sequence at `position` attends to.
__device__ __forceinline__ int seen_positions(int position, int q, int max_rows) {
  const int seen = position + q + 1;
  return seen < 1 ? 1 : seen < max_rows ? seen : max_rows;
}

// 2^x, results below the normal range are 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <class T, int N>
__device__ __forceinline__ Vector<T, N> load_vector(const T* from) {
  return *reinterpret_cast<const Vector<T, N>*>(from);
}

template <int N, class Target>
__device__ __forceinline__ void store_floats(Target* to, const float* from, float scale) {
  Vector<Target, N> packed;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    packed.values[i] = from_float<Target>(sizeof(Target) == 1 ? from[i] / scale : from[i]);
  }
  *reinterpret_cast<Vector<Target, N>*>(to) = packed;
}

// Elements [at, at + N) of a row of the cache, whose element type is known at run time.
template <int N>
__device__ __forceinline__ void store_cache(frt_dtype dtype, void* row, int64_t at,
                                            const float* from, float scale) {
  if (dtype == FRT_DTYPE_BF16) {
    store_floats<N>(static_cast<bf16*>(row) + at, from, scale);
  } else if (dtype == FRT_DTYPE_F8_E4M3) {
    store_floats<N>(static_cast<f8e4m3*>(row) + at, from, scale);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) static_cast<float*>(row)[at + i] = from[i];
  }
}

// One warp: x = rope(rms_norm(source) * weight) in shared memory; the norm only with a weight.
// Lane l holds elements N l + 32 N i + (0 .. N-1); every lane sees all of x afterwards.
template <int N, class T>
__device__ void rotate_vector(const frt_attention_append_args& args, const T* source,
                              const float* weight, int position, float* x) {
  const int lane = threadIdx.x % 32;
  float squares = 0;
  for (int at = lane * N; at < args.head_dim; at += 32 * N) {
    const Vector<T, N> part = load_vector<T, N>(source + at);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float value = to_float(part.values[i]);
      x[at + i] = value;
      squares += value * value;
    }
  }
  if (weight) {
    squares = warp_sum(squares);
    const float factor = 1.0f / sqrtf(squares / static_cast<float>(args.head_dim) + args.epsilon);
    for (int at = lane * N; at < args.head_dim; at += 32 * N) {
#pragma unroll
      for (int i = 0; i < N; ++i) x[at + i] *= factor * weight[at + i];
    }
  }
  __syncwarp();
  const int half = args.rotary_dim / 2;
  for (int j = lane; j < half; j += 32) {
    // The full-range functions: angles reach the positions themselves, hundreds of thousands.
    float sine, cosine;
    sincosf(static_cast<float>(position) * args.inv_freq[j], &sine, &cosine);
    sine *= args.rope_scale;
    cosine *= args.rope_scale;
    const float low = x[j], high = x[j + half];
    x[j] = low * cosine - high * sine;
    x[j + half] = high * cosine + low * sine;
  }
  __syncwarp();
}

__device__ __forceinline__ std::byte* cache_row(void* cache, int64_t slot_bytes, int position,
                                                int64_t row_bytes) {
  return static_cast<std::byte*>(cache) + slot_bytes + position * row_bytes;
}

__device__ __forceinline__ int cache_element_bytes(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? 4 : dtype == FRT_DTYPE_BF16 ? 2 : 1;
}

// One warp: stores key/value head `head` of row `q` of sequence `b` in the cache. `x`: head_dim
// floats of shared memory of its own.
template <int N, class T>
__device__ void store_key(const frt_attention_append_args& args, int64_t row, int slot,
                          int position, int head, float* x) {
  const int lane = threadIdx.x % 32;
  const int64_t width = static_cast<int64_t>(args.kv_heads) * args.head_dim;
  const int64_t at = static_cast<int64_t>(head) * args.head_dim;
  rotate_vector<N>(args, static_cast<const T*>(args.k) + row * width + at, args.k_norm, position,
                   x);
  std::byte* to = cache_row(args.keys, slot * args.slot_stride, position,
                            width * cache_element_bytes(args.kv_dtype));
  for (int i = lane * N; i < args.head_dim; i += 32 * N) {
    store_cache<N>(args.kv_dtype, to, at + i, x + i, args.k_scale);
  }
}

template <int N, class T>
__device__ void store_value(const frt_attention_append_args& args, int64_t row, int slot,
                            int position, int head) {
  const int lane = threadIdx.x % 32;
  const int64_t width = static_cast<int64_t>(args.kv_heads) * args.head_dim;
  const int64_t at = static_cast<int64_t>(head) * args.head_dim;
  const T* from = static_cast<const T*>(args.v) + row * width + at;
  std::byte* to = cache_row(args.values, slot * args.slot_stride, position,
                            width * cache_element_bytes(args.kv_dtype));
  for (int i = lane * N; i < args.head_dim; i += 32 * N) {
    const Vector<T, N> part = load_vector<T, N>(from + i);
    float values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = to_float(part.values[j]);
    store_cache<N>(args.kv_dtype, to, at + i, values, args.v_scale);
  }
}

}  // namespace frt::cuda
