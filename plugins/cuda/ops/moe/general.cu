// SPDX-License-Identifier: Apache-2.0
// A block for every type and shape: a warp per output value, one weight at a time, f32 sums. It is
// the variant for f32 activations and for matrices whose rows are not multiples of 16 bytes;
// nothing here is meant to be fast.
//
//   norm     residual += delta, x = norm(residual)
//   linear   router: logits; shared expert's gate: its scale
//   route    ids, weights
//   hidden   silu(gate x) * (up x), one row per (row, j); the shared expert's rows come after them
//   down     the weighted sum over j in order, plus the shared expert times its sigmoid
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "moe.hpp"

namespace frt::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;

// The sum over a row of weights times `x`, for every lane; the row's factor is in it.
template <class T>
__device__ __forceinline__ float row_dot(const MoeMatrix& matrix, int expert, int row, const T* x) {
  const MoeRow weights = moe_row(matrix, expert, row);
  float sum = 0.0f;
  for (int k = threadIdx.x % 32; k < matrix.cols; k += 32) {
    sum = fmaf(moe_value(matrix, weights, k), to_float(x[k]), sum);
  }
  return warp_sum(sum) * weights.factor;
}

// The value this warp computes, of `count` per row; false: none.
__device__ __forceinline__ bool warp_task(int64_t count, int rows, int64_t& row, int& column) {
  const int64_t task = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  row = task / count;
  column = static_cast<int>(task % count);
  return row < rows;
}

template <class T>
struct GeneralArgs {
  MoeBlock block;
  T* hidden;  // (rows, top_k, width), then (rows, shared width)
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    general_linear_kernel(const __grid_constant__ GeneralArgs<T> args) {
  pdl_trigger();
  pdl_wait();
  const MoeBlock& block = args.block;
  int64_t row;
  int e;
  if (!warp_task(block.args.experts, active_rows(block.args.rows, block.args.row_count), row, e)) {
    return;
  }
  const T* x = static_cast<const T*>(block.args.x) + row * block.inputs;
  const float sum = row_dot(block.router, 0, e, x);
  if (threadIdx.x % 32 == 0) block.args.logits[row * block.args.experts + e] = sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    general_hidden_kernel(const __grid_constant__ GeneralArgs<T> args) {
  pdl_trigger();
  pdl_wait();
  const MoeBlock& block = args.block;
  const int64_t routed = static_cast<int64_t>(block.args.experts_per_token) * block.width;
  int64_t row;
  int column;
  if (!warp_task(routed + block.shared_width, active_rows(block.args.rows, block.args.row_count),
                 row, column)) {
    return;
  }
  const T* x = static_cast<const T*>(block.args.x) + row * block.inputs;
  float gate, up;
  T* target;
  if (column < routed) {
    const int n = column % block.width;
    const int id = block.args.ids[row * block.args.experts_per_token + column / block.width];
    if (id < 0 || id >= block.args.experts) return;
    gate = row_dot(block.gate, id, n, x);
    up = row_dot(block.up, id, n, x);
    target = args.hidden + row * routed + column;
  } else {
    const int n = static_cast<int>(column - routed);
    gate = row_dot(block.shared_gate, 0, n, x);
    up = row_dot(block.shared_up, 0, n, x);
    target = args.hidden + block.args.rows * routed + row * block.shared_width + n;
  }
  gate = to_float(from_float<T>(gate));  // as where they are written in between
  up = to_float(from_float<T>(up));
  if (threadIdx.x % 32 == 0) *target = from_float<T>(silu(gate) * up);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    general_down_kernel(const __grid_constant__ GeneralArgs<T> args) {
  pdl_trigger();
  pdl_wait();
  const MoeBlock& block = args.block;
  int64_t row;
  int n;
  if (!warp_task(block.inputs, active_rows(block.args.rows, block.args.row_count), row, n)) return;
  const int64_t routed = static_cast<int64_t>(block.args.experts_per_token) * block.width;
  float sum = 0.0f;
  for (int j = 0; j < block.args.experts_per_token; ++j) {
    const int64_t assignment = row * block.args.experts_per_token + j;
    const int id = block.args.ids[assignment];
    if (id < 0 || id >= block.args.experts) continue;
    const T* hidden = args.hidden + row * routed + static_cast<int64_t>(j) * block.width;
    sum = fmaf(block.args.weights[assignment], row_dot(block.down, id, n, hidden), sum);
  }
  if (block.shared) {
    const T* hidden = args.hidden + block.args.rows * routed + row * block.shared_width;
    const float factor = sigmoid(block.args.shared_scale[row]);
    sum = fmaf(factor, row_dot(block.shared_down, 0, n, hidden), sum);
  }
  if (threadIdx.x % 32 == 0) {
    static_cast<T*>(block.args.y)[row * block.inputs + n] = from_float<T>(sum);
  }
}

template <class T>
void general(Stream& stream, const MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  const int64_t hidden =
      static_cast<int64_t>(args.experts_per_token) * block.width + block.shared_width;
  GeneralArgs<T> made{block, nullptr};
  made.hidden =
      static_cast<T*>(stream.scratch(static_cast<std::size_t>(args.rows * hidden) * sizeof(T)));
  const auto grid = [&](int64_t per_row) {
    return Grid{dim3(static_cast<unsigned>(ceil_div(args.rows * per_row, kWarps))), dim3(kThreads)};
  };
  if (args.residual || block.shared) launch_moe_norm(stream, block, block.shared);
  if (!block.routed) {
    launch(stream, grid(args.experts), general_linear_kernel<T>, made);
    frt_moe_route_args route{};
    route.rows = args.rows;
    route.experts = args.experts;
    route.experts_per_token = args.experts_per_token;
    route.normalise = args.normalise;
    route.row_count = args.row_count;
    route.logits = args.logits;
    route.ids = args.ids;
    route.weights = args.weights;
    launch_moe_route(stream, route);
  }
  launch(stream, grid(hidden), general_hidden_kernel<T>, made);
  launch(stream, grid(block.inputs), general_down_kernel<T>, made);
}

}  // namespace

void launch_moe_general(Stream& stream, MoeBlock& block) {
  if (block.args.dtype == FRT_DTYPE_F32) {
    general<float>(stream, block);
  } else {
    general<bf16>(stream, block);
  }
}

}  // namespace frt::cuda
