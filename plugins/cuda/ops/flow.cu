// SPDX-License-Identifier: Apache-2.0
// Flow matching: frt.flow_start/1, frt.flow_input/1, frt.flow_output/1, frt.flow_update/1,
// frt.flow_step/1.
//
// Everything is small: a chunk has 10 to 50 rows of 32 values, the network rows of 1024. What
// counts is the number of kernels per step, so a step is one: a block has one row of x and all the
// network's rows that share it. It norms each of them, multiplies by the output weight (32 rows of
// 1024, 128 KB, which every block reads from L2), combines the branches, moves x and multiplies the
// new row by the input weight. Floor of a step: two trips to L2 and a launch, about 4 us.
#include <frt/ops/flow.h>

#include <algorithm>
#include <frt/checks.hpp>

#include "launch.cuh"
#include "numbers.cuh"
#include "registry.hpp"
#include "row_norm.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ __forceinline__ float read(frt_dtype dtype, const void* data, int64_t at) {
  return dtype == FRT_DTYPE_F32 ? static_cast<const float*>(data)[at]
                                : to_float(static_cast<const bf16*>(data)[at]);
}
__device__ __forceinline__ void write(frt_dtype dtype, void* data, int64_t at, float value) {
  if (dtype == FRT_DTYPE_F32) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<bf16*>(data)[at] = from_float<bf16>(value);
  }
}

// The sum over the block, in every thread; `room` may be used again at once.
__device__ __forceinline__ float block_sum(float value, float* room) {
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += room[i];
  return sum;
}

// v (dim) of row `row` of the network. `normed` has room for width values, `room` for kWarps.
__device__ void output_row(const frt_flow_output_args& a, int row, float* v, float* normed,
                           float* room) {
  const int64_t at = static_cast<int64_t>(row) * a.width;
  const uint32_t kind = a.norm.kind;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < a.width; i += kThreads) {
    const float value = read(a.h_dtype, a.h, at + i);
    normed[i] = value;
    sum += kind == FRT_NORM_LAYER ? value : value * value;
  }
  const float count = static_cast<float>(a.width);
  float mean = 0, factor = 1;
  if (kind == FRT_NORM_LAYER) {
    mean = block_sum(sum, room) / count;
    sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < a.width; i += kThreads) {
      sum += (normed[i] - mean) * (normed[i] - mean);
    }
  }
  if (kind != FRT_NORM_NONE) factor = rsqrtf(block_sum(sum, room) / count + a.norm.epsilon);
  const float* condition =
      kind == FRT_NORM_ADAPTIVE ? modulation_of(a.norm.modulation, row) : nullptr;
  for (int i = static_cast<int>(threadIdx.x); i < a.width; i += kThreads) {
    float value = (normed[i] - mean) * factor;
    if (kind == FRT_NORM_ADAPTIVE) value = value * (1.0f + condition[i]) + condition[a.width + i];
    if (kind == FRT_NORM_RMS || kind == FRT_NORM_LAYER) value *= a.norm.weight[i];
    if (kind == FRT_NORM_LAYER) value += a.norm.bias[i];
    normed[i] = value;
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int d = static_cast<int>(threadIdx.x) / 32; d < a.dim; d += kWarps) {
    float dot = 0;
    for (int i = lane; i < a.width; i += 32) {
      dot += normed[i] * a.weight[static_cast<int64_t>(d) * a.width + i];
    }
    dot = warp_sum(dot);
    if (lane == 0) v[d] = dot + a.bias[d];
  }
  __syncthreads();
}

// Moves row `row` of x; the new values go to x_row (dim), too. `v` holds the branches one after the
// other, `way_stride` values apart.
__device__ void update_row(const frt_flow_update_args& a, int row, const float* v,
                           int64_t way_stride, float* x_row) {
  const int i = row % a.horizon;
  for (int d = static_cast<int>(threadIdx.x); d < a.dim; d += kThreads) {
    const float last = v[(a.ways - 1) * way_stride + d];
    float velocity = last;
    for (int w = 0; w + 1 < a.ways; ++w) velocity += a.beta[w] * (v[w * way_stride + d] - last);
    const int64_t at = static_cast<int64_t>(row) * a.dim + d;
    float x = a.x[at];
    float previous = 0;
    if (a.previous) {
      previous = a.previous[static_cast<int64_t>(i) * a.dim + d];
      const float error = previous - (x - a.time * velocity);
      velocity -= fminf(a.pull, *a.cap) * a.weights[i] * error;
    }
    if (a.velocity) a.velocity[at] = velocity;
    x += a.step * velocity;
    if (a.previous && i < *a.locked) x = previous;
    a.x[at] = x;
    x_row[d] = x;
  }
  __syncthreads();
}

