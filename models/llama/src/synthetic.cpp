// SPDX-License-Identifier: Apache-2.0
// Presets, their dimensions, and the tensors of a configuration.
#include <array>
#include <string>
#include <utility>

#include "config.hpp"

namespace frt::llama {
namespace {

using lm::Preset;
using lm::Role;
using Dimension = lm::Dimension<Config>;

constexpr std::array<Preset, 3> kPresets = {{
    {"llama-3.1-8b", "the dimensions of Llama 3.1 8B"},
    {"llama-3.2-1b", "the dimensions of Llama 3.2 1B, tied embeddings"},
    {"llama-tiny", "2 layers, hidden 64, vocabulary 512: for tests"},
}};

constexpr std::array<Dimension, 9> kDimensions = {{
    {"layers", 1, [](Config& c, std::int64_t v) { c.layers = v; }, lm::kMaxLayers},
    {"hidden", 1, [](Config& c, std::int64_t v) { c.hidden = v; }},
    {"vocabulary", 1, [](Config& c, std::int64_t v) { c.vocabulary = v; }},
    {"max_positions", 1, [](Config& c, std::int64_t v) { c.max_positions = v; }},
    {"heads", 1, [](Config& c, std::int64_t v) { c.heads = v; }},
    {"kv_heads", 1, [](Config& c, std::int64_t v) { c.kv_heads = v; }},
    {"head_dim", 1, [](Config& c, std::int64_t v) { c.head_dim = c.rotary_dim = v; }},
    {"intermediate", 1, [](Config& c, std::int64_t v) { c.intermediate = v; }},
    {"tied", 0, [](Config& c, std::int64_t v) { c.tied_embeddings = v != 0; }},
}};

Config preset_config(std::string_view name) {
  Config config;
  config.vocabulary = 128256;
  config.max_positions = 131072;
  config.epsilon = 1e-5;
  config.kv_heads = 8;
  config.heads = 32;
  config.rope.type = lm::RopeType::kLlama3;
  config.rope.theta = 500000;
  config.rope.original_positions = 8192;
  if (name == "llama-3.1-8b") {
    config.hidden = 4096;
    config.layers = 32;
    config.intermediate = 14336;
    config.head_dim = 128;
    config.rope.factor = 8;
  } else if (name == "llama-3.2-1b") {
    config.hidden = 2048;
    config.layers = 16;
    config.intermediate = 8192;
    config.head_dim = 64;
    config.rope.factor = 32;
    config.tied_embeddings = true;
  } else if (name == "llama-tiny") {
    config.vocabulary = 512;
    config.max_positions = 4096;
    config.hidden = 64;
    config.layers = 2;
    config.intermediate = 128;
    config.heads = 4;
    config.kv_heads = 2;
    config.head_dim = 16;
    config.rope.factor = 8;
    config.rope.original_positions = 64;
  } else {
    lm::refuse_preset(name, kPresets);
  }
  config.rotary_dim = config.head_dim;
  return config;
}

}  // namespace

Config synthetic_config(const lm::SyntheticName& name, std::string_view checkpoint) {
  Config config = preset_config(name.preset);
  for (const auto& [key, value] : name.dimensions) {
    lm::set_dimension<Config>(kDimensions, config, key, value);
  }
  lm::validate_attention(config, checkpoint);
  return config;
}

std::vector<lm::Tensor> checkpoint_tensors(const Config& c) {
  std::vector<lm::Tensor> tensors;
  const auto add = [&](std::string name, Role role, std::initializer_list<std::int64_t> shape) {
    tensors.push_back({std::move(name), {shape.begin(), shape.end()}, role});
  };
  // A projection with its bias, where it has one.
  const auto linear = [&](const std::string& base, Role role, std::int64_t outputs,
                          std::int64_t inputs, bool bias) {
    add(base + ".weight", role, {outputs, inputs});
    if (bias) add(base + ".bias", Role::kBias, {outputs});
  };
  add("model.embed_tokens.weight", Role::kEmbedding, {c.vocabulary, c.hidden});
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm.weight", Role::kPlainNorm, {c.hidden});
    add(layer + "post_attention_layernorm.weight", Role::kPlainNorm, {c.hidden});
    const std::string attention = layer + "self_attn.";
    linear(attention + "q_proj", Role::kMixer, c.query_width(), c.hidden, c.attention_bias);
    linear(attention + "k_proj", Role::kMixer, c.kv_width(), c.hidden, c.attention_bias);
    linear(attention + "v_proj", Role::kMixer, c.kv_width(), c.hidden, c.attention_bias);
    linear(attention + "o_proj", Role::kMixer, c.hidden, c.attention_width(), c.attention_bias);
    const std::string mlp = layer + "mlp.";
    linear(mlp + "gate_proj", Role::kFeedForward, c.intermediate, c.hidden, c.mlp_bias);
    linear(mlp + "up_proj", Role::kFeedForward, c.intermediate, c.hidden, c.mlp_bias);
    linear(mlp + "down_proj", Role::kFeedForward, c.hidden, c.intermediate, c.mlp_bias);
  }
  add("model.norm.weight", Role::kPlainNorm, {c.hidden});
  if (!c.tied_embeddings) add("lm_head.weight", Role::kHead, {c.vocabulary, c.hidden});
  return tensors;
}

}  // namespace frt::llama
