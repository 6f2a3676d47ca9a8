// SPDX-License-Identifier: Apache-2.0
// The small operators of a mixture of experts: frt.moe_route/1, frt.moe_combine/1, and the norm in
// front of the block where it is a kernel of its own (many rows; types and shapes without a fast
// path). All are bound by a few microseconds of latency or by one pass over the rows.
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/pieces.hpp"
#include "moe.hpp"
#include "rows.cuh"

namespace frt::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;

// A warp per row.
__global__ void __launch_bounds__(kThreads) route_kernel(const frt_moe_route_args args) {
  pdl_trigger();
  pdl_wait();
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= active_rows(args.rows, args.row_count)) return;
  const int64_t first = static_cast<int64_t>(row) * args.experts_per_token;
  select_experts(args.logits + static_cast<int64_t>(row) * args.experts, args.experts,
                 args.experts_per_token, args.normalise != 0, args.ids + first,
                 args.weights + first);
}

template <class T>
__global__ void __launch_bounds__(kThreads) combine_kernel(const frt_moe_combine_args args) {
  pdl_trigger();
  pdl_wait();
  const int row = blockIdx.x;
  if (row >= active_rows(args.rows, args.row_count)) return;
  const int64_t first = static_cast<int64_t>(row) * args.width;
  const auto* routed = static_cast<const T*>(args.routed) + first;
  const auto* shared = static_cast<const T*>(args.shared) + first;
  auto* y = static_cast<T*>(args.y) + first;
  const float factor = sigmoid(args.gate[row]);
  for (int i = threadIdx.x; i < args.width; i += kThreads) {
    y[i] = from_float<T>(fmaf(factor, to_float(shared[i]), to_float(routed[i])));
  }
}

struct NormArgs {
  MoeNorm norm;
  int32_t rows, inputs;
  const int32_t* row_count;
  void* x;
  bool f32;           // x and delta
  bool eights;        // rows can be read eight values at a time
  bool with_scale;    // also scale[row] = x . shared_scale
  bool scale_eights;  // ... whose weights are bf16 and can be read eight at a time
  MoeMatrix shared_scale;
  float* scale;
};

__device__ __forceinline__ float load_any(const void* data, bool f32, int64_t at) {
  return f32 ? static_cast<const float*>(data)[at] : to_float(static_cast<const bf16*>(data)[at]);
}
__device__ __forceinline__ void store_any(void* data, bool f32, int64_t at, float value) {
  if (f32) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<bf16*>(data)[at] = from_float<bf16>(value);
  }
}

// The sum over the block, for every thread; `sums`: one float per warp.
__device__ __forceinline__ float block_sum(float value, float* sums) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += sums[i];
  __syncthreads();
  return sum;
}

// Returns this thread's part of x . shared_scale if scale_eights.
__device__ __forceinline__ float norm_row_eights(const NormArgs& args, int64_t first, float* sums) {
  const int segment = threadIdx.x / 32;
  const float squares = segment_squares(args.norm, first, args.inputs, segment);
  if (threadIdx.x % 32 == 0) sums[segment] = squares;
  __syncthreads();
  const float factor = norm_factor(sums, args.inputs, args.norm.epsilon);
  __syncthreads();
  auto* x = static_cast<bf16*>(args.x) + first;
  float scale = 0.0f;
  for (int k = threadIdx.x * 8; k < args.inputs; k += kThreads * 8) {
    float values[8];
    load_residual(args.norm, first + k, values);
    if (args.norm.delta) store_residual(args.norm, first + k, values);
    const uint4 normed = normed_eight(args.norm, k, factor, values);
    *reinterpret_cast<uint4*>(x + k) = normed;
    if (args.scale_eights) {
      float weights[8];
      floats_of_bf16(normed, values);
      floats_of_bf16(reinterpret_cast<const uint4*>(args.shared_scale.data)[k / 8], weights);
#pragma unroll
      for (int i = 0; i < 8; ++i) scale = fmaf(values[i], weights[i], scale);
    }
  }
  return scale;
}

