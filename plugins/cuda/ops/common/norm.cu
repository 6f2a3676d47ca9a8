// SPDX-License-Identifier: Apache-2.0
// Root-mean-square norms: frt.rms_norm/1, frt.add_rms_norm/1, frt.gated_rms_norm/1.
//
// One shape for all three: x (plus delta, rounded, written back), its sum of squares, then
// y = x * factor * weight (* silu(z)). At decode (1 x 5,120) the bytes are nothing and latency is
// all: one block has a thread for every eight values, the row stays in registers, all loads are 16
// bytes, the weight is loaded before the kernel ahead has ended, and there is one barrier. Many
// rows run at the speed of memory: x, delta and y once each.
//
//   norm_block  a row per block, in registers: widths in multiples of 8 up to 16,384, aligned
//   norm_warp   a row per warp, in registers: widths in multiples of 4 up to 256 (heads), aligned
//   norm_any    everything else: a row per block, value by value, read twice
#include <frt/ops/norm.h>

#include <frt/checks.hpp>

#include "../registry.hpp"
#include "convert_values.cuh"
#include "launch.cuh"
#include "pieces.hpp"

namespace frt::cuda {
namespace {

struct Norm {
  const void* x = nullptr;  // (rows, x_stride)
  int64_t x_stride = 0;
  void* sum = nullptr;            // x + delta, rounded to x's type; NULL: no delta
  const void* delta = nullptr;    // (rows, width) of y's type
  const float* weight = nullptr;  // (width)
  const void* z = nullptr;        // (rows, width) of y's type, or NULL
  void* y = nullptr;              // (rows, y_stride), or NULL: only the addition
  int64_t y_stride = 0;
  const int32_t* row_count = nullptr;
  int rows = 0;   // of `width` values: rows times heads
  int heads = 1;  // rows counted by row_count have so many each
  int width = 0;
  float epsilon = 0;
};

constexpr int kWarpThreads = 128;  // of norm_warp: four rows
constexpr int kAnyThreads = 256;
// Up to so many rows are asked for together with the number of them that counts: one way to memory
// and back, not two. More could be much reading for nothing.
constexpr int kFewRows = 32;

__device__ __forceinline__ int rows_to_do(const Norm& a) {
  return active_rows(a.rows / a.heads, a.row_count) * a.heads;
}

// *row_count, asked for here and now and not where it is used.
__device__ __forceinline__ int ask_row_count(const Norm& a) {
  int count = a.rows;
  if (a.row_count) asm volatile("ld.global.s32 %0, [%1];" : "=r"(count) : "l"(a.row_count));
  return count;
}

__device__ __forceinline__ float inverse_rms(float squares, const Norm& a) {
  return rsqrtf(squares / static_cast<float>(a.width) + a.epsilon);
}

// The sum over the block, in every thread. `place`: 0 and 1 in turn.
__device__ __forceinline__ float block_sum(float value, int place) {
  __shared__ float warps[2][32];
  const unsigned lane = threadIdx.x % 32;
  value = warp_sum(value);
  if (lane == 0) warps[place][threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(lane < (blockDim.x + 31) / 32 ? warps[place][lane] : 0.0f);
}

// kValues consecutive values of x at `first`, with delta added where there is one.
template <class X, class Y, int kValues>
__device__ __forceinline__ void load_sum(const Norm& a, int64_t row, int64_t first,
                                         float (&v)[kValues]) {
  load_typed(static_cast<const X*>(a.x) + row * a.x_stride + first, v);
  if (!a.delta) return;
  float d[kValues];
  load_typed(static_cast<const Y*>(a.delta) + row * a.width + first, d);
#pragma unroll
  for (int i = 0; i < kValues; ++i) v[i] = to_float(from_float<X>(v[i] + d[i]));
}
template <class X, int kValues>
__device__ __forceinline__ void store_sum(const Norm& a, int64_t row, int64_t first,
                                          const float (&v)[kValues]) {
  if (a.delta) store_typed(static_cast<X*>(a.sum) + row * a.x_stride + first, v);
}

template <class X, class Y, int kStrips>
__global__ void __launch_bounds__(1024) norm_block(const Norm a) {
  pdl_trigger();
  const int strip = static_cast<int>(blockDim.x) * 8;
  const int first = static_cast<int>(threadIdx.x) * 8;
  float weight[kStrips][8];
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    if (a.y && first + s * strip < a.width) load_typed(a.weight + first + s * strip, weight[s]);
  }
  const int64_t row = blockIdx.x;
  const bool few = a.rows <= kFewRows;
  // The instruction-cache warm-up comes first, on nothing: no row is loaded, nothing stored. Code
  // that is new to a SM comes from memory piece by piece; so it comes before the wait.
#pragma unroll 1
  for (bool live = !few;; live = true) {
    int count = a.rows;
    if (live) {
      pdl_wait();
      if (!few && row >= rows_to_do(a)) return;
      count = ask_row_count(a);
    }
    float v[kStrips][8] = {};
#pragma unroll
    for (int s = 0; s < kStrips; ++s) {
      if (live && first + s * strip < a.width) load_sum<X, Y>(a, row, first + s * strip, v[s]);
    }
    if (row >= count) return;
    float squares = 0;
#pragma unroll
    for (int s = 0; s < kStrips; ++s) {
      if (first + s * strip >= a.width) continue;
      if (live) store_sum<X>(a, row, first + s * strip, v[s]);
#pragma unroll
      for (int i = 0; i < 8; ++i) squares += v[s][i] * v[s][i];
    }
    if (!a.y) {
      if (live) return;
      continue;
    }
    const float factor = inverse_rms(block_sum(squares, live), a);
#pragma unroll
    for (int s = 0; s < kStrips; ++s) {
      if (first + s * strip >= a.width) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) v[s][i] *= factor * weight[s][i];
      if (live) store_typed(static_cast<Y*>(a.y) + row * a.y_stride + first + s * strip, v[s]);
    }
    if (live) return;
  }
}

template <class X, class Y, int kStrips>
__global__ void __launch_bounds__(kWarpThreads) norm_warp(const Norm a) {
  pdl_trigger();
  const int first = static_cast<int>(threadIdx.x % 32) * 4;
  float weight[kStrips][4];
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    if (a.y && first + s * 128 < a.width) load_typed(a.weight + first + s * 128, weight[s]);
  }
  pdl_wait();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kWarpThreads / 32) + threadIdx.x / 32;
  if (row >= rows_to_do(a)) return;
  float v[kStrips][4], z[kStrips][4];
  float squares = 0;
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    if (first + s * 128 >= a.width) continue;
    if (a.z) load_typed(static_cast<const Y*>(a.z) + row * a.width + first + s * 128, z[s]);
    load_sum<X, Y>(a, row, first + s * 128, v[s]);
    store_sum<X>(a, row, first + s * 128, v[s]);
