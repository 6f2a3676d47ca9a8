// SPDX-License-Identifier: Apache-2.0
// Flow matching: frt.flow_start/1, frt.flow_input/1, frt.flow_output/1, frt.flow_update/1,
// frt.flow_step/1.
//
// Everything is small: a chunk has 10 to 50 rows of 32 values, the network rows of 1024. What
// counts is the number of kernels per step, so a step is one: a block has one row of x and all the
// network's rows that share it. It norms each of them, multiplies by the output weight (32 rows of
// 1024, 128 KB, which every block reads from L2; a warp has a row, all of it on its way at once),
// combines the branches, moves x and multiplies the new row by the input weight. Both weights are
// asked of L2 before the kernel ahead has ended. Floor of a step: two trips to L2 and a launch,
// about 4 us.
#include <frt/ops/checks/flow.hpp>

#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/row_norm.cuh"
#include "../registry.hpp"
#include "step.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 1024;
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

// Asks L2 for constants.
__device__ __forceinline__ void ask_for(const float* data, int64_t count) {
  constexpr int kLine = 32;  // floats
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * kLine; i < count; i += kThreads * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(data + i));
  }
}

// The part of a dot product of this thread, one of `threads` whose number is `first`. With kVector
// rows are aligned to 16 bytes and n is a multiple of four; x may lie in shared memory.
template <bool kVector>
__device__ __forceinline__ float dot_part(const float* x, const float* w, int n, int first,
                                          int threads) {
  float dot = 0;
  if constexpr (kVector) {
#pragma unroll 8
    for (int i = first * 4; i < n; i += threads * 4) {
      const float4 a = *reinterpret_cast<const float4*>(x + i);
      const float4 b = *reinterpret_cast<const float4*>(w + i);
      dot += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
  } else {
    for (int i = first; i < n; i += threads) dot += x[i] * w[i];
  }
  return dot;
}
__device__ __forceinline__ bool vectors(const float* x, const float* w, int n) {
  return n % 4 == 0 && (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(w)) % 16 == 0;
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

// v (dim) of row `row` of the network, to memory and to `own`. `normed` has room for width values,
// `room` for kWarps.
__device__ void output_row(const frt_flow_output_args& a, int row, float* own, float* normed,
                           float* room) {
  float* v = a.v + static_cast<int64_t>(row) * a.dim;
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
    const float* weight = a.weight + static_cast<int64_t>(d) * a.width;
    const float bias = a.bias[d];
    const float dot = warp_sum(vectors(normed, a.weight, a.width)
                                   ? dot_part<true>(normed, weight, a.width, lane, 32)
                                   : dot_part<false>(normed, weight, a.width, lane, 32));
    if (lane == 0) v[d] = own[d] = dot + bias;
  }
  __syncthreads();
}

__device__ __forceinline__ void read_row(const float* x, int row, int dim, float* x_row) {
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) {
    x_row[d] = x[static_cast<int64_t>(row) * dim + d];
  }
}

// Moves row `row` of x, which this thread has read to x_row; the new values go there, too. `v`
// holds the branches one after the other, `branch_stride` values apart.
__device__ void update_row(const frt_flow_update_args& a, int row, const float* v,
                           int64_t branch_stride, float* x_row) {
  const int i = row % a.horizon;
  for (int d = static_cast<int>(threadIdx.x); d < a.dim; d += kThreads) {
    const float last = v[(a.branches - 1) * branch_stride + d];
    float velocity = last;
    for (int w = 0; w + 1 < a.branches; ++w)
      velocity += a.beta[w] * (v[w * branch_stride + d] - last);
    const int64_t at = static_cast<int64_t>(row) * a.dim + d;
    float x = x_row[d];
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
    const float* weight = a.weight + static_cast<int64_t>(c) * a.dim;
    const float bias = a.bias[c];
    const float value =
        bias + (vectors(x_row, a.weight, a.dim) ? dot_part<true>(x_row, weight, a.dim, 0, 1)
                                                : dot_part<false>(x_row, weight, a.dim, 0, 1));
    for (int w = 0; w < a.branches; ++w) {
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
  extern __shared__ __align__(16) float shared[];  // (dim)
  pdl_trigger();
  ask_for(a.weight, static_cast<int64_t>(a.width) * a.dim);
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x);
  read_row(a.x, row, a.dim, shared);
  __syncthreads();
  input_row(a, row, shared);
}

__global__ void __launch_bounds__(kThreads)
    output_kernel(const __grid_constant__ frt_flow_output_args a) {
  extern __shared__ __align__(16) float shared[];  // (width) normed, (kWarps) sums, (dim) v
  pdl_trigger();
  ask_for(a.weight, static_cast<int64_t>(a.width) * a.dim);
  pdl_wait();
  float* room = shared + a.width;
  output_row(a, static_cast<int>(blockIdx.x), room + kWarps, shared, room);
}

__global__ void __launch_bounds__(kThreads)
    update_kernel(const __grid_constant__ frt_flow_update_args a) {
  extern __shared__ float shared[];  // (dim)
  pdl_trigger();
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x);
  const int64_t rows = static_cast<int64_t>(a.samples) * a.horizon;
  read_row(a.x, row, a.dim, shared);
  update_row(a, row, a.v + static_cast<int64_t>(row) * a.dim, rows * a.dim, shared);
}

