// SPDX-License-Identifier: Apache-2.0
// frt.row_norm/1: root mean square, layer and adaptive norms of rows.
//
// Floor: x once, y once; encoders have 512 x 1152 and prefixes 560 x 2048 in bf16, 2 us of latency
// each. What runs once is fetched from far away, about 8 cycles an instruction, so layers' norms
// have a kernel of few instructions: a block has a row, a thread eight values of it, and the
// weights are there before the kernel ahead has ended.
//
// The general kernel has a block for a row. A thread keeps what it has read, eight values at a
// time, in registers; rows wider than 8 * kThreads * kKept are read again. The mean of squares of a
// layer norm is taken from deviations, in a second round over the registers.
#include "row_norm.cuh"

#include "../registry.hpp"
#include "convert_values.cuh"
#include "launch.cuh"
#include "pieces.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kKept = 4;  // runs of values a thread keeps

// The sum over the block, in every thread. `room` is for this sum alone.
__device__ __forceinline__ float block_sum(float value, float* room) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) sum += room[i];
  return sum;
}

template <int N>
__global__ void __launch_bounds__(kThreads)
    row_norm_kernel(const __grid_constant__ frt_row_norm_args args, float y_factor) {
  __shared__ float room[2][kThreads / 32];
  pdl_trigger();
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x);
  if (row >= active_rows(args.rows, args.row_count)) return;
  const int64_t x_row = row * args.x_stride, y_row = row * args.y_stride;
  const int width = args.width, step = kThreads * N;
  float kept[kKept][N];
  const auto value = [&](int run, int column, float(&v)[N]) {
    if (run < kKept) {
#pragma unroll
      for (int k = 0; k < kKept; ++k) {
        if (k != run) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] = kept[k][i];
      }
    } else {
      load_values(args.x_dtype, args.x, x_row + column, v);
    }
  };

  const uint32_t kind = args.norm.kind;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int column = k * step + static_cast<int>(threadIdx.x) * N;
    if (column < width) load_values(args.x_dtype, args.x, x_row + column, kept[k]);
  }
  for (int run = 0; run * step < width; ++run) {
    const int column = run * step + static_cast<int>(threadIdx.x) * N;
    if (column >= width) break;
    float v[N];
    value(run, column, v);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += kind == FRT_NORM_LAYER ? v[i] : v[i] * v[i];
  }
  float mean = 0, factor = 1;
  const float count = static_cast<float>(width);
  if (kind == FRT_NORM_LAYER) {
    mean = block_sum(sum, room[0]) / count;
    float squares = 0;
    for (int run = 0; run * step < width; ++run) {
      const int column = run * step + static_cast<int>(threadIdx.x) * N;
      if (column >= width) break;
      float v[N];
      value(run, column, v);
#pragma unroll
      for (int i = 0; i < N; ++i) squares += (v[i] - mean) * (v[i] - mean);
    }
    factor = rsqrtf(block_sum(squares, room[1]) / count + args.norm.epsilon);
  } else if (kind != FRT_NORM_NONE) {
    factor = rsqrtf(block_sum(sum, room[0]) / count + args.norm.epsilon);
  }

  const float* condition =
      kind == FRT_NORM_ADAPTIVE ? modulation_of(args.norm.modulation, row) : nullptr;
  for (int run = 0; run * step < width; ++run) {
    const int column = run * step + static_cast<int>(threadIdx.x) * N;
    if (column >= width) break;
    float v[N], a[N], b[N];
    value(run, column, v);
    if (kind == FRT_NORM_ADAPTIVE) {
      load_values(FRT_DTYPE_F32, condition, column, a);
      load_values(FRT_DTYPE_F32, condition, width + column, b);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = v[i] * factor * (1.0f + a[i]) + b[i];
    } else if (kind != FRT_NORM_NONE) {
      load_values(FRT_DTYPE_F32, args.norm.weight, column, a);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = (v[i] - mean) * factor * a[i];
      if (kind == FRT_NORM_LAYER) {
        load_values(FRT_DTYPE_F32, args.norm.bias, column, b);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] += b[i];
      }
    }
    if (y_factor != 0) {
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] *= y_factor;
    }
    store_values(args.y_dtype, args.y, y_row + column, v);
  }
}

// ---- layers' norms: bf16, or e4m3 from it, eight values a thread -------------------------------

constexpr int kLayerThreads = 256;  // at most
constexpr int kLayerWarps = kLayerThreads / 32;

__device__ __forceinline__ void dequantise(const uint4& packed, float (&v)[8]) {
  const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = __uint_as_float(pairs[i] << 16);
    v[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000u);
  }
}

// The sum over the block, in every thread. `room` is for this sum alone and holds zeros for the
// warps that the block lacks.
__device__ __forceinline__ float layer_sum(float value, float (&room)[kLayerWarps]) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  float all[kLayerWarps];
  load_typed(room, all);
  return ((all[0] + all[1]) + (all[2] + all[3])) + ((all[4] + all[5]) + (all[6] + all[7]));
}

