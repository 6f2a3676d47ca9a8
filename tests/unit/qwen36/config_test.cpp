// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <frt/error.hpp>

#include <cmath>
#include <frt/qwen36/config.hpp>
#include <frt/qwen36/presets.hpp>
#include <string>

using frt::Error;
using frt::models::Json;
using namespace frt::qwen36;

namespace {

Json nested() {
  return config_json(preset_config("qwen3.6-tiny"));
}

std::string error_of(const Json& json) {
  try {
    parse_config(json, "dir/config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string error_with(const std::string& key, const Json& value) {
  Json json = nested();
  json["text_config"][key] = value;
  return error_of(json);
}

void check_contains(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a configuration written out is read back equal, nested and flat") {
  for (const Preset& preset : presets()) {
    const Config config = preset_config(preset.name);
    const Json json = config_json(config);
    CHECK(canonical_text(parse_config(json, "a")) == canonical_text(config));
    CHECK(canonical_text(parse_config(json["text_config"], "a")) == canonical_text(config));
    CHECK(parse_config(json, "a").mtp_layers == config.mtp_layers);
    CHECK(parse_config(json, "a").max_positions == config.max_positions);
  }
}

TEST_CASE("layer types follow from the interval when the file does not list them") {
  Json json = nested();
  json["text_config"].erase("layer_types");
  CHECK(parse_config(json, "a").layers == preset_config("qwen3.6-tiny").layers);
  json["text_config"]["full_attention_interval"] = 2;
  CHECK(parse_config(json, "a").attention_layers() == 4);
}

TEST_CASE("older files state rope beside the dimensions") {
  Json json = nested();
  Json& text = json["text_config"];
  text.erase("rope_parameters");
  text["rope_theta"] = 10000.0;
  text["partial_rotary_factor"] = 0.5;
  const Config plain = parse_config(json, "a");
  CHECK(plain.rope.theta == 10000.0);
  CHECK(plain.rotary_dim == plain.head_dim / 2);
  text["rope_scaling"] = Json{{"type", "linear"}, {"factor", 2.0}};
  const Config scaled = parse_config(json, "a");
  CHECK(rope_frequencies(scaled)[3] == doctest::Approx(rope_frequencies(plain)[3] / 2));
  text["rope_scaling"] = Json{{"type", "mrope"}, {"mrope_section", {11, 11, 10}}};
  CHECK(rope_frequencies(parse_config(json, "a")) == rope_frequencies(plain));
}

TEST_CASE("yarn blends frequencies and scales attention as the published formula") {
  Config base = preset_config("qwen3.6-27b");
  Json json = config_json(base);
  json["text_config"]["rope_parameters"] = Json{{"rope_type", "yarn"},
                                                {"rope_theta", 1e7},
                                                {"partial_rotary_factor", 0.25},
                                                {"factor", 4.0},
                                                {"original_max_position_embeddings", 262144}};
  const Config config = parse_config(json, "a");
  CHECK(config.max_positions == 1048576);
  CHECK(config.rope.attention_factor == doctest::Approx(0.1 * std::log(4.0) + 1));
  const std::vector<float> frequencies = rope_frequencies(config);
  REQUIRE(frequencies.size() == 32);
  // Computed independently in double precision; dimensions 14 to 22 are blended.
  const std::pair<std::size_t, double> expected[] = {{0, 1.0},
                                                     {5, 0.08058421877614819},
                                                     {14, 0.0008659643233600654},
                                                     {18, 7.217387404309113e-05},
                                                     {22, 3.8498163151487305e-06},
                                                     {31, 4.137042749857954e-08}};
  for (const auto& [index, value] : expected) {
    CHECK(frequencies[index] == doctest::Approx(value).epsilon(1e-6));
  }
}

TEST_CASE("a missing, ill-typed or impossible key is named with its file") {
  Json json = nested();
  json["text_config"].erase("hidden_size");
  check_contains(error_of(json), "dir/config.json: text_config.hidden_size");
  check_contains(error_with("hidden_size", "wide"), "found \"wide\"");
  check_contains(error_with("num_hidden_layers", 1 << 26), "a whole number from 1 to 65536");
  check_contains(error_with("hidden_size", -4), "text_config.hidden_size: expected");
  check_contains(error_with("num_attention_heads", 3), "multiple of num_key_value_heads (2)");
  check_contains(error_with("linear_num_value_heads", 3), "multiple of linear_num_key_heads");
  check_contains(error_with("layer_types", Json::array({"full_attention"})), "layer_types");
  check_contains(error_with("linear_conv_kernel_dim", 9), "linear_conv_kernel_dim");
  check_contains(error_with("rms_norm_eps", 0), "rms_norm_eps");
  check_contains(error_of(Json::array()), "expected a JSON object");
}

TEST_CASE("dimensions and factors whose products no number holds are refused with their keys") {
  constexpr std::int64_t kMost = std::int64_t{1} << 26;
  const auto with = [](const Json& keys) {
    Json json = config_json(preset_config("qwen3.6-tiny-moe"));
    json["text_config"].update(keys);
    return error_of(json);
  };
  const struct {
    Json keys;
    const char* said;
  } rows[] = {
      {{{"linear_num_key_heads", kMost}, {"linear_num_value_heads", kMost}},
       "linear_num_key_heads (67108864) times linear_key_head_dim"},
      {{{"linear_key_head_dim", kMost}}, "times linear_key_head_dim (67108864) must be at most"},
      {{{"linear_value_head_dim", kMost}}, "times linear_value_head_dim (67108864)"},
      {{{"num_experts", kMost}}, "num_experts (67108864) times moe_intermediate_size"},
      {{{"rope_parameters", {{"rope_theta", 1e7}, {"partial_rotary_factor", 1e300}}}},
       "partial_rotary_factor: expected a number above 0 and at most 1, found 1e+300"},
      {{{"rope_parameters", {{"rope_theta", 1e7}}}, {"partial_rotary_factor", 1.5}},
       "partial_rotary_factor: expected a number above 0 and at most 1, found 1.5"},
      {{{"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e7}, {"factor", 1e300}}}},
       "rope_parameters.factor: expected a number with which at most 2147483647 positions"},
      {{{"rope_parameters",
         {{"rope_type", "yarn"},
          {"rope_theta", 1e7},
          {"factor", 4},
          {"original_max_position_embeddings", 1e308}}}},
       "rope_parameters.factor: expected a number with which at most 2147483647 positions"},
      {{{"rope_parameters", {{"rope_type", "linear"}, {"rope_theta", 1e7}, {"factor", 1e19}}}},
       "rope_parameters.factor: expected a number with which at most 2147483647 positions"},
  };
  for (const auto& row : rows) {
    INFO(row.keys.dump());
    check_contains(with(row.keys), row.said);
  }
}

TEST_CASE("linear scaling raises the positions, and a file written of it reads back equal") {
  Json json = nested();
  json["text_config"]["max_position_embeddings"] = 4096;
  json["text_config"]["rope_parameters"] =
      Json{{"rope_type", "linear"}, {"rope_theta", 1e7}, {"factor", 2.5}};
  const Config config = parse_config(json, "a");
  CHECK(config.max_positions == 10240);
  CHECK(parse_config(config_json(config), "a").max_positions == 10240);
}

TEST_CASE("what would change the computation unseen is refused") {
  const auto status_of = [](const std::string& key, const Json& value) {
    Json json = nested();
    json["text_config"][key] = value;
    try {
      parse_config(json, "a");
    } catch (const Error& error) {
      return error.status();
    }
    return FRT_OK;
  };
  CHECK(status_of("hidden_act", "gelu") == FRT_ERR_UNSUPPORTED);
  CHECK(status_of("attention_bias", true) == FRT_ERR_UNSUPPORTED);
  CHECK(status_of("mtp_use_dedicated_embeddings", true) == FRT_ERR_UNSUPPORTED);
  CHECK(status_of("model_type", "llama") == FRT_ERR_MISMATCH);
  CHECK(status_of("rope_parameters", Json{{"rope_type", "longrope"}, {"rope_theta", 1e7}}) ==
        FRT_ERR_UNSUPPORTED);
  Json types = nested()["text_config"]["layer_types"];
  types[0] = "sliding_attention";
  CHECK(status_of("layer_types", types) == FRT_ERR_UNSUPPORTED);
}
