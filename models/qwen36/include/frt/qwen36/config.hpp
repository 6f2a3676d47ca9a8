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
#include <frt/models/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace frt::qwen36 {

enum class LayerKind : std::uint8_t {
  kDelta,      // gated delta net: "linear_attention"
  kAttention,  // gated causal attention: "full_attention"
};

enum class RopeType : std::uint8_t { kDefault, kLinear, kYarn };

struct Rope {
  RopeType type = RopeType::kDefault;
  double theta = 1e7;
  double factor = 1;              // linear, yarn: how far positions are stretched
  double original_positions = 0;  // yarn: positions the frequencies were trained for
  double beta_fast = 32;          // yarn: rotations above which a frequency stays
  double beta_slow = 1;           // yarn: rotations below which it is stretched
  bool truncate = true;           // yarn: round the limits to whole dimensions
  double attention_factor = 1;    // multiplies cos and sin
};

struct Config {
  // Trunk.
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  std::vector<LayerKind> layers;
  double epsilon = 1e-6;
  bool tied_embeddings = false;  // lm_head is the embedding table
  std::int64_t max_positions = 0;

  // Attention layers. Query rows are [query | gate] per head where `output_gate`.
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 256;
  std::int64_t rotary_dim = 64;
  bool output_gate = true;
  Rope rope;

  // Delta-net layers.
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t conv_width = 4;

  // Feed-forward: dense where `experts` is 0.
  std::int64_t intermediate = 0;
  std::int64_t experts = 0;
  std::int64_t chosen = 0;  // experts per token
  std::int64_t expert_width = 0;
  std::int64_t shared_width = 0;  // 0: no shared expert
  bool normalise_chosen = true;   // weights of the chosen experts sum to 1

  std::vector<std::int32_t> end_ids;  // eos_token_id, for files without generation_config.json

  std::int64_t mtp_layers = 0;  // of the draft head, as the file says; the tensors decide

  // FP8 blocks, for files that state them.
  std::int64_t block_rows = 128;
  std::int64_t block_columns = 128;

  bool mixture() const { return experts > 0; }
  std::int64_t layer_count() const { return static_cast<std::int64_t>(layers.size()); }
  std::int64_t attention_layers() const;
  std::int64_t delta_layers() const { return layer_count() - attention_layers(); }
  std::int64_t query_width() const { return heads * head_dim * (output_gate ? 2 : 1); }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  std::int64_t attention_width() const { return heads * head_dim; }
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

// Rotation angles per position, (rotary_dim / 2); multiply with the position in f32.
std::vector<float> rope_frequencies(const Config& config);

}  // namespace frt::qwen36