// Rows `row` of all branches of h from x_row.
__device__ void input_row(const frt_flow_input_args& a, int row, const float* x_row) {
  for (int c = static_cast<int>(threadIdx.x); c < a.width; c += kThreads) {
    float value = 0;
    for (int d = 0; d < a.dim; ++d)
      value += x_row[d] * a.weight[static_cast<int64_t>(c) * a.dim + d];
    value += a.bias[c];
    for (int w = 0; w < a.ways; ++w) {
      write(a.h_dtype, a.h, (static_cast<int64_t>(w) * a.rows + row) * a.width + c, value);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    start_kernel(const __grid_constant__ frt_flow_start_args a) {
  pdl_trigger();
  pdl_wait();
  const int64_t chunk = static_cast<int64_t>(a.horizon) * a.dim;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int locked = a.locked ? *a.locked : 0;
  if (at == 0) *a.clean_rows = a.locked && *a.locked_clean ? locked : 0;
  if (at >= a.samples * chunk) return;
  const int64_t in_chunk = at % chunk;
  a.x[at] = in_chunk / a.dim < locked ? a.previous[in_chunk] : a.noise[at];
}

__global__ void __launch_bounds__(kThreads)
    input_kernel(const __grid_constant__ frt_flow_input_args a) {
  extern __shared__ float shared[];  // (dim)
  pdl_trigger();
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x);
  for (int d = static_cast<int>(threadIdx.x); d < a.dim; d += kThreads) {
    shared[d] = a.x[static_cast<int64_t>(row) * a.dim + d];
  }
  __syncthreads();
  input_row(a, row, shared);
}

__global__ void __launch_bounds__(kThreads)
    output_kernel(const __grid_constant__ frt_flow_output_args a) {
  extern __shared__ float shared[];  // (width) normed, (kWarps) sums
  pdl_trigger();
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x);
  output_row(a, row, a.v + static_cast<int64_t>(row) * a.dim, shared, shared + a.width);
}

__global__ void __launch_bounds__(kThreads)
    update_kernel(const __grid_constant__ frt_flow_update_args a) {
  extern __shared__ float shared[];  // (dim)
  pdl_trigger();
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x);
  const int64_t rows = static_cast<int64_t>(a.samples) * a.horizon;
  update_row(a, row, a.v + static_cast<int64_t>(row) * a.dim, rows * a.dim, shared);
}

__global__ void __launch_bounds__(kThreads)
    step_kernel(const __grid_constant__ frt_flow_step_args a) {
  extern __shared__ float shared[];  // (dim) x, (kWarps) sums, (width) normed
  pdl_trigger();
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x), dim = a.output.dim;
  const int rows = a.update.samples * a.update.horizon;
  for (int w = 0; w < a.update.ways; ++w) {
    output_row(a.output, w * rows + row, a.output.v + (static_cast<int64_t>(w) * rows + row) * dim,
               shared + dim + kWarps, shared + dim);
  }
  update_row(a.update, row, a.output.v + static_cast<int64_t>(row) * dim,
             static_cast<int64_t>(rows) * dim, shared);
  if (a.next.h) input_row(a.next, row, shared);
}

// ---- arguments ------------------------------------------------------------------------------

constexpr std::size_t kMostShared = 48 * 1024;

void check_output(const Checks& check, const frt_flow_output_args& args) {
  check.dtype("h_dtype", args.h_dtype);
  check.at_least("rows", args.rows, 0);
  check.positive("dim", args.dim);
  check.range("width", args.width, 1,
              static_cast<int64_t>(kMostShared / sizeof(float)) - kWarps - args.dim);
  check.pointer("h", args.h);
  check_norm(check, args.norm);
  check.pointer("weight", args.weight);
  check.pointer("bias", args.bias);
  check.pointer("v", args.v);
}

