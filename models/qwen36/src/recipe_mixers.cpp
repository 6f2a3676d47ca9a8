// SPDX-License-Identifier: Apache-2.0
// Both mixers: norm and all input products in one operator, the sequence operator, the output
// product into act_.mixed.
#include <array>
#include <cmath>

#include "recipe.hpp"

namespace frt::qwen36 {
namespace {

constexpr std::int32_t kDeltaChunk = 64;  // rows per chunk of the blocked delta rule

}  // namespace

void Recipe::mixer(const Recorder& recorder, const Batch& batch, const LayerWeights& layer,
                   const LayerState& state, const Entry& entry) const {
  if (layer.kind == LayerKind::kDelta) {
    delta_mixer(recorder, batch, layer.delta, state, entry);
  } else {
    attention_mixer(recorder, batch, layer.attention, state, entry);
  }
}

void Recipe::delta_mixer(const Recorder& recorder, const Batch& batch, const DeltaWeights& weights,
                         const LayerState& state, const Entry& entry) const {
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

  linear(recorder, batch, act_.gated, weights.output, precision_.activation, act_.mixed);
}

frt_attention_append_args Recipe::append_args(const Batch& batch, const AttentionWeights& weights,
                                              const LayerState& state) const {
  const Config& c = config_;
  const bool packed = precision_.cache == FRT_DTYPE_F8_E4M3;
  frt_attention_append_args args{};
  args.dtype = precision_.activation;
  args.kv_dtype = precision_.cache;
  args.epsilon = static_cast<float>(c.epsilon);
  args.sequences = batch.sequences;
  args.heads = i32(c.heads);
  args.kv_heads = i32(c.kv_heads);
  args.head_dim = i32(c.head_dim);
  args.rotary_dim = i32(c.rotary_dim);
  args.q = act_.query;
  args.q_row_stride = c.query_width();
  args.q_head_stride = c.output_gate ? 2 * c.head_dim : c.head_dim;
  args.k = act_.key;
  args.v = act_.value;
  args.q_norm = weights.query_norm;
  args.k_norm = weights.key_norm;
  args.inv_freq = weights_.rope_frequencies;
  args.rope_scale = static_cast<float>(c.rope.attention_factor);
  args.k_scale = packed ? weights.key_scale : 1.0f;
  args.v_scale = packed ? weights.value_scale : 1.0f;
  args.max_rows = i32(state_.max_rows);
  args.keys = state.keys;
  args.values = state.values;
  args.slot_stride = state_.slot_stride;
  args.blocks = state_.blocks;
  args.q_out = act_.rotated;
  return args;
}

// Query rows are [query | gate] per head, so the gate has the query's strides.
void Recipe::attention_mixer(const Recorder& recorder, const Batch& batch,
                             const AttentionWeights& weights, const LayerState& state,
                             const Entry& entry) const {
  const Config& c = config_;
  const std::array<frt_linear_part, 3> parts = {{{weights.query, act_.query, c.query_width()},
                                                 {weights.key, act_.key, c.kv_width()},
                                                 {weights.value, act_.value, c.kv_width()}}};
  norm_linears(recorder, batch, entry, parts);

  frt_attention_block_args args{};
  args.append = append_args(batch, weights, state);
  args.attention.dtype = precision_.activation;
  args.attention.kv_dtype = precision_.cache;
  args.attention.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  args.attention.sequences = batch.sequences;
  args.attention.heads = i32(c.heads);
  args.attention.kv_heads = i32(c.kv_heads);
  args.attention.head_dim = i32(c.head_dim);
  args.attention.max_rows = i32(state_.max_rows);
  args.attention.q = act_.rotated;
  args.attention.keys = state.keys;
  args.attention.values = state.values;
  args.attention.slot_stride = state_.slot_stride;
  args.attention.blocks = state_.blocks;
  args.attention.k_scale = args.append.k_scale;
  args.attention.v_scale = args.append.v_scale;
  if (c.output_gate) {
    args.attention.gate =
        static_cast<const std::byte*>(act_.query) + bytes_of(precision_.activation, c.head_dim);
    args.attention.gate_row_stride = c.query_width();
    args.attention.gate_head_stride = 2 * c.head_dim;
  }
  args.attention.y = act_.attended;
  ops_.attention_block(recorder, args);

  linear(recorder, batch, act_.attended, weights.output, precision_.activation, act_.mixed);
}

}  // namespace frt::qwen36
