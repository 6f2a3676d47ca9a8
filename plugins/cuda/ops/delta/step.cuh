// SPDX-License-Identifier: Apache-2.0
// ops/delta/step.cuh - a head of a sequence through a few rows, as a thread of step.cu sees
// it: convolution, delta rule, gated norm. Heads of 128 in bf16.
//
// 256 threads have one head of one sequence, its state in registers: warp w has the columns 16 w ..
// 16 w + 15, a lane 16 keys of four of them. Columns are independent, so the rows of a warp need no
// barrier: one pass over the old state gives S^T k and S^T q, shuffles add them up, and S_new^T q
// is exp(g) S^T q + (k . q) delta.
#pragma once

#include "../common/arch.cuh"
#include "../common/async_copy.cuh"
#include "gated_delta.cuh"

namespace frt::cuda::step {

inline constexpr int kDim = 128;
inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * 32;
inline constexpr int kKeys = 16;       // of a lane
inline constexpr int kMostRows = 4;    // convolved together
inline constexpr int kMaxCluster = 8;  // value heads of a key head that share its window
inline constexpr int kConvThreads = 3 * kDim / 2;
static_assert(kConvThreads + kMostRows <= kThreads);

struct StepArgs {
  frt_gated_delta_args delta;
  frt_causal_conv_args conv;
  const bf16* z;  // NULL: no norm, o is the output
  const float* norm_weight;
  bf16* y;
  float epsilon;
  int early;  // sequences, windows and states may be read before pdl_wait():
              // Stream::early_reads_safe()
};

template <int kHistory, int kRows>
struct Shared {
  alignas(16) float rows[kRows][3 * kDim];  // convolved q, k, v
  alignas(16) float out[kRows][kDim];
  alignas(16) float norm_weight[kDim];
  float2 conv_weight[kHistory + 1][kConvThreads];  // [kHistory] multiplies the present row
  float decay[kRows], beta[kRows];
};

__device__ __forceinline__ void cluster_arrive() {
#if FRT_ARCH_CLUSTERS
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if FRT_ARCH_CLUSTERS
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

__device__ __forceinline__ float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}
__device__ __forceinline__ float rounded(float value) {
  return to_float(from_float<bf16>(value));
}

// Constants on their way to shared memory; nobody waits for them until wait_constants(), and then
// for those of this thread.
template <int kCount>
__device__ __forceinline__ void copy_constants(void* to, const float* from) {
  copy_async_cached<kCount * 4>(shared_address(to), from);
}
__device__ __forceinline__ void wait_constants() {
  copies_wait_all();
}

// Two neighbouring channels of q, k or v: the last rows of u. The weights are the thread's own
// column of shared memory.
template <int kHistory>
struct Convolution {
  uint32_t past[kHistory] = {};  // pairs of bf16

  static __device__ void load_weights(const frt_causal_conv_args& args, int64_t channel,
                                      float2 (*to)[kConvThreads]) {
    const int skipped = kHistory + 1 - args.width;
#pragma unroll
    for (int w = 0; w <= kHistory; ++w) {
      if (w < skipped) {
        to[w][threadIdx.x] = make_float2(0.0f, 0.0f);
      } else {
        const float* from = args.conv_weight + (w - skipped) * static_cast<int64_t>(args.channels);
        copy_constants<2>(&to[w][threadIdx.x], from + channel);
      }
    }
  }
  __device__ void load_window(const frt_causal_conv_args& args, const bf16* window) {
    const int skipped = kHistory + 1 - args.width;
#pragma unroll
    for (int w = 0; w < kHistory; ++w) {
      past[w] = w < skipped ? 0u
                            : __ldcg(reinterpret_cast<const uint32_t*>(
                                  window + (w - skipped) * static_cast<int64_t>(args.channels)));
    }
  }
  __device__ void store_window(const frt_causal_conv_args& args, bf16* window) const {
    const int skipped = kHistory + 1 - args.width;
#pragma unroll
    for (int w = 0; w < kHistory; ++w) {
      if (w < skipped) continue;
      *reinterpret_cast<uint32_t*>(window + (w - skipped) * static_cast<int64_t>(args.channels)) =
          past[w];
    }
  }
  __device__ float2 next(uint32_t now, const float2 (*weights)[kConvThreads]) {
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w <= kHistory; ++w) {
      const float2 weight = weights[w][threadIdx.x];
      const uint32_t pair = w < kHistory ? past[w] : now;
      sum.x = fmaf(weight.x, low_half(pair), sum.x);
      sum.y = fmaf(weight.y, high_half(pair), sum.y);
    }
#pragma unroll
    for (int w = 0; w + 1 < kHistory; ++w) past[w] = past[w + 1];
    past[kHistory - 1] = now;
    return make_float2(rounded(silu_fast(sum.x)), rounded(silu_fast(sum.y)));
  }
};
// c is convolved already.
template <>
struct Convolution<0> {
  static __device__ void load_weights(const frt_causal_conv_args&, int64_t,
                                      float2 (*)[kConvThreads]) {}
  __device__ void load_window(const frt_causal_conv_args&, const bf16*) {}
  __device__ void store_window(const frt_causal_conv_args&, bf16*) const {}
  __device__ float2 next(uint32_t now, const float2 (*)[kConvThreads]) {
    return make_float2(low_half(now), high_half(now));
  }
};

