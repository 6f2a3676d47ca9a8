// SPDX-License-Identifier: Apache-2.0
// Field names are those of the reference implementation's text configuration.
#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/json_text.hpp>
#include <frt/qwen36/config.hpp>
#include <optional>

namespace frt::qwen36 {

using lm::Fields;
using models::Json;

namespace {

// Things a file may say that would change the computation in ways nothing here computes.
void refuse_unsupported(const Fields& fields) {
  if (const auto act = fields.text("hidden_act"); act && *act != "silu" && *act != "swish") {
    fields.refuse("hidden_act", "\"silu\"", FRT_ERR_UNSUPPORTED);
  }
  if (fields.boolean("attention_bias").value_or(false)) {
    fields.refuse("attention_bias", "false", FRT_ERR_UNSUPPORTED);
  }
  if (fields.boolean("mtp_use_dedicated_embeddings").value_or(false)) {
    fields.refuse("mtp_use_dedicated_embeddings", "false", FRT_ERR_UNSUPPORTED);
  }
  if (const auto gate = fields.text("output_gate_type");
      gate && *gate != "swish" && *gate != "silu") {
    fields.refuse("output_gate_type", "\"swish\"", FRT_ERR_UNSUPPORTED);
  }
  if (fields.integer("decoder_sparse_step", 1).value_or(1) != 1) {
    fields.refuse("decoder_sparse_step", "1", FRT_ERR_UNSUPPORTED);
  }
  if (const Json* only = fields.find("mlp_only_layers"); only && !only->empty()) {
    fields.refuse("mlp_only_layers", "an empty list", FRT_ERR_UNSUPPORTED);
  }
}

std::vector<LayerKind> layer_kinds(const Fields& fields) {
  const auto count =
      static_cast<std::size_t>(fields.need_integer("num_hidden_layers", 1, lm::kMaxLayers));
  std::vector<LayerKind> kinds(count, LayerKind::kDelta);
  const Json* types = fields.find("layer_types");
  if (!types) {
    const auto interval =
        static_cast<std::size_t>(fields.integer("full_attention_interval", 1).value_or(4));
    for (std::size_t i = interval - 1; i < count; i += interval) kinds[i] = LayerKind::kAttention;
    return kinds;
  }
  if (!types->is_array() || types->size() != count) {
    fields.refuse("layer_types",
                  "a list of num_hidden_layers = " + std::to_string(count) + " layer types");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Json& type = (*types)[i];
    if (type == "full_attention") {
      kinds[i] = LayerKind::kAttention;
    } else if (type != "linear_attention") {
      throw Error(FRT_ERR_UNSUPPORTED,
                  fields.at("layer_types") + "[" + std::to_string(i) +
                      "]: expected \"linear_attention\" or \"full_attention\", found " +
                      io::json_text(type).substr(0, 80));
    }
  }
  return kinds;
}

void read_feed_forward(const Fields& fields, Config& config) {
  config.experts = fields.integer("num_experts", 0).value_or(0);
  if (config.experts == 0) {
    config.intermediate = fields.need_integer("intermediate_size");
    return;
  }
  config.experts_per_token = fields.need_integer("num_experts_per_tok");
  config.expert_width = fields.need_integer("moe_intermediate_size");
  config.shared_width = fields.integer("shared_expert_intermediate_size", 0).value_or(0);
  config.normalise_top_k = fields.boolean("norm_topk_prob").value_or(true);
}

const char* kind_name(LayerKind kind) {
  return kind == LayerKind::kAttention ? "full_attention" : "linear_attention";
}

}  // namespace

std::int64_t Config::attention_layers() const {
  return std::count(layers.begin(), layers.end(), LayerKind::kAttention);
}

Config read_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  return parse_config(io::read_json_file(path), path.string());
}

Config parse_config(const Json& json, std::string_view file) {
  if (!json.is_object()) {
    throw Error(FRT_ERR_FORMAT, std::string(file) + ": expected a JSON object");
  }
  const Fields top(json, std::string(file), "");
  const auto nested = top.object("text_config");
  const Fields& fields = nested ? *nested : top;
  if (const auto type = fields.text("model_type");
      type && !type->starts_with("qwen3_5") && !type->starts_with("qwen3_6")) {
    fields.refuse("model_type", "qwen3_5, qwen3_5_moe or their text forms", FRT_ERR_MISMATCH);
  }
  refuse_unsupported(fields);

  Config config;
  config.vocabulary = fields.need_integer("vocab_size");
  config.hidden = fields.need_integer("hidden_size");
  config.layers = layer_kinds(fields);
  config.epsilon = fields.positive("rms_norm_eps").value_or(1e-6);
  config.tied_embeddings = fields.boolean("tie_word_embeddings").value_or(false) ||
                           top.boolean("tie_word_embeddings").value_or(false);
  config.max_positions = fields.integer("max_position_embeddings", 1).value_or(32768);

  config.heads = fields.need_integer("num_attention_heads");
  config.kv_heads = fields.integer("num_key_value_heads", 1).value_or(config.heads);
  config.head_dim = fields.integer("head_dim", 1).value_or(256);
  config.output_gate = fields.boolean("attn_output_gate").value_or(true);
  double rotary_share = 0.25;
  config.rope = lm::read_rope(fields, rotary_share, config.max_positions,
                              {RopeType::kLinear, RopeType::kYarn, RopeType::kMrope});
  config.rotary_dim =
      static_cast<std::int64_t>(static_cast<double>(config.head_dim) * rotary_share);

  config.key_heads = fields.need_integer("linear_num_key_heads");
  config.value_heads = fields.need_integer("linear_num_value_heads");
  config.key_dim = fields.need_integer("linear_key_head_dim");
  config.value_dim = fields.need_integer("linear_value_head_dim");
  config.conv_width = fields.integer("linear_conv_kernel_dim", 1).value_or(4);

  read_feed_forward(fields, config);
  config.mtp_layers = fields.integer("mtp_num_hidden_layers", 0).value_or(0);
  config.end_ids = lm::read_end_ids(fields.find("eos_token_id") ? fields : top);
  lm::read_blocks(nested && fields.find("quantization_config") ? fields : top, config);
  validate(config, file);
  return config;
}

