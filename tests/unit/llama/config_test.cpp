// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <frt/error.hpp>
#include <numbers>
#include <string>

#include "config.hpp"

using frt::Error;
using frt::models::Json;
using namespace frt::llama;

namespace {

Json minimal() {
  return Json::parse(R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128})");
}

std::string refusal(const std::string& key, const Json& value, frt_status status) {
  Json json = minimal();
  json[key] = value;
  try {
    parse_config(json, "config.json");
  } catch (const Error& error) {
    return error.status() == status ? error.what() : "another status";
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a Llama configuration has transformers' defaults where the file says nothing") {
  const Config config = parse_config(minimal(), "config.json");
  CHECK(config.kv_heads == 4);
  CHECK(config.head_dim == 16);
  CHECK(config.rotary_dim == 16);
  CHECK(config.rope.theta == 10000);
  CHECK(config.max_positions == 2048);
  CHECK_FALSE(config.tied_embeddings);
  CHECK_FALSE(config.attention_bias);
  CHECK_FALSE(config.mlp_bias);
}

TEST_CASE("a Llama key that changes the computation and is not supported is refused by name") {
  const auto unsupported = [](const char* key, const Json& value) {
    CAPTURE(key);
    CHECK(refusal(key, value, FRT_ERR_UNSUPPORTED).find(key) != std::string::npos);
  };
  unsupported("hidden_act", "gelu");
  unsupported("pretraining_tp", 2);
  unsupported("partial_rotary_factor", 0.5);
  unsupported("embedding_multiplier", 12.0);
  unsupported("final_logit_softcapping", 30.0);
  unsupported("use_qk_norm", true);
  CHECK(refusal("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}, FRT_ERR_UNSUPPORTED) ==
        "config.json: rope_scaling.rope_type: expected \"default\", \"linear\" or \"llama3\", "
        "found \"yarn\"");
  CHECK(refusal("model_type", "mistral", FRT_ERR_MISMATCH).find("model_type") != std::string::npos);
  CHECK(refusal("architectures", {"LlamaForSequenceClassification"}, FRT_ERR_MISMATCH)
            .find("architectures") != std::string::npos);
}

TEST_CASE("a Llama dimension that is hostile is refused with its key") {
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "head_dim", "intermediate_size"}) {
    CAPTURE(key);
    for (const Json& value : {Json(0), Json(-1), Json(1e300), Json("4"), Json(1LL << 40)}) {
      CHECK(refusal(key, value, FRT_ERR_FORMAT).find(key) != std::string::npos);
    }
  }
  CHECK(refusal("num_key_value_heads", 3, FRT_ERR_FORMAT).find("num_key_value_heads") !=
        std::string::npos);
  CHECK(refusal("num_attention_heads", 5, FRT_ERR_FORMAT).find("hidden_size") != std::string::npos);
  CHECK(refusal("head_dim", 15, FRT_ERR_FORMAT).find("head_dim") != std::string::npos);
  CHECK(refusal("num_hidden_layers", 1 << 26, FRT_ERR_FORMAT) ==
        "config.json: num_hidden_layers: expected a whole number from 1 to 65536, found 67108864");
  CHECK(refusal("head_dim", 1 << 26, FRT_ERR_FORMAT) ==
        "config.json: head_dim is 67108864, expected 1 to 65536");
  const Json largest = {{"num_attention_heads", 1 << 26}, {"num_key_value_heads", 1 << 26}};
  const auto refusal_of_all = [&](int head_dim) -> std::string {
    Json json = minimal();
    json.update(largest);
    json["head_dim"] = head_dim;
    try {
      parse_config(json, "config.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(refusal_of_all(1 << 26) == "config.json: head_dim is 67108864, expected 1 to 65536");
  CHECK(refusal_of_all(2) ==
        "config.json: num_attention_heads (67108864) times head_dim (2) must be at most 67108864");
  CHECK(refusal("rope_scaling",
                {{"rope_type", "llama3"},
                 {"factor", 8},
                 {"low_freq_factor", 4},
                 {"high_freq_factor", 4},
                 {"original_max_position_embeddings", 8192}},
                FRT_ERR_FORMAT)
            .find("rope_scaling.high_freq_factor") != std::string::npos);
}

TEST_CASE("linear rope scaling of a Llama raises the positions, llama3 scaling does not") {
  Json json = minimal();
  json["max_position_embeddings"] = 4096;
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4}};
  CHECK(parse_config(json, "config.json").max_positions == 16384);
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 8},
                          {"low_freq_factor", 1},
                          {"high_freq_factor", 4},
                          {"original_max_position_embeddings", 2048}};
  CHECK(parse_config(json, "config.json").max_positions == 4096);
}

