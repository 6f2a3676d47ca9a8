// SPDX-License-Identifier: Apache-2.0
// The whole block for a few rows per sequence, in one kernel: convolution, delta rule, gated norm.
// Heads of 128 in bf16, the shape of decoding and of checking drafted tokens.
//
// Floor: the state read and written once. 48 heads of 64 KB are 6.3 MB, 1.5 us at 4.3 TB/s; one
// sequence is a matter of latency, 32 of them of bandwidth.
//
// A block of threads has one head of one sequence; its state lives in registers: warp w has the
// keys 16 w .. 16 w + 15, a lane four columns of each. All of it is asked for at once, before
// anything else, and the convolution is computed while it comes. Per row one pass over the old
// state gives S^T k and S^T q, and S_new^T q = exp(g) S^T q + (k . q) delta: one sum across warps,
// two barriers.
//
// The channels of q and k are wanted by every value head of a key head, and their window is
// replaced in place: these blocks form a cluster, all of them read the window, and the first one
// writes it once all have arrived at the cluster's barrier, which is passed at the very end. Where
// there are no clusters, or they would be too large, the convolution is a launch of its own before
// this one.
#include <frt/error.hpp>

#include "causal_conv.cuh"
#include "gated_delta.cuh"

namespace frt::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kKeys = kDim / kWarps;  // of a warp
constexpr int kRows = 8;              // convolved together
constexpr int kTogether = 4;          // of them asked for together
constexpr int kMaxCluster = 8;
constexpr int kMaxRows = 24;  // beyond, chunks are faster

struct StepArgs {
  frt_gated_delta_args delta;
  frt_causal_conv_args conv;
  const bf16* z;  // NULL: no norm, o is the output
  const float* norm_weight;
  bf16* y;
  float epsilon;
};

struct RowFactors {
  float decay, beta;
  float q, k;     // 1 / norm; of q with the scale
  float product;  // q . k of the convolved rows
};

struct Shared {
  alignas(16) float rows[kRows][3 * kDim];     // convolved q, k, v
  alignas(16) float partial[kWarps][2][kDim];  // S^T k, S^T q of a warp's keys
  alignas(16) float step[kDim];                // delta * (1 / norm of k)
  alignas(16) float out[kRows][kDim];
  RowFactors factors[kRows];
};

__device__ __forceinline__ void cluster_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
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

// Two neighbouring channels of q, k or v: their weights and the last rows of u.
template <int kHistory>
struct Convolution {
  float2 weight[kHistory + 1];  // [kHistory] multiplies the present row
  uint32_t past[kHistory];      // pairs of bf16

