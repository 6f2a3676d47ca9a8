// SPDX-License-Identifier: Apache-2.0
// Field names are those of the reference implementation's text configuration. `Fields` is one JSON
// object with the file and path it came from, so that every message can name the key in full.
#include <algorithm>
#include <cmath>
#include <frt/error.hpp>
#include <frt/io/json_text.hpp>
#include <frt/qwen36/config.hpp>
#include <numbers>
#include <optional>

namespace frt::qwen36 {

using models::Json;

namespace {

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 26;

class Fields {
 public:
  Fields(const Json& object, std::string file, std::string path)
      : object_(&object), file_(std::move(file)), path_(std::move(path)) {}

  // Where `key` is, for messages.
  std::string at(std::string_view key) const {
    return file_ + ": " + (path_.empty() ? "" : path_ + ".") + std::string(key);
  }
  [[noreturn]] void refuse(std::string_view key, const std::string& expected,
                           frt_status status = FRT_ERR_FORMAT) const {
    const Json* found = find(key);
    throw Error(status, at(key) + ": expected " + expected + ", found " +
                            (found ? found->dump().substr(0, 80) : "nothing"));
  }

  // The value, or null if the key is absent or JSON null.
  const Json* find(std::string_view key) const {
    const auto entry = object_->find(std::string(key));
    return entry == object_->end() || entry->is_null() ? nullptr : &*entry;
  }

  std::optional<std::int64_t> integer(std::string_view key, std::int64_t minimum) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    const auto limits =
        "a whole number from " + std::to_string(minimum) + " to " + std::to_string(kMaxDimension);
    if (!value->is_number_integer()) refuse(key, limits);
    const auto number = value->get<std::int64_t>();
    if (number < minimum || number > kMaxDimension) refuse(key, limits);
    return number;
  }
  std::int64_t need_integer(std::string_view key, std::int64_t minimum = 1) const {
    const auto value = integer(key, minimum);
    if (!value) refuse(key, "a whole number");
    return *value;
  }
  std::optional<double> number(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_number() || !std::isfinite(value->get<double>())) refuse(key, "a number");
    return value->get<double>();
  }
  std::optional<double> positive(std::string_view key) const {
    const auto value = number(key);
    if (value && *value <= 0) refuse(key, "a number above 0");
    return value;
  }
  std::optional<bool> boolean(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) refuse(key, "true or false");
    return value->get<bool>();
  }
  std::optional<std::string> text(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_string()) refuse(key, "a text");
    return value->get<std::string>();
  }
  std::optional<Fields> object(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_object()) refuse(key, "an object");
    return Fields(*value, file_, (path_.empty() ? "" : path_ + ".") + std::string(key));
  }

 private:
  const Json* object_;
  std::string file_;
  std::string path_;
};

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
  const auto count = static_cast<std::size_t>(fields.need_integer("num_hidden_layers"));
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

double yarn_attention_factor(const Fields& fields, double factor) {
  if (const auto given = fields.positive("attention_factor")) return *given;
  const auto scale = [factor](double m) {
    return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
  };
  const auto mscale = fields.number("mscale");
  const auto all = fields.number("mscale_all_dim");
  if (mscale && all && *mscale != 0 && *all != 0) return scale(*mscale) / scale(*all);
  return scale(1);
}