__device__ __forceinline__ void norm_row_any(const NormArgs& args, int64_t first, float* sums) {
  const MoeNorm& norm = args.norm;
  float squares = 0.0f;
  for (int k = threadIdx.x; k < args.inputs; k += kThreads) {
    float value = load_any(norm.residual, norm.residual_f32, first + k);
    if (norm.delta) {
      value += load_any(norm.delta, args.f32, first + k);
      store_any(norm.residual, norm.residual_f32, first + k, value);
      value = load_any(norm.residual, norm.residual_f32, first + k);
    }
    squares = fmaf(value, value, squares);
  }
  const float factor =
      rsqrtf(block_sum(squares, sums) / static_cast<float>(args.inputs) + norm.epsilon);
  for (int k = threadIdx.x; k < args.inputs; k += kThreads) {
    const float value = load_any(norm.residual, norm.residual_f32, first + k);
    store_any(args.x, args.f32, first + k, value * factor * norm.weight[k]);
  }
}

// A block per row. Every thread reads back only what it wrote itself.
__global__ void __launch_bounds__(kThreads) norm_kernel(const __grid_constant__ NormArgs args) {
  __shared__ float sums[kWarps];
  pdl_trigger();
  pdl_wait();
  const int row = blockIdx.x;
  if (row >= active_rows(args.rows, args.row_count)) return;
  const int64_t first = static_cast<int64_t>(row) * args.inputs;
  if (args.norm.residual) {
    if (args.eights) {
      float scale = norm_row_eights(args, first, sums);
      if (args.scale_eights) {
        scale = block_sum(scale, sums);
        if (threadIdx.x == 0) args.scale[row] = scale;
        return;
      }
    } else {
      norm_row_any(args, first, sums);
    }
  }
  if (!args.with_scale) return;
  const MoeRow weights = moe_row(args.shared_scale, 0, 0);
  __syncthreads();
  float sum = 0.0f;
  for (int k = threadIdx.x; k < args.inputs; k += kThreads) {
    sum =
        fmaf(moe_value(args.shared_scale, weights, k), load_any(args.x, args.f32, first + k), sum);
  }
  sum = block_sum(sum, sums);
  if (threadIdx.x == 0) args.scale[row] = sum * weights.factor;
}

}  // namespace

void launch_moe_route(Stream& stream, const frt_moe_route_args& args) {
  if (args.rows == 0) return;
  launch(stream, {dim3(static_cast<unsigned>(ceil_div(args.rows, kWarps))), dim3(kThreads)},
         route_kernel, args);
}

void launch_moe_combine(Stream& stream, const frt_moe_combine_args& args) {
  if (args.rows == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(args.rows)), dim3(kThreads)};
  if (args.dtype == FRT_DTYPE_F32) {
    launch(stream, grid, combine_kernel<float>, args);
  } else {
    launch(stream, grid, combine_kernel<bf16>, args);
  }
}

void launch_moe_norm(Stream& stream, const MoeBlock& block, bool with_scale) {
  const frt_moe_block_args& args = block.args;
  NormArgs made{};
  made.norm = {args.residual, args.delta, args.norm_weight, args.epsilon,
               args.residual_dtype == FRT_DTYPE_F32};
  made.rows = args.rows;
  made.inputs = block.inputs;
  made.row_count = args.row_count;
  made.x = args.x;
  made.f32 = args.dtype == FRT_DTYPE_F32;
  made.eights = !made.f32 && block.inputs % 8 == 0 && aligned(args.residual) &&
                aligned(args.delta) && aligned(args.x) && aligned(args.norm_weight);
  made.with_scale = with_scale;
  made.scale_eights = with_scale && block.shared_scale.type == WeightType::kBf16;
  made.shared_scale = block.shared_scale;
  made.scale = args.shared_scale;
  launch(stream, {dim3(static_cast<unsigned>(args.rows)), dim3(kThreads)}, norm_kernel, made);
}

}  // namespace frt::cuda