// A head of a sequence, as one thread sees it. kRows rows at a time: one for sequences of one row,
// whose time is the way of code from memory, or kMostRows.
template <int kHistory, int kRows>
struct Head {
  __device__ Head(const StepArgs& step_args, int sequence_index, int head_index, int thread_index)
      : args(step_args),
        head(head_index),
        row0(static_cast<int64_t>(sequence_index) * step_args.delta.sequences.rows),
        thread(thread_index),
        lane(thread_index % 32),
        warp(thread_index / 32) {
    const frt_gated_delta_args& delta = args.delta;
    key_head = head / (delta.value_heads / delta.key_heads);
    channels = (2LL * delta.key_heads + delta.value_heads) * kDim;
    // The first 192 threads convolve, two channels each.
    convolves = thread < 3 * kDim / 2;
    part = thread / (kDim / 2);
    const int64_t part_head = part == 0   ? key_head
                              : part == 1 ? delta.key_heads + key_head
                                          : 2 * delta.key_heads + head;
    channel = part_head * kDim + thread % (kDim / 2) * 2;
  }

  // Constants: before pdl_wait().
  __device__ void load_constants(Shared<kHistory, kRows>& shared) {
    if (convolves) convolution.load_weights(args.conv, channel, shared.conv_weight);
    log_decay = args.delta.decay[head];
    dt_bias = args.delta.dt_bias[head];
    if (args.z && thread < kDim)
      copy_constants<1>(shared.norm_weight + thread, args.norm_weight + thread);
  }

  __device__ void load_window(int slot) {
    if constexpr (kHistory > 0) {
      window = reinterpret_cast<bf16*>(static_cast<char*>(args.conv.window) +
                                       slot * args.conv.slot_stride) +
               channel;
      if (convolves) convolution.load_window(args.conv, window);
    }
  }
  // The windows of q and k are replaced for the last of the heads that read them.
  __device__ void store_window(bool last) {
    if constexpr (kHistory > 0) {
      if (convolves && (part == 2 || last)) convolution.store_window(args.conv, window);
    }
  }

