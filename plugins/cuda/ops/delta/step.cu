// SPDX-License-Identifier: Apache-2.0
// The whole block for a few rows per sequence in one kernel: decoding, and checking drafted tokens.
// Heads of 128 in bf16 (step.cuh).
//
// Floor: the state read and written once. 48 heads of 64 KB are 6.3 MB, 1.5 us at 4.3 TB/s; one
// sequence is a matter of latency, 32 of them of bandwidth.
//
// The channels of q and k are wanted by every value head of a key head, and their window is
// replaced in place, which must not happen before all have read it: the blocks of these heads are a
// cluster. All of them read the window; the first one replaces it when all have passed the
// cluster's barrier, at the end; what they read has come when they arrive there, so that needs no
// fence, which would take as long as memory does. Where there are no clusters, or they would be too
// large, the convolution is a launch of its own.
//
// Behind a product of a few rows (Stream::early_reads_safe()) the state is under way before the
// wait. What is left then is a matter of short ways: what a block waits for, one thing after the
// other, and the code itself, which is new to the SM and comes from memory piece by piece.
#include "step.cuh"

#include "causal_conv.cuh"

namespace frt::cuda {
namespace {

using namespace step;

constexpr int kMaxRows = FRT_DELTA_KEEP_ROWS;  // beyond, chunks are faster

// Grid: (value heads, sequences); with a convolution, clusters of the value heads of a key head.
template <int kHistory, int kRows>
__global__ void __launch_bounds__(kThreads, 2) step_kernel(const __grid_constant__ StepArgs args) {
  __shared__ Shared<kHistory, kRows> shared;
  pdl_trigger();
  const frt_gated_delta_args& delta = args.delta;
  const int sequence = blockIdx.y;
  Head<kHistory, kRows> head(args, sequence, blockIdx.x, threadIdx.x);
  int slot = 0, length = 0;
  const auto ask = [&] {
    slot = __ldcg(delta.sequences.slot + sequence);
    length = __ldcg(delta.sequences.length + sequence);
  };
  if (args.early) ask();
  head.load_constants(shared);
  if (!args.early) {
    pdl_wait();
    ask();
  }
  length = min(length, kRows == 1 ? 1 : delta.sequences.rows);
  if (length <= 0) {
    if (args.early) pdl_wait();
    wait_constants();
    return;
  }
  // In the order of their use, the constants aside.
  head.load_window(slot);
  float* saved = head_state(delta, slot, head.head) + head.state_offset();
  float4 state[kKeys];
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    state[j] = __ldcg(reinterpret_cast<const float4*>(saved + j * kDim));
  }
  if (args.early) pdl_wait();
  head.load_rows(0, min(kRows, length));

  for (int first = 0; first < length; first += kRows) {
    const int count = min(kRows, length - first);
    if (first > 0) {
      head.load_rows(first, count);
      __syncthreads();  // the rows before are done with
    }
    head.prepare_rows(count, shared);
    if (kHistory > 0 && first == 0) cluster_arrive();  // the window is read
    __syncthreads();
    const float4 steps = head.update(count, state, shared);
    __syncthreads();
    head.store_rows(first, count, shared);
    head.apply(count - 1, steps, state, shared);
  }
  if (delta.keep_state == 0) {
#pragma unroll
    for (int j = 0; j < kKeys; ++j) *reinterpret_cast<float4*>(saved + j * kDim) = state[j];
  }
  if constexpr (kHistory > 0) {
    cluster_wait();
    if (args.conv.keep_window == 0) {
      head.store_window(head.head % (delta.value_heads / delta.key_heads) == 0);
    }
  }
}

template <int kHistory>
void launch_step(Stream& stream, const Grid& grid, const StepArgs& args) {
  launch(
      stream, grid,
      args.delta.sequences.rows == 1 ? step_kernel<kHistory, 1> : step_kernel<kHistory, kMostRows>,
      args);
}

StepArgs step_args(Stream& stream, DeltaCall& work) {
  StepArgs args{};
  args.delta = work.delta;
  args.early = stream.early_reads_safe();
  if (!work.block) return args;
  args.conv = work.block->conv;
  args.z = static_cast<const bf16*>(work.block->z);
  args.norm_weight = work.block->norm_weight;
  args.y = static_cast<bf16*>(work.block->y);
  args.epsilon = work.block->epsilon;
  return args;
}

Grid step_grid(DeltaCall& work) {
  return {dim3(static_cast<unsigned>(work.delta.value_heads),
               static_cast<unsigned>(work.delta.sequences.count)),
          dim3(kThreads)};
}

}  // namespace

bool supports_delta_step(Device&, DeltaCall& work) {
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
  return aligned(conv.u, 0, 4) && aligned(conv.conv_weight, 0, 8) &&
         aligned(conv.window, conv.slot_stride, 4) && aligned(work.block->z, 0, 8) &&
         aligned(work.block->y, 0, 8);
}

bool supports_delta_step_conv(Device& device, DeltaCall& work) {
  return work.block && work.delta.value_heads / work.delta.key_heads <= kMaxCluster &&
         supports_delta_step(device, work);
}

void launch_delta_step_conv(Stream& stream, DeltaCall& work) {
  StepArgs args = step_args(stream, work);
  Grid grid = step_grid(work);
  grid.cluster = static_cast<unsigned>(work.delta.value_heads / work.delta.key_heads);
  args.conv.width <= 4 ? launch_step<3>(stream, grid, args) : launch_step<7>(stream, grid, args);
}

void launch_delta_step(Stream& stream, DeltaCall& work) {
  StepArgs args = step_args(stream, work);
  if (work.block) {
    launch_causal_conv(stream, args.conv);
    args.early = 0;
  }
  launch_step<0>(stream, step_grid(work), args);
}

}  // namespace frt::cuda