  __device__ void load_weights(const frt_causal_conv_args& args, int64_t channel) {
    const int skipped = kHistory + 1 - args.width;
#pragma unroll
    for (int w = 0; w <= kHistory; ++w) {
      weight[w] = make_float2(0.0f, 0.0f);
      if (w < skipped) continue;
      const float* from = args.conv_weight + (w - skipped) * static_cast<int64_t>(args.channels);
      weight[w] = make_float2(from[channel], from[channel + 1]);
    }
  }
  __device__ void load_window(const frt_causal_conv_args& args, const bf16* window) {
    const int skipped = kHistory + 1 - args.width;
#pragma unroll
    for (int w = 0; w < kHistory; ++w) {
      past[w] = w < skipped ? 0u
                            : *reinterpret_cast<const uint32_t*>(
                                  window + (w - skipped) * static_cast<int64_t>(args.channels));
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
  __device__ float2 next(uint32_t now) {
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < kHistory; ++w) {
      sum.x = fmaf(weight[w].x, low_half(past[w]), sum.x);
      sum.y = fmaf(weight[w].y, high_half(past[w]), sum.y);
    }
    sum.x = fmaf(weight[kHistory].x, low_half(now), sum.x);
    sum.y = fmaf(weight[kHistory].y, high_half(now), sum.y);
#pragma unroll
    for (int w = 0; w + 1 < kHistory; ++w) past[w] = past[w + 1];
    past[kHistory - 1] = now;
    return make_float2(rounded(silu(sum.x)), rounded(silu(sum.y)));
  }
};
// c is convolved already.
template <>
struct Convolution<0> {
  __device__ void load_weights(const frt_causal_conv_args&, int64_t) {}
  __device__ void load_window(const frt_causal_conv_args&, const bf16*) {}
  __device__ void store_window(const frt_causal_conv_args&, bf16*) const {}
  __device__ float2 next(uint32_t now) { return make_float2(low_half(now), high_half(now)); }
};

__device__ __forceinline__ RowFactors row_factors(const float* q_row, const float* k_row, float a,
                                                  float b, float dt_bias, float decay, int lane) {
  const float4 q = *reinterpret_cast<const float4*>(q_row + lane * 4);
  const float4 k = *reinterpret_cast<const float4*>(k_row + lane * 4);
  const float q_squares = warp_sum(q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w);
  const float k_squares = warp_sum(k.x * k.x + k.y * k.y + k.z * k.z + k.w * k.w);
  RowFactors made;
  made.product = warp_sum(q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w);
  made.q = rsqrtf(static_cast<float>(kDim)) / sqrtf(q_squares + 1e-6f);
  made.k = 1.0f / sqrtf(k_squares + 1e-6f);
  made.decay = expf(delta_log_decay(a, dt_bias, decay));
  made.beta = sigmoid(b);
  return made;
}

// Grid: (value heads, sequences); with a convolution, clusters of the value heads of a key head.
template <int kHistory>
__global__ void __launch_bounds__(kThreads, 2) step_kernel(const __grid_constant__ StepArgs args) {
  __shared__ Shared shared;
  pdl_trigger();
  const frt_gated_delta_args& delta = args.delta;
  const int head = blockIdx.x, sequence = blockIdx.y;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int ratio = delta.value_heads / delta.key_heads;
  const int key_head = head / ratio;
  const int64_t channels = (2LL * delta.key_heads + delta.value_heads) * kDim;

  // The first 192 threads convolve, two channels each.
  const bool convolves = threadIdx.x < 3 * kDim / 2;
  const int part = threadIdx.x / (kDim / 2);
  const int64_t part_head = part == 0   ? key_head
                            : part == 1 ? delta.key_heads + key_head
                                        : 2 * delta.key_heads + head;
  const int64_t channel = part_head * kDim + threadIdx.x % (kDim / 2) * 2;
  Convolution<kHistory> convolution;
  if (convolves) convolution.load_weights(args.conv, channel);
  const float head_decay = delta.decay[head], dt_bias = delta.dt_bias[head];

  pdl_wait();
  const int slot = delta.sequences.slot[sequence];
  const int length = active_length(delta.sequences, sequence);
  if (length == 0) return;
  float* saved =
      reinterpret_cast<float*>(static_cast<char*>(delta.state) + slot * delta.slot_stride) +
      (static_cast<int64_t>(head) * kDim + warp * kKeys) * kDim + lane * 4;
  float4 state[kKeys];
#pragma unroll
  for (int j = 0; j < kKeys; ++j) state[j] = *reinterpret_cast<const float4*>(saved + j * kDim);

  const int64_t row0 = static_cast<int64_t>(sequence) * delta.sequences.rows;
  const bf16* u =
      static_cast<const bf16*>(kHistory ? args.conv.u : delta.c) + row0 * channels + channel;
  bf16* window = nullptr;
  if constexpr (kHistory > 0) {
    window = reinterpret_cast<bf16*>(static_cast<char*>(args.conv.window) +
                                     slot * args.conv.slot_stride) +
             channel;
    if (convolves) convolution.load_window(args.conv, window);
  }

  for (int first = 0; first < length; first += kRows) {
    const int count = min(kRows, length - first);
    // What warp w needs for row w comes along with u.
    const int64_t own = (row0 + first + warp) * delta.value_heads + head;
    float a = 0, b = 0;
    uint2 z = make_uint2(0, 0);
    if (warp < count) {
      a = to_float(static_cast<const bf16*>(delta.a)[own]);
      b = to_float(static_cast<const bf16*>(delta.b)[own]);
      if (args.z) z = *reinterpret_cast<const uint2*>(args.z + own * kDim + lane * 4);
    }
    if (convolves) {
      for (int start = 0; start < count; start += kTogether) {
        uint32_t now[kTogether];
#pragma unroll
        for (int r = 0; r < kTogether; ++r) {
          if (start + r < count) {
            now[r] = *reinterpret_cast<const uint32_t*>(u + (first + start + r) * channels);
          }
        }
#pragma unroll
        for (int r = 0; r < kTogether; ++r) {
          if (start + r < count) {
            *reinterpret_cast<float2*>(&shared.rows[start + r][threadIdx.x * 2]) =
                convolution.next(now[r]);
          }
        }
      }
    }
    if (kHistory > 0 && first == 0) cluster_arrive();  // the window is read
    __syncthreads();
    if (warp < count) {
      const RowFactors factors =
          row_factors(shared.rows[warp], shared.rows[warp] + kDim, a, b, dt_bias, head_decay, lane);
      if (lane == 0) shared.factors[warp] = factors;
    }
    __syncthreads();

    for (int r = 0; r < count; ++r) {
      const float* q = shared.rows[r] + warp * kKeys;
      const float* k = q + kDim;
      float4 with_k = make_float4(0, 0, 0, 0), with_q = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        const float4 s = state[j];
        with_k.x = fmaf(s.x, k[j], with_k.x);
        with_k.y = fmaf(s.y, k[j], with_k.y);
        with_k.z = fmaf(s.z, k[j], with_k.z);
        with_k.w = fmaf(s.w, k[j], with_k.w);
        with_q.x = fmaf(s.x, q[j], with_q.x);
        with_q.y = fmaf(s.y, q[j], with_q.y);
        with_q.z = fmaf(s.z, q[j], with_q.z);
        with_q.w = fmaf(s.w, q[j], with_q.w);
      }
      *reinterpret_cast<float4*>(&shared.partial[warp][0][lane * 4]) = with_k;
      *reinterpret_cast<float4*>(&shared.partial[warp][1][lane * 4]) = with_q;
      __syncthreads();

      // Half of the threads sum S^T k, the other half S^T q, a column each.
      const int half = threadIdx.x / kDim, column = threadIdx.x % kDim;
      const RowFactors factors = shared.factors[r];
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += shared.partial[w][half][column];
      if (half == 0) {
        const float v = shared.rows[r][2 * kDim + column];
        shared.step[column] = factors.k * factors.beta * (v - factors.decay * factors.k * sum);
      }
      __syncthreads();

      if (half == 1) {
        shared.out[r][column] =
            rounded(factors.q * (factors.decay * sum + factors.product * shared.step[column]));
      }
      const float4 step = *reinterpret_cast<const float4*>(&shared.step[lane * 4]);
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        float4& s = state[j];
        s.x = fmaf(k[j], step.x, s.x * factors.decay);
        s.y = fmaf(k[j], step.y, s.y * factors.decay);
        s.z = fmaf(k[j], step.z, s.z * factors.decay);
        s.w = fmaf(k[j], step.w, s.w * factors.decay);
      }
    }
    if (first + kRows >= length) {
#pragma unroll
      for (int j = 0; j < kKeys; ++j) *reinterpret_cast<float4*>(saved + j * kDim) = state[j];
    }
    __syncthreads();

