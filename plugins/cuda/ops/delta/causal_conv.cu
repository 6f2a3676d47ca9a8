// SPDX-License-Identifier: Apache-2.0
// frt.causal_conv/1: c = silu(depthwise causal convolution of u).
//
// Floor: u read, c written once; 8192 rows of 10240 channels in bf16 are 336 MB, 72 us at 4.65
// TB/s. A thread takes a few neighbouring channels (16 bytes of u where rows are aligned) through a
// strip of rows; the last width-1 rows stay in registers, so a strip reads width-1 rows more than
// it writes. The rows of the next group are asked for before the present group is computed.
//
// The window is read and replaced by the thread that has the first strip of its channels, and by no
// other: the new window consists of rows of u and of the old window, which that thread has read.
#include "causal_conv.cuh"

#include <frt/ops/checks/gated_delta.hpp>

#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../registry.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kGroup = 4;  // rows asked for together

template <class T, int N>
__device__ __forceinline__ void load_values(const T* from, float (&to)[N]) {
  const auto vector = *reinterpret_cast<const Vector<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(vector.values[i]);
}

template <class T, int N>
__device__ __forceinline__ void store_values(T* to, const float (&from)[N]) {
  Vector<T, N> vector;
#pragma unroll
  for (int i = 0; i < N; ++i) vector.values[i] = from_float<T>(from[i]);
  *reinterpret_cast<Vector<T, N>*>(to) = vector;
}

// Grid: (blocks of channels, strips of rows, sequences). N channels of a thread, kHistory rows
// before the present one at most; taps beyond `width` have the weight 0.
template <class T, int N, int kHistory>
__global__ void __launch_bounds__(kThreads)
    conv_kernel(const frt_causal_conv_args args, int strip_rows) {
  pdl_trigger();
  const int channel = (blockIdx.x * kThreads + threadIdx.x) * N;
  const int64_t channels = args.channels;
  if (channel >= channels) return;
  const int history = args.width - 1;
  float weight[kHistory + 1][N];  // [kHistory] multiplies the present row
#pragma unroll
  for (int w = 0; w <= kHistory; ++w) {
    const int tap = w - (kHistory - history);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      weight[w][i] = tap < 0 ? 0.0f : args.conv_weight[tap * channels + channel + i];
    }
  }
  pdl_wait();
  const int length = active_length(args.sequences, blockIdx.z);
  const int first = blockIdx.y * strip_rows;
  if (first >= length) return;
  const int64_t row0 = static_cast<int64_t>(blockIdx.z) * args.sequences.rows;
  const T* u = static_cast<const T*>(args.u) + row0 * channels + channel;
  T* c = static_cast<T*>(args.c) + row0 * channels + channel;
  T* window = reinterpret_cast<T*>(static_cast<char*>(args.window) +
                                   args.sequences.slot[blockIdx.z] * args.slot_stride) +
              channel;

  float past[kHistory][N];  // rows t - kHistory .. t - 1
#pragma unroll
  for (int w = 0; w < kHistory; ++w) {
    const int row = first - kHistory + w;
    if (row >= 0) {
      load_values<T, N>(u + row * channels, past[w]);
    } else if (row >= -history) {
      load_values<T, N>(window + (history + row) * channels, past[w]);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) past[w][i] = 0.0f;
    }
  }

  if (first == 0 && args.keep_window == 0) {
    // Row j of the new window is row length - history + j; those before row 0 move up in place,
    // oldest first, and `past` already has what the convolution needs of them.
    for (int j = 0; j < history; ++j) {
      const int row = length - history + j;
      float values[N];
      load_values<T, N>(row >= 0 ? u + row * channels : window + (history + row) * channels,
                        values);
      store_values<T, N>(window + j * channels, values);
    }
  }

  const int end = min(length, first + strip_rows);
  for (int t = first; t < end; t += kGroup) {
    float now[kGroup][N];
#pragma unroll
    for (int r = 0; r < kGroup; ++r) {
      if (t + r < end) load_values<T, N>(u + (t + r) * channels, now[r]);
    }
#pragma unroll
    for (int r = 0; r < kGroup; ++r) {
      if (t + r >= end) break;
      float sum[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sum[i] = 0.0f;
#pragma unroll
        for (int w = 0; w < kHistory; ++w) sum[i] = fmaf(weight[w][i], past[w][i], sum[i]);
        sum[i] = silu(fmaf(weight[kHistory][i], now[r][i], sum[i]));
#pragma unroll
        for (int w = 0; w + 1 < kHistory; ++w) past[w][i] = past[w + 1][i];
        past[kHistory - 1][i] = now[r][i];
      }
      store_values<T, N>(c + (t + r) * channels, sum);
    }
  }
}

template <class T, int N, int kHistory>
void launch_conv(Stream& stream, const frt_causal_conv_args& args) {
  const int64_t blocks = ceil_div(ceil_div(args.channels, N), kThreads);
  // Strips as long as the device stays full: a strip reads `history` rows twice.
  const int64_t wanted = 16LL * stream.device().properties().multiprocessors;
  int strip = 64;
  while (strip > 8 &&
         blocks * args.sequences.count * ceil_div(args.sequences.rows, strip) < wanted) {
    strip /= 2;
  }
  Grid grid{dim3(static_cast<unsigned>(blocks),
                 static_cast<unsigned>(ceil_div(args.sequences.rows, strip)),
                 static_cast<unsigned>(args.sequences.count)),
            dim3(kThreads)};
  launch(stream, grid, conv_kernel<T, N, kHistory>, args, strip);
}

template <class T, int N>
void launch_width(Stream& stream, const frt_causal_conv_args& args) {
  if (args.width <= 4) {
    launch_conv<T, N, 3>(stream, args);
  } else {
    launch_conv<T, N, 7>(stream, args);
  }
}

void causal_conv(Stream& stream, const frt_causal_conv_args& args) {
  check_causal_conv(Checks(FRT_OP_CAUSAL_CONV), args);
  launch_causal_conv(stream, args);
}

}  // namespace

void launch_causal_conv(Stream& stream, const frt_causal_conv_args& args) {
  const auto bytes = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  const uintptr_t places =
      bytes(args.u) | bytes(args.c) | bytes(args.window) | static_cast<uintptr_t>(args.slot_stride);
  if (args.dtype == FRT_DTYPE_F32) {
    launch_width<float, 1>(stream, args);
  } else if (args.channels % 8 == 0 && places % 16 == 0) {
    // Few rows: fewer channels per thread, for more threads.
    if (static_cast<int64_t>(args.sequences.count) * args.sequences.rows <= 64) {
      launch_width<bf16, 2>(stream, args);
    } else {
      launch_width<bf16, 8>(stream, args);
    }
  } else {
    launch_width<bf16, 1>(stream, args);
  }
}

void register_causal_conv(KernelList& list) {
  list.add<frt_causal_conv_args>(FRT_OP_CAUSAL_CONV, kFloatTypes, {}, causal_conv);
}

}  // namespace frt::cuda
