// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <frt/lm/config.hpp>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace frt::lm {
namespace {

constexpr std::int64_t kMaxHeadDim = 65536;

constexpr std::array<std::pair<RopeType, const char*>, 5> kRopeTypes = {{
    {RopeType::kDefault, "default"},
    {RopeType::kLinear, "linear"},
    {RopeType::kYarn, "yarn"},
    {RopeType::kLlama3, "llama3"},
    {RopeType::kMrope, "mrope"},
}};

const char* type_name(RopeType type) {
  return std::find_if(kRopeTypes.begin(), kRopeTypes.end(),
                      [&](const auto& entry) { return entry.first == type; })
      ->second;
}

RopeType scaling_type(const Fields& block, std::string_view found,
                      std::initializer_list<RopeType> known) {
  std::string expected = "\"default\"";
  for (const RopeType type : known) {
    if (found == type_name(type)) return type;
    expected +=
        (type == *(known.end() - 1) ? " or \"" : ", \"") + std::string(type_name(type)) + "\"";
  }
  block.refuse(block.find("rope_type") ? "rope_type" : "type", expected, FRT_ERR_UNSUPPORTED);
}

void read_llama3(const Fields& block, Rope& rope) {
  const auto need = [&](std::string_view key) {
    const auto value = block.positive(key);
    if (!value) block.refuse(key, "a number above 0");
    return *value;
  };
  rope.original_positions = need("original_max_position_embeddings");
  rope.low_freq_factor = need("low_freq_factor");
  rope.high_freq_factor = need("high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    block.refuse("high_freq_factor", "a number above low_freq_factor");
  }
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

// rope_scaling beside `parameters`, which are what counts.
void require_same_scaling(const Fields& fields, const Fields& parameters) {
  if (!fields.object("rope_scaling")) return;
  for (const auto& [key, value] : fields.find("rope_scaling")->items()) {
    const Json* counts = parameters.find(key);
    if (value.is_null() || (counts && *counts == value)) continue;
    fields.refuse("rope_scaling", "nothing, or what rope_parameters says (" + key + " differs)");
  }
}

}  // namespace

Rope read_rope(const Fields& fields, double& share, std::int64_t& max_positions,
               std::initializer_list<RopeType> types) {
  std::optional<Fields> block = fields.object("rope_parameters");
  if (block) {
    if (auto inner = block->object("full_attention")) block.emplace(*inner);
    require_same_scaling(fields, *block);
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
  share = either("partial_rotary_factor").value_or(share);
  if (share > 1) {
    const Fields& stated = rope_fields.find("partial_rotary_factor") ? rope_fields : fields;
    stated.refuse("partial_rotary_factor", "a number above 0 and at most 1");
  }
  if (!block) return rope;

  const auto type = block->text("rope_type") ? block->text("rope_type") : block->text("type");
  if (!type && block->find("factor")) {
    block->refuse("rope_type", "the kind of scaling that factor belongs to");
  }
  if (!type || *type == "default") return rope;
  const RopeType scaling = scaling_type(*block, *type, types);
  if (scaling == RopeType::kMrope) return rope;
  rope.type = scaling;
  const auto factor = block->positive("factor");
  if (!factor || *factor < 1) block->refuse("factor", "a number of at least 1");
  rope.factor = *factor;
  const auto raise_positions = [&] {
    const double reached = rope.original_positions * rope.factor;
    if (!(reached <= static_cast<double>(kMaxPositions))) {
      block->refuse("factor", "a number with which at most " + std::to_string(kMaxPositions) +
                                  " positions are reached");
    }
    max_positions = std::max(max_positions, static_cast<std::int64_t>(reached));
  };
  if (rope.type == RopeType::kLinear) {
    rope.original_positions = static_cast<double>(max_positions);
    raise_positions();
    return rope;
  }
  if (rope.type == RopeType::kLlama3) {
    read_llama3(*block, rope);
    return rope;
  }
  rope.original_positions = block->positive("original_max_position_embeddings")
                                .value_or(static_cast<double>(max_positions));
  rope.beta_fast = block->positive("beta_fast").value_or(32);
  rope.beta_slow = block->positive("beta_slow").value_or(1);
  rope.truncate = block->boolean("truncate").value_or(true);
  rope.attention_factor = yarn_attention_factor(*block, rope.factor);
  raise_positions();
  return rope;
}

std::int64_t file_positions(const Config& config) {
  if (config.rope.type != RopeType::kLinear) return config.max_positions;
  return static_cast<std::int64_t>(config.rope.original_positions);
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

std::vector<std::int32_t> read_end_ids(const Fields& fields) {
  std::vector<std::int32_t> ids;
  const Json* value = fields.find("eos_token_id");
  if (!value) return ids;
  for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
    if (!id.is_number_unsigned() || !std::in_range<std::int32_t>(id.get<std::uint64_t>())) {
      fields.refuse("eos_token_id", "a token id (0 to 2147483647) or a list of them");
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

// The yarn form blends the trained frequencies with those divided by `factor`, by a ramp over the
// dimensions between beta_fast and beta_slow rotations in original_positions positions. The llama3
// form blends them by the rotations themselves, between low_freq_factor and high_freq_factor.
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
  const auto llama3 = [&](double trained) {
    const double rotations = rope.original_positions * trained / (2 * std::numbers::pi);
    const double keep = std::clamp(
        (rotations - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0,
        1.0);
    return (1 - keep) * trained / rope.factor + keep * trained;
  };
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
    } else if (rope.type == RopeType::kLlama3) {
      frequencies[j] = static_cast<float>(llama3(static_cast<double>(trained)));
    }
  }
  return frequencies;
}

void validate_attention(const Config& config, std::string_view file) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(FRT_ERR_FORMAT, std::string(file) + ": " + what);
  };
  const auto n = [](std::int64_t value) { return std::to_string(value); };
  require(config.kv_heads > 0 && config.heads % config.kv_heads == 0,
          "num_attention_heads (" + n(config.heads) +
              ") must be a multiple of num_key_value_heads (" + n(config.kv_heads) + ")");
  require(config.head_dim > 0 && config.head_dim <= kMaxHeadDim,
          "head_dim is " + n(config.head_dim) + ", expected 1 to " + n(kMaxHeadDim));
  const auto bound = [&](const char* key, std::int64_t heads) {
    require(heads <= kMaxDimension / config.head_dim,
            std::string(key) + " (" + n(heads) + ") times head_dim (" + n(config.head_dim) +
                ") must be at most " + n(kMaxDimension));
  };
  bound("num_attention_heads", config.heads);
  bound("num_key_value_heads", config.kv_heads);
  require(
      config.rotary_dim >= 0 && config.rotary_dim <= config.head_dim && config.rotary_dim % 2 == 0,
      "head_dim (" + n(config.head_dim) + ") times partial_rotary_factor gives " +
          n(config.rotary_dim) + ", expected an even number of at most head_dim");
}

Json rope_json(const Rope& rope) {
  Json json = {{"rope_type", type_name(rope.type)}, {"rope_theta", rope.theta}};
  if (rope.type == RopeType::kDefault) return json;
  json["factor"] = rope.factor;
  if (rope.type == RopeType::kLinear) return json;
  json["original_max_position_embeddings"] = rope.original_positions;
  if (rope.type == RopeType::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
    return json;
  }
  json["beta_fast"] = rope.beta_fast;
  json["beta_slow"] = rope.beta_slow;
  json["truncate"] = rope.truncate;
  json["attention_factor"] = rope.attention_factor;
  return json;
}

}  // namespace frt::lm
