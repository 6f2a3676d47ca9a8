// SPDX-License-Identifier: Apache-2.0
// frt.gated_delta_commit/1: the rows that a check accepted, through windows and states of all
// layers.
//
// One kernel for the layers of a model: a block is a head of a sequence in one of them and does
// what step.cu does, without an output. Floor: the states read and written once; 48 layers of
// 48 heads of 64 KB are 302 MB, 67 us at 4.5 TB/s. One launch per layer would take as long again.
//
// Shapes that step.cu does not take go layer by layer through the operators.

#include <algorithm>

#include "../common/launch.cuh"

#include <frt/gated_delta.hpp>
#include <frt/ops/checks/gated_delta.hpp>
#include "../registry.hpp"
#include "../variants.hpp"
#include "causal_conv.cuh"
#include "step.cuh"

namespace frt::cuda {
namespace {

using namespace step;

constexpr int kLayers = 56;  // of a launch: its parameters are at most 4 KB

struct CommitArgs {
  StepArgs shared;
  frt_gated_delta_layer layers[kLayers];
};
static_assert(sizeof(CommitArgs) <= 4096);

// Grid: (value heads, sequences, layers), clusters of the value heads of a key head.
template <int kHistory>
__global__ void __launch_bounds__(kThreads, 2)
    commit_kernel(const __grid_constant__ CommitArgs commit) {
  __shared__ Shared<kHistory, kMostRows> shared;
  pdl_trigger();
  const frt_gated_delta_layer& layer = commit.layers[blockIdx.z];
  StepArgs args = commit.shared;
  args.conv.u = layer.u;
  args.conv.conv_weight = layer.conv_weight;
  args.conv.window = layer.window;
  args.delta.a = layer.a;
  args.delta.b = layer.b;
  args.delta.decay = layer.decay;
  args.delta.dt_bias = layer.dt_bias;
  args.delta.state = layer.state;
  const frt_gated_delta_args& delta = args.delta;
  const int sequence = blockIdx.y;
  Head<kHistory, kMostRows> head(args, sequence, blockIdx.x, threadIdx.x);
  head.load_constants(shared);
  pdl_wait();
  const int slot = __ldcg(delta.sequences.slot + sequence);
  const int length = min(__ldcg(delta.sequences.length + sequence), delta.sequences.rows);
  if (length <= 0) {
    wait_constants();
    return;
  }
  head.load_window(slot);
  float* saved = head_state(delta, slot, head.head) + head.state_offset();
  float4 state[kKeys];
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    state[j] = __ldcg(reinterpret_cast<const float4*>(saved + j * kDim));
  }
  for (int first = 0; first < length; first += kMostRows) {
    const int count = min(kMostRows, length - first);
    head.load_rows(first, count);
    if (first > 0) __syncthreads();  // the rows before are done with
    head.prepare_rows(count, shared);
    if (first == 0) cluster_arrive();  // the window is read
    __syncthreads();
    const float4 steps = head.update(count, state, shared);
    head.apply(count - 1, steps, state, shared);
  }
#pragma unroll
  for (int j = 0; j < kKeys; ++j) *reinterpret_cast<float4*>(saved + j * kDim) = state[j];
  cluster_wait();
  head.store_window(head.head % (delta.value_heads / delta.key_heads) == 0);
}

// What the variants are given.
using CommitCall = const frt_gated_delta_commit_args;

// Whether the kernel of a step could do what each layer needs.
bool supports_all_layers(Device& device, CommitCall& args) {
  for (int32_t layer = 0; layer < args.layer_count; ++layer) {
    frt_gated_delta_block_args block{};
    block.conv = commit_conv(args, layer);
    block.delta = commit_delta(args, layer);
    const DeltaWork work{block.delta, &block};
    if (!supports_delta_step_conv(device, work)) return false;
  }
  return true;
}

void launch_all_layers(Stream& stream, CommitCall& args) {
  CommitArgs commit{};
  commit.shared.conv = args.conv;
  commit.shared.delta = args.delta;
  const int32_t ratio = args.delta.value_heads / args.delta.key_heads;
  for (int32_t first = 0; first < args.layer_count; first += kLayers) {
    const int32_t count = std::min(kLayers, args.layer_count - first);
    std::copy_n(args.layers + first, count, commit.layers);
    const Grid grid{
        dim3(static_cast<unsigned>(args.delta.value_heads),
             static_cast<unsigned>(args.delta.sequences.count), static_cast<unsigned>(count)),
        dim3(kThreads), 0, static_cast<unsigned>(ratio)};
    if (args.conv.width <= 4) {
      launch(stream, grid, commit_kernel<3>, commit);
    } else {
      launch(stream, grid, commit_kernel<7>, commit);
    }
  }
}

void launch_each_layer(Stream& stream, CommitCall& args) {
  for (int32_t layer = 0; layer < args.layer_count; ++layer) {
    launch_causal_conv(stream, commit_conv(args, layer));
    const DeltaWork work{commit_delta(args, layer)};
    if (supports_delta_step(stream.device(), work)) {
      launch_delta_step(stream, work);
    } else {
      launch_delta_recurrent(stream, work.delta);
    }
  }
}

constexpr Variant<CommitCall> kVariants[] = {
    {"all-layers", {feature::kClusters}, supports_all_layers, launch_all_layers},
    {"each-layer", {}, nullptr, launch_each_layer},
};
constexpr Variants<CommitCall> kTable{FRT_OP_GATED_DELTA_COMMIT, kVariants};

void gated_delta_commit(Stream& stream, const frt_gated_delta_commit_args& args) {
  check_gated_delta_commit(Checks(FRT_OP_GATED_DELTA_COMMIT), args);
  run_variant(stream, kTable, args);
}

}  // namespace

void register_gated_delta_commit(KernelList& list) {
  list.add<frt_gated_delta_commit_args>(FRT_OP_GATED_DELTA_COMMIT, kFloatTypes, {},
                                        gated_delta_commit);
  list.add_variants(kTable);
}

}  // namespace frt::cuda