    if (warp < count) {
      float4 o = *reinterpret_cast<const float4*>(&shared.out[warp][lane * 4]);
      bf16* target = static_cast<bf16*>(delta.o);
      if (args.z) {
        target = args.y;
        const float squares = warp_sum(o.x * o.x + o.y * o.y + o.z * o.z + o.w * o.w);
        const float factor = rsqrtf(squares / static_cast<float>(kDim) + args.epsilon);
        const float* weight = args.norm_weight + lane * 4;
        o.x *= factor * weight[0] * silu(low_half(z.x));
        o.y *= factor * weight[1] * silu(high_half(z.x));
        o.z *= factor * weight[2] * silu(low_half(z.y));
        o.w *= factor * weight[3] * silu(high_half(z.y));
      }
      Vector<bf16, 4> values;
      values.values[0] = from_float<bf16>(o.x);
      values.values[1] = from_float<bf16>(o.y);
      values.values[2] = from_float<bf16>(o.z);
      values.values[3] = from_float<bf16>(o.w);
      *reinterpret_cast<Vector<bf16, 4>*>(target + own * kDim + lane * 4) = values;
    }
  }

  if constexpr (kHistory > 0) {
    cluster_wait();
    if (convolves && (part == 2 || head == key_head * ratio)) {
      convolution.store_window(args.conv, window);
    }
  }
}

void launch_clusters(Stream& stream, const StepArgs& args, dim3 blocks, unsigned cluster,
                     void (*kernel)(StepArgs)) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = cluster;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(kThreads);
  config.stream = stream.native();
  config.attrs = attributes;
  config.numAttrs = 2;
  stream.device().check(cudaLaunchKernelEx(&config, kernel, args), "gated delta step: launch");
}

}  // namespace

bool fits_delta_step(const DeltaWork& work) {
  const frt_gated_delta_args& delta = work.delta;
  if (delta.dtype != FRT_DTYPE_BF16 || delta.key_dim != kDim || delta.value_dim != kDim) {
    return false;
  }
  if (delta.sequences.rows > kMaxRows || delta.sequences.count > 65535) return false;
  if (!aligned(delta.state, delta.slot_stride, 16) || !aligned(delta.c, 0, 4) ||
      !aligned(delta.o, 0, 8)) {
    return false;
  }
  if (!work.block) return true;
  const frt_causal_conv_args& conv = work.block->conv;
  return aligned(conv.u, 0, 4) && aligned(conv.window, conv.slot_stride, 4) &&
         aligned(work.block->z, 0, 8) && aligned(work.block->y, 0, 8);
}

void launch_delta_step(Stream& stream, const DeltaWork& work) {
  StepArgs args{};
  args.delta = work.delta;
  const dim3 blocks(static_cast<unsigned>(work.delta.value_heads),
                    static_cast<unsigned>(work.delta.sequences.count));
  if (work.block) {
    args.conv = work.block->conv;
    args.z = static_cast<const bf16*>(work.block->z);
    args.norm_weight = work.block->norm_weight;
    args.y = static_cast<bf16*>(work.block->y);
    args.epsilon = work.block->epsilon;
    const int ratio = work.delta.value_heads / work.delta.key_heads;
    if (FRT_CUDA_ARCH >= 90 && ratio <= kMaxCluster) {
      launch_clusters(stream, args, blocks, static_cast<unsigned>(ratio),
                      args.conv.width <= 4 ? step_kernel<3> : step_kernel<7>);
      return;
    }
    launch_causal_conv(stream, args.conv);
  }
  launch(stream, Grid{blocks, dim3(kThreads)}, step_kernel<0>, args);
}

}  // namespace frt::cuda
