// SPDX-License-Identifier: Apache-2.0
// Feed-forward blocks: x = norm(residual += mixer_out) to act_.ffn_out.
#include <frt/lm/recipe.hpp>

namespace frt::lm {

void Recipe::feed_forward(const Recorder& recorder, const Batch& batch, const LayerWeights& layer,
                          const Entry& entry) const {
  if (config_.mixture()) {
    mixture(recorder, batch, layer.mixture, entry);
  } else {
    dense(recorder, batch, layer.dense, entry);
  }
}

void Recipe::dense(const Recorder& recorder, const Batch& batch, const DenseWeights& weights,
                   const Entry& entry) const {
  if (weights.gate_bias) return biased_dense(recorder, batch, weights, entry);
  frt_norm_gate_up_args args{};
  args.residual_dtype = precision_.residual;
  args.dtype = precision_.activation;
  args.rows = batch.rows();
  args.epsilon = static_cast<float>(config_.epsilon);
  args.row_count = batch.row_count;
  args.residual = entry.residual;
  args.delta = entry.delta;
  args.norm_weight = entry.norm;
  args.x = act_.x;
  args.gate_weight = weights.gate;
  args.up_weight = weights.up;
  args.gate = act_.gate;
  args.h = act_.inner;
  ops_.norm_gate_up(recorder, args);
  linear(recorder, batch, act_.inner, weights.down, precision_.activation, act_.ffn_out);
}

// No fused operator takes the biases: the parts one after another.
void Recipe::biased_dense(const Recorder& recorder, const Batch& batch, const DenseWeights& weights,
                          const Entry& entry) const {
  norm(recorder, batch, entry, act_.x);
  biased(recorder, batch, act_.x, weights.gate, weights.gate_bias, act_.gate);
  biased(recorder, batch, act_.x, weights.up, weights.up_bias, act_.inner);
  frt_binary_args args{};
  args.dtype = precision_.activation;
  args.rows = batch.rows();
  args.width = weights.gate.rows;
  args.row_count = batch.row_count;
  args.a = act_.gate;
  args.a_stride = weights.gate.rows;
  args.b = act_.inner;
  args.b_stride = weights.gate.rows;
  args.y = act_.inner;
  args.y_stride = weights.gate.rows;
  ops_.silu_mul(recorder, args);
  biased(recorder, batch, act_.inner, weights.down, weights.down_bias, act_.ffn_out);
}

void Recipe::mixture(const Recorder& recorder, const Batch& batch, const MixtureWeights& weights,
                     const Entry& entry) const {
  frt_moe_block_args args{};
  args.residual_dtype = precision_.residual;
  args.dtype = precision_.activation;
  args.rows = batch.rows();
  args.experts = i32(config_.experts);
  args.experts_per_token = i32(config_.experts_per_token);
  args.normalise = config_.normalise_top_k ? 1 : 0;
  args.epsilon = static_cast<float>(config_.epsilon);
  args.row_count = batch.row_count;
  args.residual = entry.residual;
  args.delta = entry.delta;
  args.norm_weight = entry.norm;
  args.x = act_.x;
  args.router = weights.router;
  args.gate = weights.gate;
  args.up = weights.up;
  args.down = weights.down;
  args.shared_gate_weight = weights.shared.gate;
  args.shared_up_weight = weights.shared.up;
  args.shared_down_weight = weights.shared.down;
  args.shared_expert_gate = weights.shared_scale;
  args.logits = act_.router_logits;
  args.ids = act_.expert_ids;
  args.weights = act_.expert_weights;
  args.shared_hidden = act_.shared_hidden;
  args.shared_y = act_.shared_y;
  args.shared_scale = act_.shared_scale;
  args.y = act_.ffn_out;
  ops_.moe_block(recorder, args);
}

}  // namespace frt::lm
