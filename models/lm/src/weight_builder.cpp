// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/weight_builder.hpp>

#include <span>
#include <utility>

namespace frt::lm {

WeightBuilder::WeightBuilder(const Config& config, WeightSource& source, DeviceMemory& memory,
                             Weights& weights, bool with_mtp)
    : config_(config), source_(source), memory_(memory), weights_(weights) {
  source_.begin(with_mtp);
  weights_.rope_frequencies = constants(rope_frequencies(config_));
}

const float* WeightBuilder::constants(const std::vector<float>& values) {
  weights_.totals.parameters += values.size();
  return reinterpret_cast<const float*>(memory_.upload(std::as_bytes(std::span(values))));
}

frt_weight WeightBuilder::counted(const frt_weight& weight, double share) {
  const auto values =
      static_cast<std::uint64_t>(weight.rows) * static_cast<std::uint64_t>(weight.cols);
  WeightTotals& totals = weights_.totals;
  totals.parameters += values;
  totals.bytes += weight_bytes(weight);
  totals.decode_bytes +=
      static_cast<std::uint64_t>(share * static_cast<double>(weight_bytes(weight)));
  totals.token_flops += static_cast<std::uint64_t>(2 * share * static_cast<double>(values));
  totals.format_parameters[static_cast<std::size_t>(weight_type(weight.format))] += values;
  weights_.formats.add(weight.format);
  return weight;
}

frt_weight WeightBuilder::matrix(const std::string& base, std::int64_t rows, std::int64_t columns,
                                 Role role) {
  return counted(source_.matrix(base, rows, columns, role));
}

const float* WeightBuilder::vector(const std::string& name, std::int64_t width, Role role) {
  std::vector<float> values = source_.values(name, {width}, role);
  if (role == Role::kCentredNorm) {
    for (float& value : values) value += 1.0f;
  }
  return constants(values);
}

void WeightBuilder::norms(const std::string& layer, Role role, LayerWeights& weights) {
  weights.input_norm = vector(layer + "input_layernorm.weight", config_.hidden, role);
  weights.post_norm = vector(layer + "post_attention_layernorm.weight", config_.hidden, role);
}

AttentionWeights WeightBuilder::attention(const std::string& prefix) {
  const Config& c = config_;
  AttentionWeights w;
  w.query = matrix(prefix + "q_proj", c.query_width(), c.hidden, Role::kMixer);
  w.key = matrix(prefix + "k_proj", c.kv_width(), c.hidden, Role::kMixer);
  w.value = matrix(prefix + "v_proj", c.kv_width(), c.hidden, Role::kMixer);
  w.output = matrix(prefix + "o_proj", c.hidden, c.attention_width(), Role::kMixer);
  source_.cache_scales(prefix, w);
  return w;
}

DenseWeights WeightBuilder::dense(const std::string& prefix, std::int64_t width) {
  DenseWeights w;
  w.gate = matrix(prefix + "gate_proj", width, config_.hidden, Role::kFeedForward);
  w.up = matrix(prefix + "up_proj", width, config_.hidden, Role::kFeedForward);
  w.down = matrix(prefix + "down_proj", config_.hidden, width, Role::kFeedForward);
  return w;
}

void WeightBuilder::feed_forward(const std::string& prefix, LayerWeights& weights) {
  if (config_.mixture()) {
    weights.mixture = mixture(prefix);
  } else {
    weights.dense = dense(prefix, config_.intermediate);
  }
}

MixtureWeights WeightBuilder::mixture(const std::string& prefix) {
  const Config& c = config_;
  MixtureWeights w;
  w.router = matrix(prefix + "gate", c.experts, c.hidden, Role::kSmall);
  source_.experts(prefix, c, w);
  const double share = static_cast<double>(c.experts_per_token) / static_cast<double>(c.experts);
  for (const frt_expert_weight* stack : {&w.gate, &w.up, &w.down}) {
    for (std::int64_t e = 0; e < c.experts; ++e) counted(stack->expert, share);
    weights_.totals.expert_bytes += weight_bytes(stack->expert);
  }
  if (c.shared_width > 0) {
    w.shared = dense(prefix + "shared_expert.", c.shared_width);
    w.shared_scale = matrix(prefix + "shared_expert_gate", 1, c.hidden, Role::kSmall);
  }
  return w;
}

void WeightBuilder::trunk_end(Role norm) {
  weights_.norm = vector("norm.weight", config_.hidden, norm);
  trunk_flops_ = weights_.totals.token_flops;
  weights_.embedding = counted(source_.embedding(config_), 0);
  weights_.head = source_.head(config_, weights_.embedding);
  if (weights_.head.data == weights_.embedding.data) {
    weights_.totals.decode_bytes += weight_bytes(weights_.head);
  } else {
    weights_.head = counted(weights_.head);
  }
}

void WeightBuilder::finish(std::unique_ptr<DeviceMemory> memory) {
  weights_.totals.token_flops = trunk_flops_;
  memory->finish();
  source_.end();
  weights_.memory = std::move(memory);
}

}  // namespace frt::lm