  // What rows first .. first + count - 1 need is asked for ...
  __device__ void load_rows(int first, int count) {
    const frt_gated_delta_args& delta = args.delta;
    if (convolves) {
      const bf16* u =
          static_cast<const bf16*>(kHistory ? args.conv.u : delta.c) + row0 * channels + channel;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r < count)
          now[r] = __ldcg(reinterpret_cast<const uint32_t*>(u + (first + r) * channels));
      }
    }
    if (gate_row() < static_cast<unsigned>(count)) {
      const int64_t at = row_of(first + static_cast<int>(gate_row()));
      a = to_float(static_cast<const bf16*>(delta.a)[at]);
      b = to_float(static_cast<const bf16*>(delta.b)[at]);
    }
    if (warp < count && args.z) {
      z = *reinterpret_cast<const uint2*>(args.z + row_of(first + warp) * kDim + lane * 4);
    }
  }
  // ... and put into shared memory.
  __device__ void prepare_rows(int count, Shared<kHistory, kRows>& shared) {
    wait_constants();
    if (convolves) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r < count) {
          *reinterpret_cast<float2*>(&shared.rows[r][thread * 2]) =
              convolution.next(now[r], shared.conv_weight);
        }
      }
    }
    if (gate_row() < static_cast<unsigned>(count)) {
      shared.decay[gate_row()] = expf(delta_log_decay(a, dt_bias, log_decay));
      shared.beta[gate_row()] = sigmoid(b);
    }
  }

  // The delta rule of `count` rows; what the last one does to the state is left to apply(), which
  // takes the result. state[j]: key lane / 4 * 16 + j, columns warp * 16 + lane % 4 *
  // 4 + {0 .. 3}.
  __device__ float4 update(int count, float4 (&state)[kKeys],
                           Shared<kHistory, kRows>& shared) const {
    const int first_key = lane / 4 * kKeys;
    // After the sums a lane has one column; the lower half of S^T k, the upper half of S^T q.
    const bool upper = lane & 16;
    const int column = warp * 16 + lane % 4 * 4 + lane / 4 % 4;
    for (int r = 0;; ++r) {
      const float* row = shared.rows[r];
      float4 with_k = make_float4(0, 0, 0, 0), with_q = make_float4(0, 0, 0, 0);
      float k_squares = 0, q_squares = 0, product = 0;
#pragma unroll
      for (int j = 0; j < kKeys; j += 4) {
        const float4 k4 = *reinterpret_cast<const float4*>(row + kDim + first_key + j);
        const float4 q4 = *reinterpret_cast<const float4*>(row + first_key + j);
        const float k[4] = {k4.x, k4.y, k4.z, k4.w}, q[4] = {q4.x, q4.y, q4.z, q4.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4 s = state[j + i];
          with_k.x = fmaf(s.x, k[i], with_k.x);
          with_k.y = fmaf(s.y, k[i], with_k.y);
          with_k.z = fmaf(s.z, k[i], with_k.z);
          with_k.w = fmaf(s.w, k[i], with_k.w);
          with_q.x = fmaf(s.x, q[i], with_q.x);
          with_q.y = fmaf(s.y, q[i], with_q.y);
          with_q.z = fmaf(s.z, q[i], with_q.z);
          with_q.w = fmaf(s.w, q[i], with_q.w);
          k_squares = fmaf(k[i], k[i], k_squares);
          q_squares = fmaf(q[i], q[i], q_squares);
          product = fmaf(q[i], k[i], product);
        }
      }
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        k_squares += __shfl_xor_sync(~0u, k_squares, offset);
        q_squares += __shfl_xor_sync(~0u, q_squares, offset);
        product += __shfl_xor_sync(~0u, product, offset);
      }
      // Every step keeps half of the sums and gives the other half away.
      const float4 kept = upper ? with_q : with_k, given = upper ? with_k : with_q;
      float4 four;
      four.x = kept.x + __shfl_xor_sync(~0u, given.x, 16);
      four.y = kept.y + __shfl_xor_sync(~0u, given.y, 16);
      four.z = kept.z + __shfl_xor_sync(~0u, given.z, 16);
      four.w = kept.w + __shfl_xor_sync(~0u, given.w, 16);
      const bool second = lane & 8, odd = lane & 4;
      float2 two;
      two.x = (second ? four.z : four.x) + __shfl_xor_sync(~0u, second ? four.x : four.z, 8);
      two.y = (second ? four.w : four.y) + __shfl_xor_sync(~0u, second ? four.y : four.w, 8);
      const float sum = (odd ? two.y : two.x) + __shfl_xor_sync(~0u, odd ? two.x : two.y, 4);

      const float k_factor = rsqrtf(k_squares + 1e-6f);
      const float q_factor = rsqrtf(q_squares + 1e-6f) * rsqrtf(static_cast<float>(kDim));
      const float decay = shared.decay[r];
      const float v = row[2 * kDim + column];
      // In the lower half: delta / norm of k.
      const float step = k_factor * shared.beta[r] * (v - decay * k_factor * sum);
      const float lower_step = __shfl_xor_sync(~0u, step, 16);
      if (upper) {
        shared.out[r][column] = rounded(q_factor * fmaf(product, lower_step, decay * sum));
      }
      const float4 steps =
          make_float4(__shfl_sync(~0u, step, lane % 4), __shfl_sync(~0u, step, lane % 4 + 4),
                      __shfl_sync(~0u, step, lane % 4 + 8), __shfl_sync(~0u, step, lane % 4 + 12));
      if (kRows == 1 || r + 1 == count) return steps;
      apply(r, steps, state, shared);
    }
  }
  __device__ void apply(int r, const float4& steps, float4 (&state)[kKeys],
                        const Shared<kHistory, kRows>& shared) const {
    const float* k_row = shared.rows[r] + kDim + lane / 4 * kKeys;
    const float decay = shared.decay[r];
#pragma unroll
    for (int j = 0; j < kKeys; j += 4) {
      const float4 k4 = *reinterpret_cast<const float4*>(k_row + j);
      const float k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float4& s = state[j + i];
        s.x = fmaf(k[i], steps.x, s.x * decay);
        s.y = fmaf(k[i], steps.y, s.y * decay);
        s.z = fmaf(k[i], steps.z, s.z * decay);
        s.w = fmaf(k[i], steps.w, s.w * decay);
      }
    }
  }

  // y, or o where there is no norm: warp w has row first + w.
  __device__ void store_rows(int first, int count, const Shared<kHistory, kRows>& shared) const {
    if (warp >= count) return;
    float4 o = *reinterpret_cast<const float4*>(&shared.out[warp][lane * 4]);
    bf16* target = static_cast<bf16*>(args.delta.o);
    if (args.z) {
      target = args.y;
      const float squares = warp_sum(o.x * o.x + o.y * o.y + o.z * o.z + o.w * o.w);
      const float factor = rsqrtf(squares / static_cast<float>(kDim) + args.epsilon);
      const float4 norm_weight = *reinterpret_cast<const float4*>(&shared.norm_weight[lane * 4]);
      o.x *= factor * norm_weight.x * silu_fast(low_half(z.x));
      o.y *= factor * norm_weight.y * silu_fast(high_half(z.x));
      o.z *= factor * norm_weight.z * silu_fast(low_half(z.y));
      o.w *= factor * norm_weight.w * silu_fast(high_half(z.y));
    }
    Vector<bf16, 4> values;
    values.values[0] = from_float<bf16>(o.x);
    values.values[1] = from_float<bf16>(o.y);
    values.values[2] = from_float<bf16>(o.z);
    values.values[3] = from_float<bf16>(o.w);
    *reinterpret_cast<Vector<bf16, 4>*>(target + row_of(first + warp) * kDim + lane * 4) = values;
  }

  __device__ int64_t row_of(int row) const {
    return (row0 + row) * args.delta.value_heads + head;
  }
  // The gates of a row are a thread's that convolves nothing.
  __device__ unsigned gate_row() const {
    return static_cast<unsigned>(thread) - kConvThreads;
  }
  // Where the thread's part of a state begins; key j follows j * kDim further on.
  __device__ int state_offset() const {
    return lane / 4 * kKeys * kDim + warp * 16 + lane % 4 * 4;
  }

  const StepArgs& args;
  int head, key_head;
  int64_t row0, channels, channel;
  int thread, lane, warp, part;
  bool convolves;
  Convolution<kHistory> convolution;
  float log_decay, dt_bias;
  bf16* window = nullptr;
  uint32_t now[kRows] = {};
  float a = 0, b = 0;
  uint2 z = make_uint2(0, 0);
};

__device__ __forceinline__ float* head_state(const frt_gated_delta_args& delta, int slot,
                                             int head) {
  return reinterpret_cast<float*>(static_cast<char*>(delta.state) + slot * delta.slot_stride) +
         static_cast<int64_t>(head) * kDim * kDim;
}

}  // namespace frt::cuda::step
