// SPDX-License-Identifier: Apache-2.0
// Causal attention over the slot's rows: norm and the products of query, key and value in one
// operator, append and attention, the output product into act_.mixer_out.
#include <frt/lm/recipe.hpp>

#include <array>
#include <cmath>

namespace frt::lm {

void Recipe::mixer(const Recorder& recorder, const Batch& batch, std::size_t layer,
                   const Entry& entry) const {
  attention_mixer(recorder, batch, weights_.layers[layer].attention, state_.layers[layer], entry);
}

frt_attention_append_args Recipe::append_args(const Batch& batch, const AttentionWeights& weights,
                                              const LayerState& state) const {
  const Config& c = config_;
  const bool quantised = precision_.cache == FRT_DTYPE_F8_E4M3;
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
  args.k_scale = quantised ? weights.key_scale : 1.0f;
  args.v_scale = quantised ? weights.value_scale : 1.0f;
  args.max_rows = i32(state_.max_rows);
  args.keys = state.keys;
  args.values = state.values;
  args.slot_stride = state_.slot_stride;
  args.pages = state_.pages;
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
  if (weights.query_bias) {
    norm(recorder, batch, entry, act_.x);
    biased(recorder, batch, act_.x, weights.query, weights.query_bias, act_.query);
    biased(recorder, batch, act_.x, weights.key, weights.key_bias, act_.key);
    biased(recorder, batch, act_.x, weights.value, weights.value_bias, act_.value);
  } else {
    norm_linears(recorder, batch, entry, parts);
  }

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
  args.attention.pages = state_.pages;
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

  biased(recorder, batch, act_.attended, weights.output, weights.output_bias, act_.mixer_out);
}

}  // namespace frt::lm