void check_update(const Checks& check, const frt_flow_update_args& args) {
  check.positive("ways", args.ways);
  check.at_least("samples", args.samples, 0);
  check.positive("horizon", args.horizon);
  check.positive("dim", args.dim);
  check.pointer("v", args.v);
  if (args.ways > 1) check.pointer("beta", args.beta);
  if (args.previous) {
    check.pointer("weights", args.weights);
    check.pointer("cap", args.cap);
    check.pointer("locked", args.locked);
  }
  check.pointer("x", args.x);
}

void check_input(const Checks& check, const frt_flow_input_args& args) {
  check.dtype("h_dtype", args.h_dtype);
  check.positive("ways", args.ways);
  check.at_least("rows", args.rows, 0);
  check.positive("dim", args.dim);
  check.positive("width", args.width);
  check.pointer("x", args.x);
  check.pointer("weight", args.weight);
  check.pointer("bias", args.bias);
  check.pointer("h", args.h);
}

Grid rows_grid(int64_t rows, int64_t shared_floats) {
  return {dim3(static_cast<unsigned>(rows)), dim3(kThreads),
          static_cast<std::size_t>(shared_floats) * sizeof(float)};
}

void flow_start(Stream& stream, const frt_flow_start_args& args) {
  const Checks check(FRT_OP_FLOW_START);
  check.at_least("samples", args.samples, 0);
  check.positive("horizon", args.horizon);
  check.positive("dim", args.dim);
  check.pointer("noise", args.noise);
  if (args.locked) {
    check.pointer("previous", args.previous);
    check.pointer("locked_clean", args.locked_clean);
  }
  check.pointer("x", args.x);
  check.pointer("clean_rows", args.clean_rows);
  const int64_t values = static_cast<int64_t>(args.samples) * args.horizon * args.dim;
  launch(stream,
         {dim3(static_cast<unsigned>(std::max<int64_t>(ceil_div(values, kThreads), 1))),
          dim3(kThreads)},
         start_kernel, args);
}

void flow_input(Stream& stream, const frt_flow_input_args& args) {
  check_input(Checks(FRT_OP_FLOW_INPUT), args);
  if (args.rows == 0) return;
  launch(stream, rows_grid(args.rows, args.dim), input_kernel, args);
}

void flow_output(Stream& stream, const frt_flow_output_args& args) {
  check_output(Checks(FRT_OP_FLOW_OUTPUT), args);
  if (args.rows == 0) return;
  launch(stream, rows_grid(args.rows, args.width + kWarps), output_kernel, args);
}

void flow_update(Stream& stream, const frt_flow_update_args& args) {
  check_update(Checks(FRT_OP_FLOW_UPDATE), args);
  const int64_t rows = static_cast<int64_t>(args.samples) * args.horizon;
  if (rows == 0) return;
  launch(stream, rows_grid(rows, args.dim), update_kernel, args);
}

void flow_step(Stream& stream, const frt_flow_step_args& args) {
  const Checks check(FRT_OP_FLOW_STEP);
  check_output(check, args.output);
  check_update(check, args.update);
  if (args.next.h) check_input(check, args.next);
  const int64_t rows = static_cast<int64_t>(args.update.samples) * args.update.horizon;
  check.require(args.output.rows == args.update.ways * rows, "output.rows",
                "is " + std::to_string(args.output.rows) +
                    ", expected ways * samples * horizon of the update");
  check.require(args.output.dim == args.update.dim && args.output.v == args.update.v, "update",
                "does not take dim and v of output");
  check.require(!args.next.h || (args.next.rows == rows && args.next.dim == args.update.dim &&
                                 args.next.x == args.update.x),
                "next", "does not take x, rows and dim of update");
  if (rows == 0) return;
  launch(stream, rows_grid(rows, args.output.dim + kWarps + args.output.width), step_kernel, args);
}

}  // namespace

void register_flow(KernelList& list) {
  list.add<frt_flow_start_args>(FRT_OP_FLOW_START, kFloatTypes, 0, flow_start);
  list.add<frt_flow_input_args>(FRT_OP_FLOW_INPUT, kFloatTypes, 0, flow_input);
  list.add<frt_flow_output_args>(FRT_OP_FLOW_OUTPUT, kFloatTypes, 0, flow_output);
  list.add<frt_flow_update_args>(FRT_OP_FLOW_UPDATE, kFloatTypes, 0, flow_update);
  list.add<frt_flow_step_args>(FRT_OP_FLOW_STEP, kFloatTypes, 0, flow_step);
}

}  // namespace frt::cuda
