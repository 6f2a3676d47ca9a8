// SPDX-License-Identifier: Apache-2.0
// frt/qwen36/config.hpp - the dimensions of a Qwen3.6 text model, from config.json or a preset.
//
// A config.json may be nested (text_config inside, as the official files) or flat (text-only
// exports); older files state rope at the level of text_config, newer ones in rope_parameters;
// layer_types may be absent. Everything that changes the computation is either understood or
// refused by name. Errors: FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT (a key is missing, of a wrong type or
// out of range), FRT_ERR_UNSUPPORTED (understood, but nothing here computes it), each with file,
// key, what was expected and what was found. All functions are [any].
#pragma once

#include <cstdint>
#include <filesystem>
#include <frt/lm/config.hpp>
#include <frt/models/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace frt::qwen36 {

enum class LayerKind : std::uint8_t {
  kDelta,      // gated delta net: "linear_attention"
  kAttention,  // gated causal attention: "full_attention"
};

using lm::Rope;
using lm::rope_frequencies;
using lm::RopeType;

struct Config : lm::Config {
  Config() {
    head_dim = 256;
    rotary_dim = 64;
    output_gate = true;
  }

  std::vector<LayerKind> layers;

  // Delta-net layers.
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t conv_width = 4;

  std::int64_t layer_count() const { return static_cast<std::int64_t>(layers.size()); }
  std::int64_t attention_layers() const;
  std::int64_t delta_layers() const { return layer_count() - attention_layers(); }
  std::int64_t value_width() const { return value_heads * value_dim; }
  std::int64_t conv_channels() const { return 2 * key_heads * key_dim + value_width(); }
};

// Reads <folder>/config.json.
Config read_config(const std::filesystem::path& folder);

// From parsed JSON; `file` stands for it in errors.
Config parse_config(const models::Json& json, std::string_view file);

// Throws FRT_ERR_FORMAT if the dimensions do not fit each other; `file` as above.
void validate(const Config& config, std::string_view file);

// A config.json of the official, nested form that parse_config() reads back to `config`.
models::Json config_json(const Config& config);

// Every field that changes results, in one line; equal texts mean equal models.
std::string canonical_text(const Config& config);

// For people: "dense 64 layers (48 delta, 16 attention), hidden 5120".
std::string describe(const Config& config);

}  // namespace frt::qwen36
