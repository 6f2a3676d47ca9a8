// SPDX-License-Identifier: Apache-2.0
#include "architecture.hpp"

#include <frt/lm/weight_builder.hpp>

namespace frt::llama {

using lm::Role;

Architecture::Architecture(std::string_view synthetic)
    : synthetic_(lm::parse_synthetic_name(synthetic)) {
  config_ = synthetic_config(*synthetic_, synthetic);
}

std::optional<lm::SyntheticWeights> Architecture::synthetic() const {
  if (!synthetic_) return std::nullopt;
  return lm::SyntheticWeights{synthetic_->format, synthetic_->seed, checkpoint_tensors(config_)};
}

std::unique_ptr<lm::Weights> Architecture::build_weights(lm::WeightSource& source,
                                                         std::unique_ptr<lm::DeviceMemory> memory,
                                                         bool with_mtp) const {
  const Config& c = config_;
  auto weights = std::make_unique<lm::Weights>();
  lm::WeightBuilder builder(c, source, *memory, *weights, with_mtp);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    lm::LayerWeights layer;
    builder.norms(prefix, Role::kPlainNorm, layer);
    lm::AttentionWeights& attention = layer.attention;
    attention = builder.attention(prefix + "self_attn.");
    if (c.attention_bias) {
      const std::string base = prefix + "self_attn.";
      attention.query_bias = builder.vector(base + "q_proj.bias", c.query_width(), Role::kBias);
      attention.key_bias = builder.vector(base + "k_proj.bias", c.kv_width(), Role::kBias);
      attention.value_bias = builder.vector(base + "v_proj.bias", c.kv_width(), Role::kBias);
      attention.output_bias = builder.vector(base + "o_proj.bias", c.hidden, Role::kBias);
    }
    builder.feed_forward(prefix + "mlp.", layer);
    if (c.mlp_bias) {
      const std::string base = prefix + "mlp.";
      layer.dense.gate_bias = builder.vector(base + "gate_proj.bias", c.intermediate, Role::kBias);
      layer.dense.up_bias = builder.vector(base + "up_proj.bias", c.intermediate, Role::kBias);
      layer.dense.down_bias = builder.vector(base + "down_proj.bias", c.hidden, Role::kBias);
    }
    weights->layers.push_back(layer);
  }
  builder.trunk_end(Role::kPlainNorm);
  builder.finish(std::move(memory));
  return weights;
}

std::vector<std::string> Architecture::operators(bool with_mtp) const {
  std::vector<std::string> needs = lm::Architecture::operators(with_mtp);
  if (config_.attention_bias || config_.mlp_bias) needs.push_back(FRT_OP_DENSE);
  if (config_.mlp_bias) needs.push_back(FRT_OP_SILU_MUL);
  return needs;
}

}  // namespace frt::llama
