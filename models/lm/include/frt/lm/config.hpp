// SPDX-License-Identifier: Apache-2.0
// frt/lm/config.hpp - the dimensions that decoders share, and the parts of a config.json that mean
// the same in every architecture. An architecture derives its own configuration from this one.
// Errors are those of Fields, and FRT_ERR_UNSUPPORTED for what is understood but not computed. All
// functions are [any].
#pragma once

#include <cstdint>
#include <frt/lm/fields.hpp>
#include <initializer_list>
#include <vector>

namespace frt::lm {

// kMrope, positions on several axes, is for files alone: those of text are the same on all, so it
// is read as kDefault.
enum class RopeType : std::uint8_t { kDefault, kLinear, kYarn, kLlama3, kMrope };

struct Rope {
  RopeType type = RopeType::kDefault;
  double theta = 1e7;
  double factor = 1;              // linear, yarn, llama3: how far positions are stretched
  double original_positions = 0;  // linear, yarn, llama3: positions that the model was trained for
  double beta_fast = 32;          // yarn: rotations above which a frequency stays
  double beta_slow = 1;           // yarn: rotations below which it is stretched
  bool truncate = true;           // yarn: round the limits to whole dimensions
  double high_freq_factor = 4;    // llama3: rotations above which a frequency stays
  double low_freq_factor = 1;     // llama3: rotations below which it is stretched
  double attention_factor = 1;    // multiplies cos and sin
};

struct Config {
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  double epsilon = 1e-6;
  bool tied_embeddings = false;  // lm_head is the embedding table
  std::int64_t max_positions = 0;

  // Attention layers. Query rows are [query | gate] per head where `output_gate`.
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rotary_dim = 0;
  bool output_gate = false;
  Rope rope;

  // Feed-forward: dense where `experts` is 0.
  std::int64_t intermediate = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;  // the router's top-k
  std::int64_t expert_width = 0;
  std::int64_t shared_width = 0;  // 0: no shared expert
  bool normalise_top_k = true;    // weights of a token's top-k experts sum to 1

  std::vector<std::int32_t> end_ids;  // eos_token_id, for files without generation_config.json

  std::int64_t mtp_layers = 0;  // of the draft head, as the file says; the tensors decide

  // FP8 blocks, for files that state them.
  std::int64_t block_rows = 128;
  std::int64_t block_columns = 128;

  bool mixture() const { return experts > 0; }
  std::int64_t query_width() const { return heads * head_dim * (output_gate ? 2 : 1); }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  std::int64_t attention_width() const { return heads * head_dim; }
};

// Rope stands in rope_parameters (newer files; perhaps per layer type), or in rope_theta,
// partial_rotary_factor and rope_scaling of the same object (older files); a rope_scaling that says
// something else than rope_parameters is FRT_ERR_FORMAT, as is a factor without a type. `share`
// gets partial_rotary_factor, above 0 and at most 1, and has the default before. `max_positions` is
// max_position_embeddings before; linear and yarn scaling raise it to the positions that they
// reach, at most kMaxPositions. `types`: the scaling that the architecture knows beside none;
// another one is FRT_ERR_UNSUPPORTED.
Rope read_rope(const Fields& fields, double& share, std::int64_t& max_positions,
               std::initializer_list<RopeType> types);

// max_position_embeddings of a file that read_rope() reads back to config.max_positions.
std::int64_t file_positions(const Config& config);

// Throws FRT_ERR_FORMAT unless the rotated part of a head is even and not larger than the head,
// query heads are a multiple of KV heads, a head has at most 65536 elements, and all heads together
// at most kMaxDimension; `file` stands for the file.
void validate_attention(const Config& config, std::string_view file);

// rope_parameters of a config.json, without partial_rotary_factor.
Json rope_json(const Rope& rope);

// quantization_config.weight_block_size, if the file has it.
void read_blocks(const Fields& top, Config& config);

// eos_token_id: one id or a list of them, each from 0 to 2147483647.
std::vector<std::int32_t> read_end_ids(const Fields& fields);

// Rotation angles per position, (rotary_dim / 2); multiply with the position in f32.
std::vector<float> rope_frequencies(const Config& config);

}  // namespace frt::lm