#pragma unroll
    for (int i = 0; i < 4; ++i) squares += v[s][i] * v[s][i];
  }
  if (!a.y) return;
  const float factor = inverse_rms(warp_sum(squares), a);
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    if (first + s * 128 >= a.width) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[s][i] *= factor * weight[s][i];
      if (a.z) v[s][i] *= silu(z[s][i]);
    }
    store_typed(static_cast<Y*>(a.y) + row * a.y_stride + first + s * 128, v[s]);
  }
}

template <class X, class Y>
__global__ void __launch_bounds__(kAnyThreads) norm_any(const Norm a) {
  pdl_trigger();
  pdl_wait();
  const int64_t row = blockIdx.x;
  if (row >= rows_to_do(a)) return;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < a.width; i += kAnyThreads) {
    float v[1];
    load_sum<X, Y>(a, row, i, v);
    store_sum<X>(a, row, i, v);
    squares += v[0] * v[0];
  }
  if (!a.y) return;
  const float factor = inverse_rms(block_sum(squares, 0), a);
  const X* x = static_cast<const X*>(a.delta ? a.sum : a.x) + row * a.x_stride;
  for (int i = static_cast<int>(threadIdx.x); i < a.width; i += kAnyThreads) {
    float v = to_float(x[i]) * factor * a.weight[i];
    if (a.z) v *= silu(to_float(static_cast<const Y*>(a.z)[row * a.width + i]));
    static_cast<Y*>(a.y)[row * a.y_stride + i] = from_float<Y>(v);
  }
}

