// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <frt/error.hpp>
#include <frt/qwen36/presets.hpp>

namespace frt::qwen36 {
namespace {

constexpr std::array<Preset, 5> kPresets = {{
    {"qwen3.6-27b", "the 27B dense model"},
    {"qwen3.6-35b-a3b", "the 35B mixture of experts, 3B active"},
    {"qwen3.6-0.8b-like", "24 layers, hidden 1024, tied embeddings: for small machines"},
    {"qwen3.6-tiny", "8 layers, hidden 128, vocabulary 512: for tests"},
    {"qwen3.6-tiny-moe", "8 layers, hidden 64, 16 experts: for tests"},
}};

std::vector<LayerKind> rhythm(std::int64_t count) {
  std::vector<LayerKind> layers(static_cast<std::size_t>(count), LayerKind::kDelta);
  for (std::size_t i = 3; i < layers.size(); i += 4) layers[i] = LayerKind::kAttention;
  return layers;
}

Config large_base() {
  Config config;
  config.vocabulary = 248320;
  config.max_positions = 262144;
  config.head_dim = 256;
  config.rotary_dim = 64;
  config.key_heads = 16;
  config.key_dim = 128;
  config.value_dim = 128;
  config.mtp_layers = 1;
  return config;
}

Config tiny_base() {
  Config config;
  config.vocabulary = 512;
  config.max_positions = 4096;
  config.layers = rhythm(8);
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.rotary_dim = 16;
  config.key_heads = 2;
  config.value_heads = 4;
  config.key_dim = 32;
  config.value_dim = 32;
  config.mtp_layers = 1;
  return config;
}

using Dimension = lm::Dimension<Config>;

constexpr std::array<Dimension, 22> kDimensions = {{
    {"layers", 1, [](Config& c, std::int64_t v) { c.layers = rhythm(v); }, lm::kMaxLayers},
    {"hidden", 1, [](Config& c, std::int64_t v) { c.hidden = v; }},
    {"vocabulary", 1, [](Config& c, std::int64_t v) { c.vocabulary = v; }},
    {"max_positions", 1, [](Config& c, std::int64_t v) { c.max_positions = v; }},
    {"heads", 1, [](Config& c, std::int64_t v) { c.heads = v; }},
    {"kv_heads", 1, [](Config& c, std::int64_t v) { c.kv_heads = v; }},
    {"head_dim", 1, [](Config& c, std::int64_t v) { c.head_dim = v; }},
    {"rotary_dim", 0, [](Config& c, std::int64_t v) { c.rotary_dim = v; }},
    {"key_heads", 1, [](Config& c, std::int64_t v) { c.key_heads = v; }},
    {"value_heads", 1, [](Config& c, std::int64_t v) { c.value_heads = v; }},
    {"key_dim", 1, [](Config& c, std::int64_t v) { c.key_dim = v; }},
    {"value_dim", 1, [](Config& c, std::int64_t v) { c.value_dim = v; }},
    {"conv_width", 2, [](Config& c, std::int64_t v) { c.conv_width = v; }},
    {"intermediate", 1, [](Config& c, std::int64_t v) { c.intermediate = v; }},
    {"experts", 0, [](Config& c, std::int64_t v) { c.experts = v; }},
    {"experts_per_token", 1, [](Config& c, std::int64_t v) { c.experts_per_token = v; }},
    {"expert_width", 1, [](Config& c, std::int64_t v) { c.expert_width = v; }},
    {"shared_width", 0, [](Config& c, std::int64_t v) { c.shared_width = v; }},
    {"mtp_layers", 0, [](Config& c, std::int64_t v) { c.mtp_layers = v; }},
    {"tied", 0, [](Config& c, std::int64_t v) { c.tied_embeddings = v != 0; }},
    {"block_rows", 1, [](Config& c, std::int64_t v) { c.block_rows = v; }},
    {"block_columns", 1, [](Config& c, std::int64_t v) { c.block_columns = v; }},
}};

constexpr auto kDimensionKeys = [] {
  std::array<std::string_view, kDimensions.size()> keys{};
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = kDimensions[i].key;
  return keys;
}();

}  // namespace

std::span<const Preset> presets() {
  return kPresets;
}

Config preset_config(std::string_view name) {
  if (name == "qwen3.6-27b") {
    Config config = large_base();
    config.hidden = 5120;
    config.layers = rhythm(64);
    config.heads = 24;
    config.kv_heads = 4;
    config.value_heads = 48;
    config.intermediate = 17408;
    return config;
  }
  if (name == "qwen3.6-35b-a3b") {
    Config config = large_base();
    config.hidden = 2048;
    config.layers = rhythm(40);
    config.heads = 16;
    config.kv_heads = 2;
    config.value_heads = 32;
    config.experts = 256;
    config.experts_per_token = 8;
    config.expert_width = 512;
    config.shared_width = 512;
    return config;
  }
  if (name == "qwen3.6-0.8b-like") {
    Config config = large_base();
    config.hidden = 1024;
    config.layers = rhythm(24);
    config.heads = 8;
    config.kv_heads = 2;
    config.value_heads = 16;
    config.intermediate = 3584;
    config.tied_embeddings = true;
    return config;
  }
  if (name == "qwen3.6-tiny") {
    Config config = tiny_base();
    config.hidden = 128;
    config.intermediate = 256;
    return config;
  }
  if (name == "qwen3.6-tiny-moe") {
    Config config = tiny_base();
    config.hidden = 64;
    config.experts = 16;
    config.experts_per_token = 4;
    config.expert_width = 32;
    config.shared_width = 48;
    return config;
  }
  lm::refuse_preset(name, kPresets);
}

std::span<const std::string_view> dimension_keys() {
  return kDimensionKeys;
}

void set_dimension(Config& config, std::string_view key, std::string_view value) {
  lm::set_dimension<Config>(kDimensions, config, key, value);
}

Synthetic parse_synthetic(std::string_view checkpoint) {
  const lm::SyntheticName name = lm::parse_synthetic_name(checkpoint);
  Synthetic synthetic{name.preset, preset_config(name.preset), name.format, name.seed};
  for (const auto& [key, value] : name.dimensions) set_dimension(synthetic.config, key, value);
  if (!synthetic.config.mixture() && synthetic.config.intermediate == 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                std::string(checkpoint) + ": a model without experts needs intermediate=N");
  }
  validate(synthetic.config, checkpoint);
  return synthetic;
}

}  // namespace frt::qwen36