void validate(const Config& config, std::string_view file) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(FRT_ERR_FORMAT, std::string(file) + ": " + what);
  };
  const auto n = [](std::int64_t value) { return std::to_string(value); };
  require(!config.layers.empty(), "num_hidden_layers must be at least 1");
  lm::validate_attention(config, file);
  require(config.key_heads > 0 && config.value_heads % config.key_heads == 0,
          "linear_num_value_heads (" + n(config.value_heads) +
              ") must be a multiple of linear_num_key_heads (" + n(config.key_heads) + ")");
  const auto bound = [&](const char* count_key, std::int64_t count, const char* size_key,
                         std::int64_t size) {
    require(size > 0 && count <= lm::kMaxDimension / size,
            std::string(count_key) + " (" + n(count) + ") times " + size_key + " (" + n(size) +
                ") must be at most " + n(lm::kMaxDimension));
  };
  bound("linear_num_key_heads", config.key_heads, "linear_key_head_dim", config.key_dim);
  bound("linear_num_value_heads", config.value_heads, "linear_value_head_dim", config.value_dim);
  require(config.conv_width >= 2 && config.conv_width <= 8,
          "linear_conv_kernel_dim is " + n(config.conv_width) + ", expected 2 to 8");
  if (config.mixture()) {
    require(config.experts_per_token >= 1 && config.experts_per_token <= config.experts,
            "num_experts_per_tok is " + n(config.experts_per_token) +
                ", expected 1 to num_experts = " + n(config.experts));
    bound("num_experts", config.experts, "moe_intermediate_size", config.expert_width);
  }
}

Json config_json(const Config& config) {
  Json types = Json::array();
  for (const LayerKind kind : config.layers) types.push_back(kind_name(kind));
  const std::string kind = config.mixture() ? "qwen3_5_moe" : "qwen3_5";
  Json rope = lm::rope_json(config.rope);
  rope["partial_rotary_factor"] =
      static_cast<double>(config.rotary_dim) / static_cast<double>(config.head_dim);
  Json text = {
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"attn_output_gate", config.output_gate},
      {"dtype", "bfloat16"},
      {"head_dim", config.head_dim},
      {"hidden_act", "silu"},
      {"hidden_size", config.hidden},
      {"layer_types", types},
      {"linear_conv_kernel_dim", config.conv_width},
      {"linear_key_head_dim", config.key_dim},
      {"linear_num_key_heads", config.key_heads},
      {"linear_num_value_heads", config.value_heads},
      {"linear_value_head_dim", config.value_dim},
      {"mamba_ssm_dtype", "float32"},
      {"max_position_embeddings", lm::file_positions(config)},
      {"model_type", kind + "_text"},
      {"mtp_num_hidden_layers", config.mtp_layers},
      {"mtp_use_dedicated_embeddings", false},
      {"num_attention_heads", config.heads},
      {"num_hidden_layers", config.layer_count()},
      {"num_key_value_heads", config.kv_heads},
      {"rms_norm_eps", config.epsilon},
      {"rope_parameters", rope},
      {"tie_word_embeddings", config.tied_embeddings},
      {"vocab_size", config.vocabulary},
  };
  if (config.mixture()) {
    text["num_experts"] = config.experts;
    text["num_experts_per_tok"] = config.experts_per_token;
    text["moe_intermediate_size"] = config.expert_width;
    text["shared_expert_intermediate_size"] = config.shared_width;
    text["norm_topk_prob"] = config.normalise_top_k;
  } else {
    text["intermediate_size"] = config.intermediate;
    text["output_gate_type"] = "swish";
  }
  return {{"architectures", Json::array({config.mixture() ? "Qwen3_5MoeForConditionalGeneration"
                                                          : "Qwen3_5ForConditionalGeneration"})},
          {"dtype", "bfloat16"},
          {"model_type", kind},
          {"text_config", text},
          {"tie_word_embeddings", config.tied_embeddings}};
}

std::string canonical_text(const Config& config) {
  Json text = config_json(config)["text_config"];
  for (const char* key : {"dtype", "model_type", "max_position_embeddings", "attention_dropout",
                          "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"}) {
    text.erase(key);
  }
  return text.dump();
}

std::string describe(const Config& config) {
  std::string text = config.mixture()
                         ? std::to_string(config.experts) + " experts, " +
                               std::to_string(config.experts_per_token) + " per token, "
                         : "dense, ";
  return text + std::to_string(config.layer_count()) + " layers (" +
         std::to_string(config.delta_layers()) + " delta net, " +
         std::to_string(config.attention_layers()) + " attention), hidden " +
         std::to_string(config.hidden);
}

}  // namespace frt::qwen36
