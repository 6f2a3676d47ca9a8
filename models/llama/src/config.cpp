// SPDX-License-Identifier: Apache-2.0
// Field names are those of transformers' LlamaConfig.
#include "config.hpp"

#include <array>
#include <frt/error.hpp>
#include <frt/io/json_text.hpp>

namespace frt::llama {

using lm::Fields;
using lm::RopeType;
using models::Json;

namespace {

constexpr double kDefaultTheta = 10000;

// Keys of related architectures that a file may carry with model_type "llama".
constexpr std::array<const char*, 12> kForeign = {"attention_multiplier",
                                                  "embedding_multiplier",
                                                  "residual_multiplier",
                                                  "logits_scaling",
                                                  "logit_scale",
                                                  "final_logit_softcapping",
                                                  "attn_logit_softcapping",
                                                  "query_pre_attn_scalar",
                                                  "use_qk_norm",
                                                  "num_experts",
                                                  "num_local_experts",
                                                  "sliding_window"};

void refuse_unsupported(const Fields& fields) {
  if (const auto act = fields.text("hidden_act"); act && *act != "silu" && *act != "swish") {
    fields.refuse("hidden_act", "\"silu\"", FRT_ERR_UNSUPPORTED);
  }
  if (fields.integer("pretraining_tp", 1).value_or(1) != 1) {
    fields.refuse("pretraining_tp", "1", FRT_ERR_UNSUPPORTED);
  }
  for (const char* key : kForeign) {
    const Json* value = fields.find(key);
    if (value && *value != Json(false)) fields.refuse(key, "nothing", FRT_ERR_UNSUPPORTED);
  }
}

void require_llama(const Fields& fields) {
  if (const auto type = fields.text("model_type"); !type || *type != "llama") {
    fields.refuse("model_type", "\"llama\"", FRT_ERR_MISMATCH);
  }
  const Json* names = fields.find("architectures");
  if (!names || *names == Json::array({"LlamaForCausalLM"})) return;
  fields.refuse("architectures", "[\"LlamaForCausalLM\"]", FRT_ERR_MISMATCH);
}

}  // namespace

Config read_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  return parse_config(io::read_json_file(path), path.string());
}

Config parse_config(const Json& json, std::string_view file) {
  if (!json.is_object()) {
    throw Error(FRT_ERR_FORMAT, std::string(file) + ": expected a JSON object");
  }
  Json whole = json;
  // Older files leave it out.
  if (Json& theta = whole["rope_theta"]; theta.is_null()) theta = kDefaultTheta;
  const Fields fields(whole, std::string(file), "");
  require_llama(fields);
  refuse_unsupported(fields);

  Config config;
  config.vocabulary = fields.need_integer("vocab_size");
  config.hidden = fields.need_integer("hidden_size");
  config.layers = fields.need_integer("num_hidden_layers", 1, lm::kMaxLayers);
  config.intermediate = fields.need_integer("intermediate_size");
  config.epsilon = fields.positive("rms_norm_eps").value_or(1e-6);
  config.tied_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  config.max_positions = fields.integer("max_position_embeddings", 1).value_or(2048);
  config.attention_bias = fields.boolean("attention_bias").value_or(false);
  config.mlp_bias = fields.boolean("mlp_bias").value_or(false);

  config.heads = fields.need_integer("num_attention_heads");
  config.kv_heads = fields.integer("num_key_value_heads", 1).value_or(config.heads);
  if (const auto head_dim = fields.integer("head_dim", 1)) {
    config.head_dim = *head_dim;
  } else {
    if (config.hidden % config.heads != 0) {
      fields.refuse("hidden_size", "a multiple of num_attention_heads, as there is no head_dim");
    }
    config.head_dim = config.hidden / config.heads;
  }
  double share = 1;
  config.rope =
      lm::read_rope(fields, share, config.max_positions, {RopeType::kLinear, RopeType::kLlama3});
  if (share != 1) {
    throw Error(FRT_ERR_UNSUPPORTED, fields.at("partial_rotary_factor") + ": expected 1, found " +
                                         io::json_text(Json(share)));
  }
  config.rotary_dim = config.head_dim;
  config.end_ids = lm::read_end_ids(fields);
  lm::read_blocks(fields, config);
  lm::validate_attention(config, file);
  return config;
}

std::string canonical_text(const Config& config) {
  return Json{{"architecture", "llama"},
              {"attention_bias", config.attention_bias},
              {"head_dim", config.head_dim},
              {"hidden_size", config.hidden},
              {"intermediate_size", config.intermediate},
              {"mlp_bias", config.mlp_bias},
              {"num_attention_heads", config.heads},
              {"num_hidden_layers", config.layers},
              {"num_key_value_heads", config.kv_heads},
              {"rms_norm_eps", config.epsilon},
              {"rope_parameters", lm::rope_json(config.rope)},
              {"tie_word_embeddings", config.tied_embeddings},
              {"vocab_size", config.vocabulary}}
      .dump();
}

std::string describe(const Config& config) {
  return std::to_string(config.layers) + " layers, hidden " + std::to_string(config.hidden) + ", " +
         std::to_string(config.heads) + " query heads, " + std::to_string(config.kv_heads) +
         " KV heads";
}

}  // namespace frt::llama
