// SPDX-License-Identifier: Apache-2.0
// The delta-net mixer: norm and all input products in one operator, the sequence operator, the
// output product into act_.mixer_out.
#include <array>
#include <vector>

#include "recipe.hpp"

namespace frt::qwen36 {
namespace {

constexpr std::int32_t kDeltaChunk = 64;  // rows per chunk of the blocked delta rule

}  // namespace

void Recipe::mixer(const Recorder& recorder, const Batch& batch, std::size_t layer,
                   const Entry& entry) const {
  if (config_.layers[layer] == LayerKind::kDelta) {
    delta_mixer(recorder, batch, layer, entry);
  } else {
    lm::Recipe::mixer(recorder, batch, layer, entry);
  }
}

frt_gated_delta_block_args Recipe::delta_args(const Batch& batch) const {
  const Config& c = config_;
  frt_gated_delta_block_args args{};
  args.epsilon = static_cast<float>(c.epsilon);
  args.conv.dtype = precision_.activation;
  args.conv.sequences = batch.sequences;
  args.conv.channels = i32(c.conv_channels());
  args.conv.width = i32(c.conv_width);
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
  args.delta.slot_stride = state_.slot_stride;
  args.delta.o = act_.o;
  return args;
}

// Where rows are drafts, window and state stay as they are, and what commit() needs of the rows is
// kept apart from what the next layer computes.
void Recipe::delta_mixer(const Recorder& recorder, const Batch& batch, std::size_t layer,
                         const Entry& entry) const {
  const Config& c = config_;
  const DeltaWeights& weights = weights_.delta[layer];
  const Activations::Kept rows =
      batch.drafts ? act_.kept[layer] : Activations::Kept{act_.qkv, act_.a, act_.b};
  const std::array<frt_linear_part, 4> parts = {{{weights.qkv, rows.qkv, c.conv_channels()},
                                                 {weights.z, act_.z, c.value_width()},
                                                 {weights.a, rows.a, c.value_heads},
                                                 {weights.b, rows.b, c.value_heads}}};
  norm_linears(recorder, batch, entry, parts);

  frt_gated_delta_block_args args = delta_args(batch);
  args.conv.u = rows.qkv;
  args.conv.conv_weight = weights.conv;
  args.conv.window = state_.delta[layer].conv;
  args.conv.keep_window = batch.drafts ? 1 : 0;
  args.delta.a = rows.a;
  args.delta.b = rows.b;
  args.delta.decay = weights.decay;
  args.delta.dt_bias = weights.dt_bias;
  args.delta.state = state_.delta[layer].delta;
  args.delta.keep_state = batch.drafts ? 1 : 0;
  args.z = act_.z;
  args.norm_weight = weights.norm;
  args.y = act_.gated;
  ops_.gated_delta_block(recorder, args);

  linear(recorder, batch, act_.gated, weights.output, precision_.activation, act_.mixer_out);
}

void Recipe::commit(const Recorder& recorder, const Batch& batch) const {
  std::vector<frt_gated_delta_layer> layers;
  for (std::size_t i = 0; i < config_.layers.size(); ++i) {
    if (config_.layers[i] != LayerKind::kDelta) continue;
    const DeltaWeights& weights = weights_.delta[i];
    const Activations::Kept& rows = act_.kept[i];
    layers.push_back({rows.qkv, rows.a, rows.b, weights.conv, weights.decay, weights.dt_bias,
                      state_.delta[i].conv, state_.delta[i].delta});
  }
  if (layers.empty()) return;
  const frt_gated_delta_block_args block = delta_args(batch);
  frt_gated_delta_commit_args args{};
  args.layer_count = i32(static_cast<std::int64_t>(layers.size()));
  args.conv = block.conv;
  args.delta = block.delta;
  args.layers = layers.data();
  ops_.gated_delta_commit(recorder, args);
}

}  // namespace frt::qwen36