TEST_CASE("rope scaling of a Llama that leaves something open is refused with its key") {
  CHECK(refusal("rope_scaling", Json::parse(R"({"factor": 8})"), FRT_ERR_FORMAT) ==
        "config.json: rope_scaling.rope_type: expected the kind of scaling that factor belongs to, "
        "found nothing");
  CHECK(refusal("rope_scaling", Json::parse(R"({"type": "mrope"})"), FRT_ERR_UNSUPPORTED)
            .starts_with("config.json: rope_scaling.type: expected \"default\""));

  Json json = minimal();
  json["rope_parameters"] = {{"rope_type", "linear"}, {"rope_theta", 500000}, {"factor", 4}};
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4}};
  CHECK(parse_config(json, "config.json").rope.factor == 4);
  json["rope_scaling"]["factor"] = 8;
  CHECK_THROWS_WITH_AS(parse_config(json, "config.json"),
                       doctest::Contains("config.json: rope_scaling: expected nothing, or what "
                                         "rope_parameters says (factor differs)"),
                       Error);
}

TEST_CASE("a rope_theta of a Llama that is null counts as absent") {
  Json json = minimal();
  json["rope_theta"] = nullptr;
  CHECK(parse_config(json, "config.json").rope.theta == 10000);
}

TEST_CASE("an end token of a Llama that is no token id is refused with its key") {
  Json json = minimal();
  json["eos_token_id"] = Json::parse("[2, 2147483647]");
  CHECK(parse_config(json, "config.json").end_ids == std::vector<std::int32_t>{2, 2147483647});
  for (const char* id : {"4294967296", "[2, 4294967296]", "-1", "2.5", "\"2\""}) {
    CAPTURE(id);
    CHECK(refusal("eos_token_id", Json::parse(id), FRT_ERR_FORMAT)
              .starts_with("config.json: eos_token_id: expected a token id"));
  }
}

TEST_CASE("llama3 rope scaling keeps fast frequencies, stretches slow ones and blends between") {
  Json json = minimal();
  json["head_dim"] = 64;
  json["rope_theta"] = 500000;
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 8},
                          {"low_freq_factor", 1},
                          {"high_freq_factor", 4},
                          {"original_max_position_embeddings", 8192}};
  const Config scaled = parse_config(json, "config.json");
  json.erase("rope_scaling");
  const std::vector<float> plain = frt::lm::rope_frequencies(parse_config(json, "config.json"));
  const std::vector<float> found = frt::lm::rope_frequencies(scaled);
  REQUIRE(found.size() == 32);
  int between = 0;
  for (std::size_t j = 0; j < found.size(); ++j) {
    const double rotations = 8192.0 * static_cast<double>(plain[j]) / (2 * std::numbers::pi);
    const double ratio = static_cast<double>(found[j] / plain[j]);
    if (rotations > 4) CHECK(ratio == 1);
    if (rotations < 1) CHECK(ratio == doctest::Approx(1.0 / 8));
    if (rotations > 1 && rotations < 4) {
      ++between;
      const double smooth = (rotations - 1) / 3;
      CHECK(ratio == doctest::Approx((1 - smooth) / 8 + smooth));
    }
  }
  CHECK(between > 1);
}

TEST_CASE("a synthetic Llama takes dimensions and refuses an unknown preset") {
  const auto config = [](const char* checkpoint) {
    return synthetic_config(frt::lm::parse_synthetic_name(checkpoint), checkpoint);
  };
  CHECK(config("synthetic:llama-tiny?layers=3&tied=1").layers == 3);
  CHECK(checkpoint_tensors(config("synthetic:llama-tiny")).size() == 1 + 2 * 9 + 2);
  CHECK_THROWS_WITH_AS(config("synthetic:llama-2"), doctest::Contains("llama-3.1-8b"), Error);
  CHECK_THROWS_WITH_AS(config("synthetic:llama-tiny?experts=4"), doctest::Contains("experts"),
                       Error);
  CHECK_THROWS_WITH_AS(config("synthetic:llama-tiny?kv_heads=3"),
                       doctest::Contains("num_key_value_heads"), Error);
  CHECK_THROWS_WITH_AS(config("synthetic:llama-tiny?layers=67108864"),
                       doctest::Contains("layers=67108864: expected 1 to 65536"), Error);
  CHECK_THROWS_WITH_AS(config("synthetic:llama-tiny?head_dim=67108864"),
                       doctest::Contains("head_dim is 67108864, expected 1 to 65536"), Error);
}