// Rope stands in rope_parameters (newer files; perhaps per layer type), or in rope_theta,
// partial_rotary_factor and rope_scaling of the same object (older files).
Rope read_rope(const Fields& fields, double& rotary_share, std::int64_t max_positions) {
  std::optional<Fields> block = fields.object("rope_parameters");
  if (block) {
    if (auto inner = block->object("full_attention")) block.emplace(*inner);
  } else {
    block = fields.object("rope_scaling");
  }
  const Fields& rope_fields = block ? *block : fields;
  const auto either = [&](std::string_view key) {
    auto value = rope_fields.positive(key);
    return value ? value : fields.positive(key);
  };
  Rope rope;
  const auto theta = either("rope_theta");
  if (!theta) rope_fields.refuse("rope_theta", "the base of the rotary frequencies");
  rope.theta = *theta;
  rotary_share = either("partial_rotary_factor").value_or(0.25);
  if (!block) return rope;

  const auto type = block->text("rope_type") ? block->text("rope_type") : block->text("type");
  if (!type || *type == "default" || *type == "mrope") return rope;
  if (*type != "yarn" && *type != "linear") {
    block->refuse(block->find("rope_type") ? "rope_type" : "type",
                  "\"default\", \"linear\" or \"yarn\"", FRT_ERR_UNSUPPORTED);
  }
  const auto factor = block->positive("factor");
  if (!factor || *factor < 1) block->refuse("factor", "a number of at least 1");
  rope.factor = *factor;
  if (*type == "linear") {
    rope.type = RopeType::kLinear;
    return rope;
  }
  rope.type = RopeType::kYarn;
  rope.original_positions = block->positive("original_max_position_embeddings")
                                .value_or(static_cast<double>(max_positions));
  rope.beta_fast = block->positive("beta_fast").value_or(32);
  rope.beta_slow = block->positive("beta_slow").value_or(1);
  rope.truncate = block->boolean("truncate").value_or(true);
  rope.attention_factor = yarn_attention_factor(*block, rope.factor);
  return rope;
}

void read_feed_forward(const Fields& fields, Config& config) {
  config.experts = fields.integer("num_experts", 0).value_or(0);
  if (config.experts == 0) {
    config.intermediate = fields.need_integer("intermediate_size");
    return;
  }
  config.chosen = fields.need_integer("num_experts_per_tok");
  config.expert_width = fields.need_integer("moe_intermediate_size");
  config.shared_width = fields.integer("shared_expert_intermediate_size", 0).value_or(0);
  config.normalise_chosen = fields.boolean("norm_topk_prob").value_or(true);
}

void read_blocks(const Fields& top, Config& config) {
  const auto quantisation = top.object("quantization_config");
  if (!quantisation) return;
  const Json* block = quantisation->find("weight_block_size");
  if (!block) return;
  if (!block->is_array() || block->size() != 2 || !(*block)[0].is_number_unsigned() ||
      !(*block)[1].is_number_unsigned() || (*block)[0] == 0 || (*block)[1] == 0) {
    quantisation->refuse("weight_block_size", "[rows, columns]");
  }
  config.block_rows = (*block)[0].get<std::int64_t>();
  config.block_columns = (*block)[1].get<std::int64_t>();
}

// One id or a list of them.
std::vector<std::int32_t> read_end_ids(const Fields& fields) {
  std::vector<std::int32_t> ids;
  const Json* value = fields.find("eos_token_id");
  if (!value) return ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    if (!id.is_number_integer()) fields.refuse("eos_token_id", "a token id or a list of them");
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
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
  config.rope = read_rope(fields, rotary_share, config.max_positions);
  config.rotary_dim =
      static_cast<std::int64_t>(static_cast<double>(config.head_dim) * rotary_share);
  if (config.rope.type == RopeType::kYarn) {
    config.max_positions =
        std::max(config.max_positions,
                 static_cast<std::int64_t>(config.rope.original_positions * config.rope.factor));
  }

  config.key_heads = fields.need_integer("linear_num_key_heads");
  config.value_heads = fields.need_integer("linear_num_value_heads");
  config.key_dim = fields.need_integer("linear_key_head_dim");
  config.value_dim = fields.need_integer("linear_value_head_dim");
  config.conv_width = fields.integer("linear_conv_kernel_dim", 1).value_or(4);

  read_feed_forward(fields, config);
  config.mtp_layers = fields.integer("mtp_num_hidden_layers", 0).value_or(0);
  config.end_ids = read_end_ids(fields.find("eos_token_id") ? fields : top);
  read_blocks(nested && fields.find("quantization_config") ? fields : top, config);
  validate(config, file);
  return config;
}

