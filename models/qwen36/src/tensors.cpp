// SPDX-License-Identifier: Apache-2.0
#include <frt/qwen36/tensors.hpp>
#include <string>
#include <utility>

namespace frt::qwen36 {
namespace {

class Lister {
 public:
  Lister(const Config& config, bool per_expert) : config_(config), per_expert_(per_expert) {}

  void add(std::string name, std::initializer_list<std::int64_t> shape, Role role) {
    Tensor tensor{std::move(name), {}, role};
    for (const std::int64_t extent : shape) {
      tensor.shape.push_back(static_cast<std::uint64_t>(extent));
    }
    tensors.push_back(std::move(tensor));
  }

  void decoder_layer(const std::string& prefix, LayerKind kind) {
    const Config& c = config_;
    add(prefix + "input_layernorm.weight", {c.hidden}, Role::kCentredNorm);
    add(prefix + "post_attention_layernorm.weight", {c.hidden}, Role::kCentredNorm);
    if (kind == LayerKind::kAttention) {
      attention(prefix + "self_attn.");
    } else {
      delta_net(prefix + "linear_attn.");
    }
    if (c.mixture()) {
      mixture(prefix + "mlp.");
    } else {
      mlp(prefix + "mlp.", c.intermediate);
    }
  }

  std::vector<Tensor> tensors;

 private:
  void attention(const std::string& prefix) {
    const Config& c = config_;
    add(prefix + "q_proj.weight", {c.query_width(), c.hidden}, Role::kMixer);
    add(prefix + "k_proj.weight", {c.kv_width(), c.hidden}, Role::kMixer);
    add(prefix + "v_proj.weight", {c.kv_width(), c.hidden}, Role::kMixer);
    add(prefix + "o_proj.weight", {c.hidden, c.attention_width()}, Role::kMixer);
    add(prefix + "q_norm.weight", {c.head_dim}, Role::kCentredNorm);
    add(prefix + "k_norm.weight", {c.head_dim}, Role::kCentredNorm);
  }
  void delta_net(const std::string& prefix) {
    const Config& c = config_;
    add(prefix + "in_proj_qkv.weight", {c.conv_channels(), c.hidden}, Role::kMixer);
    add(prefix + "in_proj_z.weight", {c.value_width(), c.hidden}, Role::kMixer);
    add(prefix + "in_proj_b.weight", {c.value_heads, c.hidden}, Role::kSmall);
    add(prefix + "in_proj_a.weight", {c.value_heads, c.hidden}, Role::kSmall);
    add(prefix + "conv1d.weight", {c.conv_channels(), 1, c.conv_width}, Role::kConv);
    add(prefix + "A_log", {c.value_heads}, Role::kDecayLog);
    add(prefix + "dt_bias", {c.value_heads}, Role::kTimeBias);
    add(prefix + "norm.weight", {c.value_dim}, Role::kPlainNorm);
    add(prefix + "out_proj.weight", {c.hidden, c.value_width()}, Role::kMixer);
  }
  void mlp(const std::string& prefix, std::int64_t width) {
    add(prefix + "gate_proj.weight", {width, config_.hidden}, Role::kFeedForward);
    add(prefix + "up_proj.weight", {width, config_.hidden}, Role::kFeedForward);
    add(prefix + "down_proj.weight", {config_.hidden, width}, Role::kFeedForward);
  }
  void mixture(const std::string& prefix) {
    const Config& c = config_;
    add(prefix + "gate.weight", {c.experts, c.hidden}, Role::kSmall);
    if (per_expert_) {
      for (std::int64_t e = 0; e < c.experts; ++e) {
        mlp(prefix + "experts." + std::to_string(e) + ".", c.expert_width);
      }
    } else {
      add(prefix + "experts.gate_up_proj", {c.experts, 2 * c.expert_width, c.hidden},
          Role::kFeedForward);
      add(prefix + "experts.down_proj", {c.experts, c.hidden, c.expert_width}, Role::kFeedForward);
    }
    if (c.shared_width == 0) return;
    mlp(prefix + "shared_expert.", c.shared_width);
    add(prefix + "shared_expert_gate.weight", {1, c.hidden}, Role::kSmall);
  }

  const Config& config_;
  bool per_expert_;
};

}  // namespace

std::vector<Tensor> checkpoint_tensors(const Config& config, bool per_expert) {
  const std::string trunk = "model.language_model.";
  Lister list(config, per_expert);
  list.add(trunk + "embed_tokens.weight", {config.vocabulary, config.hidden}, Role::kEmbedding);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    list.decoder_layer(trunk + "layers." + std::to_string(i) + ".", config.layers[i]);
  }
  list.add(trunk + "norm.weight", {config.hidden}, Role::kCentredNorm);
  if (!config.tied_embeddings) {
    list.add("lm_head.weight", {config.vocabulary, config.hidden}, Role::kHead);
  }
  if (config.mtp_layers > 0) {
    list.add("mtp.fc.weight", {config.hidden, 2 * config.hidden}, Role::kSmall);
    list.add("mtp.pre_fc_norm_embedding.weight", {config.hidden}, Role::kCentredNorm);
    list.add("mtp.pre_fc_norm_hidden.weight", {config.hidden}, Role::kCentredNorm);
    list.decoder_layer("mtp.layers.0.", LayerKind::kAttention);
    list.add("mtp.norm.weight", {config.hidden}, Role::kCentredNorm);
  }
  return std::move(list.tensors);
}

}  // namespace frt::qwen36