template <class X, class Y>
void launch_norm(Stream& stream, const Norm& a) {
  const bool pointers = aligned(a.x) && aligned(a.sum) && aligned(a.delta) && aligned(a.weight) &&
                        aligned(a.z) && aligned(a.y);
  const auto in_steps = [&](int step) {
    return pointers && a.width % step == 0 && a.x_stride % step == 0 && a.y_stride % step == 0;
  };
  if (in_steps(4) && a.width <= 256) {
    const auto blocks = static_cast<unsigned>(ceil_div(a.rows, kWarpThreads / 32));
    launch(stream, {dim3(blocks), kWarpThreads},
           a.width <= 128 ? norm_warp<X, Y, 1> : norm_warp<X, Y, 2>, a);
  } else if (in_steps(8) && a.width <= 16384 && !a.z) {
    const int strips = a.width <= 8192 ? 1 : 2;
    const auto threads = static_cast<unsigned>(ceil_div(a.width, 8 * strips * 32) * 32);
    launch(stream, {dim3(static_cast<unsigned>(a.rows)), threads},
           strips == 1 ? norm_block<X, Y, 1> : norm_block<X, Y, 2>, a);
  } else {
    launch(stream, {dim3(static_cast<unsigned>(a.rows)), kAnyThreads}, norm_any<X, Y>, a);
  }
}

void launch_norm(Stream& stream, frt_dtype x_dtype, frt_dtype y_dtype, const Norm& a) {
  if (x_dtype == FRT_DTYPE_F32) {
    y_dtype == FRT_DTYPE_F32 ? launch_norm<float, float>(stream, a)
                             : launch_norm<float, bf16>(stream, a);
  } else {
    y_dtype == FRT_DTYPE_F32 ? launch_norm<bf16, float>(stream, a)
                             : launch_norm<bf16, bf16>(stream, a);
  }
}

void rms_norm(Stream& stream, const frt_rms_norm_args& args) {
  const Checks check(FRT_OP_RMS_NORM);
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("y_dtype", args.y_dtype);
  check.positive("rows", args.rows);
  check.positive("width", args.width);
  check.pointer("x", args.x);
  check.at_least("x_stride", args.x_stride, args.width);
  check.pointer("weight", args.weight);
  check.pointer("y", args.y);
  check.at_least("y_stride", args.y_stride, args.width);
  launch_norm(stream, args.x_dtype, args.y_dtype,
              {.x = args.x,
               .x_stride = args.x_stride,
               .weight = args.weight,
               .y = args.y,
               .y_stride = args.y_stride,
               .row_count = args.row_count,
               .rows = args.rows,
               .width = args.width,
               .epsilon = args.epsilon});
}

void add_rms_norm(Stream& stream, const frt_add_rms_norm_args& args) {
  const Checks check(FRT_OP_ADD_RMS_NORM);
  check.dtype("residual_dtype", args.residual_dtype);
  check.dtype("dtype", args.dtype);
  check.positive("rows", args.rows);
  check.positive("width", args.width);
  check.pointer("residual", args.residual);
  if (args.y) check.pointer("weight", args.weight);
  if (!args.y && !args.delta) return;
  launch_norm(stream, args.residual_dtype, args.dtype,
              {.x = args.residual,
               .x_stride = args.width,
               .sum = args.residual,
               .delta = args.delta,
               .weight = args.weight,
               .y = args.y,
               .y_stride = args.width,
               .row_count = args.row_count,
               .rows = args.rows,
               .width = args.width,
               .epsilon = args.epsilon});
}

void gated_rms_norm(Stream& stream, const frt_gated_rms_norm_args& args) {
  const Checks check(FRT_OP_GATED_RMS_NORM);
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("dtype", args.dtype);
  check.positive("rows", args.rows);
  check.positive("heads", args.heads);
  check.positive("width", args.width);
  check.pointer("x", args.x);
  check.pointer("z", args.z);
  check.pointer("weight", args.weight);
  check.pointer("y", args.y);
  check.require(static_cast<int64_t>(args.rows) * args.heads <= INT32_MAX, "rows",
                "times heads is more than 2^31");
  launch_norm(stream, args.x_dtype, args.dtype,
              {.x = args.x,
               .x_stride = args.width,
               .weight = args.weight,
               .z = args.z,
               .y = args.y,
               .y_stride = args.width,
               .row_count = args.row_count,
               .rows = args.rows * args.heads,
               .heads = args.heads,
               .width = args.width,
               .epsilon = args.epsilon});
}

}  // namespace

void register_norm(KernelList& list) {
  list.add<frt_rms_norm_args>(FRT_OP_RMS_NORM, kFloatTypes, {}, rms_norm);
  list.add<frt_add_rms_norm_args>(FRT_OP_ADD_RMS_NORM, kFloatTypes, {}, add_rms_norm);
  list.add<frt_gated_rms_norm_args>(FRT_OP_GATED_RMS_NORM, kFloatTypes, {}, gated_rms_norm);
}

}  // namespace frt::cuda
