// SPDX-License-Identifier: Apache-2.0
// The delta-net mixer: norm and all input products in one operator, the sequence operator, the
// output product into act_.mixer_out.
#include <array>

#include "recipe.hpp"

namespace frt::qwen36 {
namespace {

constexpr std::int32_t kDeltaChunk = 64;  // rows per chunk of the blocked delta rule

}  // namespace

void Recipe::mixer(const Recorder& recorder, const Batch& batch, std::size_t layer,
                   const Entry& entry) const {
  if (config_.layers[layer] == LayerKind::kDelta) {
    delta_mixer(recorder, batch, weights_.delta[layer], state_.delta[layer], entry);
  } else {
    lm::Recipe::mixer(recorder, batch, layer, entry);
  }
}

void Recipe::delta_mixer(const Recorder& recorder, const Batch& batch, const DeltaWeights& weights,
                         const DeltaState& state, const Entry& entry) const {
  const Config& c = config_;
  const std::array<frt_linear_part, 4> parts = {{{weights.qkv, act_.qkv, c.conv_channels()},
                                                 {weights.z, act_.z, c.value_width()},
                                                 {weights.a, act_.a, c.value_heads},
                                                 {weights.b, act_.b, c.value_heads}}};
  norm_linears(recorder, batch, entry, parts);

  frt_gated_delta_block_args args{};
  args.epsilon = static_cast<float>(c.epsilon);
  args.conv.dtype = precision_.activation;
  args.conv.sequences = batch.sequences;
  args.conv.channels = i32(c.conv_channels());
  args.conv.width = i32(c.conv_width);
  args.conv.u = act_.qkv;
  args.conv.conv_weight = weights.conv;
  args.conv.window = state.conv;
  args.conv.slot_stride = state_.slot_stride;
  args.conv.c = act_.convolved;
  args.delta.dtype = precision_.activation;
  args.delta.sequences = batch.sequences;
  args.delta.key_heads = i32(c.key_heads);
  args.delta.value_heads = i32(c.value_heads);
  args.delta.key_dim = i32(c.key_dim);
  args.delta.value_dim = i32(c.value_dim);
  args.delta.chunk = kDeltaChunk;
  args.delta.c = act_.convolved;
  args.delta.a = act_.a;
  args.delta.b = act_.b;
  args.delta.decay = weights.decay;
  args.delta.dt_bias = weights.dt_bias;
  args.delta.state = state.delta;
  args.delta.slot_stride = state_.slot_stride;
  args.delta.o = act_.o;
  args.z = act_.z;
  args.norm_weight = weights.norm;
  args.y = act_.gated;
  ops_.gated_delta_block(recorder, args);

  linear(recorder, batch, act_.gated, weights.output, precision_.activation, act_.mixer_out);
}

}  // namespace frt::qwen36