void validate(const Config& config, std::string_view file) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(FRT_ERR_FORMAT, std::string(file) + ": " + what);
  };
  const auto n = [](std::int64_t value) { return std::to_string(value); };
  require(!config.layers.empty(), "num_hidden_layers must be at least 1");
  require(config.kv_heads > 0 && config.heads % config.kv_heads == 0,
          "num_attention_heads (" + n(config.heads) +
              ") must be a multiple of num_key_value_heads (" + n(config.kv_heads) + ")");
  require(config.key_heads > 0 && config.value_heads % config.key_heads == 0,
          "linear_num_value_heads (" + n(config.value_heads) +
              ") must be a multiple of linear_num_key_heads (" + n(config.key_heads) + ")");
  require(
      config.rotary_dim >= 0 && config.rotary_dim <= config.head_dim && config.rotary_dim % 2 == 0,
      "head_dim (" + n(config.head_dim) + ") times partial_rotary_factor gives " +
          n(config.rotary_dim) + ", expected an even number of at most head_dim");
  require(config.conv_width >= 2 && config.conv_width <= 8,
          "linear_conv_kernel_dim is " + n(config.conv_width) + ", expected 2 to 8");
  if (config.mixture()) {
    require(config.chosen >= 1 && config.chosen <= config.experts,
            "num_experts_per_tok is " + n(config.chosen) +
                ", expected 1 to num_experts = " + n(config.experts));
  }
}

Json config_json(const Config& config) {
  Json types = Json::array();
  for (const LayerKind kind : config.layers) types.push_back(kind_name(kind));
  const std::string kind = config.mixture() ? "qwen3_5_moe" : "qwen3_5";
  Json rope = {{"rope_type", "default"}};
  if (config.rope.type == RopeType::kLinear) rope["rope_type"] = "linear";
  if (config.rope.type == RopeType::kYarn) rope["rope_type"] = "yarn";
  rope["rope_theta"] = config.rope.theta;
  rope["partial_rotary_factor"] =
      static_cast<double>(config.rotary_dim) / static_cast<double>(config.head_dim);
  if (config.rope.type != RopeType::kDefault) rope["factor"] = config.rope.factor;
  if (config.rope.type == RopeType::kYarn) {
    rope["original_max_position_embeddings"] = config.rope.original_positions;
    rope["beta_fast"] = config.rope.beta_fast;
    rope["beta_slow"] = config.rope.beta_slow;
    rope["truncate"] = config.rope.truncate;
    rope["attention_factor"] = config.rope.attention_factor;
  }
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
      {"max_position_embeddings", config.max_positions},
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
    text["num_experts_per_tok"] = config.chosen;
    text["moe_intermediate_size"] = config.expert_width;
    text["shared_expert_intermediate_size"] = config.shared_width;
    text["norm_topk_prob"] = config.normalise_chosen;
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
  std::string text = config.mixture() ? std::to_string(config.experts) + " experts, " +
                                            std::to_string(config.chosen) + " per token, "
                                      : "dense, ";
  return text + std::to_string(config.layer_count()) + " layers (" +
         std::to_string(config.delta_layers()) + " delta net, " +
         std::to_string(config.attention_layers()) + " attention), hidden " +
         std::to_string(config.hidden);
}

// The yarn form blends the trained frequencies with those divided by `factor`, by a ramp over the
// dimensions between beta_fast and beta_slow rotations in original_positions positions.
std::vector<float> rope_frequencies(const Config& config) {
  const Rope& rope = config.rope;
  const auto dims = static_cast<double>(config.rotary_dim);
  std::vector<float> frequencies(static_cast<std::size_t>(config.rotary_dim / 2));
  const auto dimension_of = [&](double rotations) {
    return dims * std::log(rope.original_positions / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = 0;
  double high = 0;
  if (rope.type == RopeType::kYarn) {
    low = dimension_of(rope.beta_fast);
    high = dimension_of(rope.beta_slow);
    if (rope.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dims - 1);
    if (low == high) high += 0.001;
  }
  for (std::size_t j = 0; j < frequencies.size(); ++j) {
    // In f32 as the reference does it: the exponent, the power and the reciprocal are rounded.
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(dims);
    const float trained =
        1.0f / static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    frequencies[j] = trained;
    if (rope.type == RopeType::kLinear) {
      frequencies[j] = static_cast<float>(static_cast<double>(trained) / rope.factor);
    } else if (rope.type == RopeType::kYarn) {
      const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
      const double t = static_cast<double>(trained);
      frequencies[j] = static_cast<float>(t / rope.factor * ramp + t * (1 - ramp));
    }
  }
  return frequencies;
}

}  // namespace frt::qwen36