// kLayer: or root mean square.
template <bool kLayer>
__global__ void __launch_bounds__(kLayerThreads, 5)
    layer_norm_kernel(const __grid_constant__ frt_row_norm_args args, float y_factor) {
  __shared__ __align__(16) float room[2][kLayerWarps];
  pdl_trigger();
  const int tid = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x);
  const int width = args.width, column = tid * 8;
  const bool has = column < width;
  float weight[8] = {}, bias[8] = {};
  if (has) {
    load_typed(args.norm.weight + column, weight);
    if constexpr (kLayer) load_typed(args.norm.bias + column, bias);
  }
  if (tid < 2 * kLayerWarps) room[tid / kLayerWarps][tid % kLayerWarps] = 0;
  __syncthreads();
  pdl_wait();
  uint4 x = {};
  if (has) {
    x = *reinterpret_cast<const uint4*>(static_cast<const bf16*>(args.x) + row * args.x_stride +
                                        column);
  }
  // Asked for behind the row, so that it does not wait for the number.
  const int rows = active_rows(args.rows, args.row_count);
  float v[8];
  dequantise(x, v);
  const float share = __fdividef(1.0f, static_cast<float>(width));
  if constexpr (kLayer) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += v[i];
    const float mean = layer_sum(sum, room[0]) * share;
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = has ? v[i] - mean : 0.0f;
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) squares += v[i] * v[i];
  const float factor = rsqrtf(layer_sum(squares, room[1]) * share + args.norm.epsilon);
  if (!has || row >= rows) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = v[i] * factor * weight[i] + bias[i];
  const int64_t y = row * args.y_stride + column;
  if (y_factor == 0) return store_typed(static_cast<bf16*>(args.y) + y, v);
  uint32_t packed[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const auto two = [&](int k) {
      return static_cast<uint32_t>(__nv_cvt_float2_to_fp8x2(
          make_float2(v[k] * y_factor, v[k + 1] * y_factor), __NV_SATFINITE, __NV_E4M3));
    };
    packed[i] = two(4 * i + 2) << 16 | two(4 * i);
  }
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(args.y) + y) = make_uint2(packed[0], packed[1]);
}

// False where the general kernel has to.
bool layer_norm(Stream& stream, const frt_row_norm_args& args, float y_factor) {
  const bool layer = args.norm.kind == FRT_NORM_LAYER;
  if (!(layer || args.norm.kind == FRT_NORM_RMS) || args.x_dtype != FRT_DTYPE_BF16 ||
      args.y_dtype != (y_factor == 0 ? FRT_DTYPE_BF16 : FRT_DTYPE_F8_E4M3)) {
    return false;
  }
  if (args.width > 8 * kLayerThreads) return false;
  const Grid grid{dim3(static_cast<unsigned>(args.rows)),
                  dim3(static_cast<unsigned>(ceil_div(args.width, 8 * 32) * 32))};
  launch(stream, grid, layer ? layer_norm_kernel<true> : layer_norm_kernel<false>, args, y_factor);
  return true;
}

void row_norm(Stream& stream, const frt_row_norm_args& args) {
  const Checks check(FRT_OP_ROW_NORM);
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("y_dtype", args.y_dtype);
  check.positive("rows", args.rows);
  check.positive("width", args.width);
  check_norm(check, args.norm);
  check.pointer("x", args.x);
  check.pointer("y", args.y);
  check.at_least("x_stride", args.x_stride, args.width);
  check.at_least("y_stride", args.y_stride, args.width);
  normalise_rows(stream, args);
}

}  // namespace

void check_modulation(const Checks& check, const char* argument, const frt_modulation& modulation) {
  if (!modulation.clean_rows) return;
  const std::string name = argument;
  check.pointer((name + ".clean").c_str(), modulation.clean);
  check.positive((name + ".period").c_str(), modulation.period);
}

void check_norm(const Checks& check, const frt_norm& norm) {
  check.range("norm.kind", norm.kind, FRT_NORM_NONE, FRT_NORM_ADAPTIVE);
  if (norm.kind == FRT_NORM_RMS || norm.kind == FRT_NORM_LAYER) {
    check.pointer("norm.weight", norm.weight);
  }
  if (norm.kind == FRT_NORM_LAYER) check.pointer("norm.bias", norm.bias);
  if (norm.kind == FRT_NORM_ADAPTIVE) {
    check.pointer("norm.modulation.rows", norm.modulation.rows);
    check_modulation(check, "norm.modulation", norm.modulation);
  }
}

void normalise_rows(Stream& stream, const frt_row_norm_args& args, float y_scale) {
  if (args.rows == 0) return;
  const frt_modulation& modulation = args.norm.modulation;
  const bool vector = args.width % 8 == 0 && vector_rows(args.x, args.x_stride) &&
                      vector_rows(args.y, args.y_stride) && aligned(args.norm.weight) &&
                      aligned(args.norm.bias) && aligned(modulation.rows) &&
                      aligned(modulation.clean);
  const float y_factor = y_scale > 0 ? 1.0f / y_scale : 0.0f;
  if (vector && layer_norm(stream, args, y_factor)) return;
  const Grid grid{dim3(static_cast<unsigned>(args.rows)), dim3(kThreads)};
  launch(stream, grid, vector ? row_norm_kernel<8> : row_norm_kernel<1>, args, y_factor);
}

void register_row_norm(KernelList& list) {
  list.add<frt_row_norm_args>(FRT_OP_ROW_NORM, kFloatTypes, {}, row_norm);
}

}  // namespace frt::cuda