// Shared memory of a step, floats: a normed row, a row of x, sums, v of all branches.
struct StepRoom {
  int x, sums, v, all;
  __host__ __device__ StepRoom(const frt_flow_output_args& output, int branches) {
    x = (output.width + 3) / 4 * 4;
    sums = x + output.dim;
    v = sums + kWarps;
    all = v + branches * output.dim;
  }
};

__global__ void __launch_bounds__(kThreads)
    step_kernel(const __grid_constant__ frt_flow_step_args a) {
  extern __shared__ __align__(16) float shared[];
  pdl_trigger();
  const int row = static_cast<int>(blockIdx.x), dim = a.output.dim;
  const int rows = a.update.samples * a.update.horizon;
  ask_for(a.output.weight, static_cast<int64_t>(a.output.width) * dim);
  if (a.next.h) ask_for(a.next.weight, static_cast<int64_t>(a.next.width) * dim);
  pdl_wait();
  const StepRoom room(a.output, a.update.branches);
  float* x_row = shared + room.x;
  read_row(a.update.x, row, dim, x_row);
  for (int w = 0; w < a.update.branches; ++w) {
    output_row(a.output, w * rows + row, shared + room.v + w * dim, shared, shared + room.sums);
  }
  update_row(a.update, row, shared + room.v, dim, x_row);
  if (a.next.h) input_row(a.next, row, x_row);
}

// ---- arguments ------------------------------------------------------------------------------

constexpr std::size_t kMostShared = 48 * 1024;

// The blocks of an output have a row of it, its sums and the products in shared memory.
void check_width(const Checks& check, const frt_flow_output_args& args) {
  constexpr int64_t kMost = static_cast<int64_t>(kMostShared / sizeof(float)) - kWarps;
  if (static_cast<int64_t>(args.width) + args.dim <= kMost) return;
  check.unsupported("width", "and dim are more than " + std::to_string(kMost) +
                                 " together, what shared memory holds");
}

Grid rows_grid(int64_t rows, int64_t shared_floats) {
  return {dim3(static_cast<unsigned>(rows)), dim3(kThreads),
          static_cast<std::size_t>(shared_floats) * sizeof(float)};
}

void flow_start(Stream& stream, const frt_flow_start_args& args) {
  check_flow_start(Checks(FRT_OP_FLOW_START), args);
  const int64_t values = static_cast<int64_t>(args.samples) * args.horizon * args.dim;
  launch(stream, {dim3(static_cast<unsigned>(ceil_div(values, kThreads))), dim3(kThreads)},
         start_kernel, args);
}

void flow_input(Stream& stream, const frt_flow_input_args& args) {
  check_flow_input(Checks(FRT_OP_FLOW_INPUT), args);
  launch(stream, rows_grid(args.rows, args.dim), input_kernel, args);
}

void flow_output(Stream& stream, const frt_flow_output_args& args) {
  const Checks check(FRT_OP_FLOW_OUTPUT);
  check_flow_output(check, args);
  check_width(check, args);
  launch(stream, rows_grid(args.rows, args.width + kWarps + args.dim), output_kernel, args);
}

void flow_update(Stream& stream, const frt_flow_update_args& args) {
  check_flow_update(Checks(FRT_OP_FLOW_UPDATE), args);
  const int64_t rows = static_cast<int64_t>(args.samples) * args.horizon;
  launch(stream, rows_grid(rows, args.dim), update_kernel, args);
}

void launch_step_general(Stream& stream, FlowStepCall& args) {
  const int64_t rows = static_cast<int64_t>(args.update.samples) * args.update.horizon;
  launch(stream, rows_grid(rows, StepRoom(args.output, args.update.branches).all), step_kernel,
         args);
}

constexpr Variant<FlowStepCall> kStepVariants[] = {
    {"clusters", {feature::kPdl | feature::kClusters}, flow_step_supports, launch_flow_step},
    {"general", {}, nullptr, launch_step_general},
};
constexpr Variants<FlowStepCall> kStepTable{FRT_OP_FLOW_STEP, kStepVariants};

void flow_step(Stream& stream, const frt_flow_step_args& args) {
  const Checks check(FRT_OP_FLOW_STEP);
  check_flow_step(check, args);
  check_width(check.in("output"), args.output);
  run_variant(stream, kStepTable, args);
}

}  // namespace

void register_flow(KernelList& list) {
  list.add<frt_flow_start_args>(FRT_OP_FLOW_START, kFloatTypes, {}, flow_start);
  list.add<frt_flow_input_args>(FRT_OP_FLOW_INPUT, kFloatTypes, {}, flow_input);
  list.add<frt_flow_output_args>(FRT_OP_FLOW_OUTPUT, kFloatTypes, {}, flow_output);
  list.add<frt_flow_update_args>(FRT_OP_FLOW_UPDATE, kFloatTypes, {}, flow_update);
  list.add<frt_flow_step_args>(FRT_OP_FLOW_STEP, kFloatTypes, {}, flow_step);
  list.add_variants(kStepTable);
}

}  // namespace frt::cuda
