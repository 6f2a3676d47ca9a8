// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <array>
#include <frt/error.hpp>
#include <utility>

namespace frt::pi05 {
namespace {

using models::Json;

constexpr std::array<std::pair<std::string_view, std::int64_t Dims::*>, 15> kDims = {{
    {"img", &Dims::image},
    {"patch", &Dims::patch},
    {"vw", &Dims::vision_width},
    {"vl", &Dims::vision_layers},
    {"vh", &Dims::vision_heads},
    {"vm", &Dims::vision_mlp},
    {"w", &Dims::width},
    {"m", &Dims::mlp},
    {"ew", &Dims::expert_width},
    {"em", &Dims::expert_mlp},
    {"L", &Dims::layers},
    {"nh", &Dims::heads},
    {"hd", &Dims::head_dim},
    {"vocab", &Dims::vocabulary},
    {"ad", &Dims::action_dim},
}};

constexpr std::int64_t kLargestDim = 1 << 20;

// openpi's "dummy" variants, of its own tests.
void apply_variants(Dims& dims, const Json& json) {
  const auto dummy = [&](const char* key) {
    return json.contains(key) && json[key].is_string() && json[key] == "dummy";
  };
  if (dummy("paligemma_variant")) {
    dims.width = 64;
    dims.mlp = 128;
    dims.layers = 4;
    dims.heads = 8;
    dims.head_dim = 16;
  }
  if (dummy("action_expert_variant")) {
    dims.expert_width = 64;
    dims.expert_mlp = 128;
  }
}

void validate(const Dims& d, const std::string& where) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(FRT_ERR_FORMAT, where + ": " + what);
  };
  for (const auto& [name, member] : kDims) {
    require(d.*member > 0 && d.*member <= kLargestDim,
            "dims." + std::string(name) + " is " + std::to_string(d.*member) + ", expected 1 to " +
                std::to_string(kLargestDim));
  }
  require(d.image % d.patch == 0, "dims.img is not a multiple of dims.patch");
  require(d.vision_width % d.vision_heads == 0, "dims.vw is not a multiple of dims.vh");
  require(d.head_dim % 2 == 0, "dims.hd is odd");
  require(d.expert_width % 2 == 0, "dims.ew is odd");
}

std::int64_t integer(const Json& json, const char* key, std::int64_t fallback, std::int64_t low,
                     std::int64_t high, const std::string& where) {
  if (!json.contains(key) || json[key].is_null()) return fallback;
  if (!json[key].is_number_integer()) {
    throw Error(FRT_ERR_FORMAT, where + ": " + key + " is not an integer");
  }
  const auto value = json[key].get<std::int64_t>();
  if (value < low || value > high) {
    throw Error(FRT_ERR_FORMAT, where + ": " + key + " is " + std::to_string(value) +
                                    ", expected " + std::to_string(low) + " to " +
                                    std::to_string(high));
  }
  return value;
}

double number(const Json& json, const char* key, double fallback, const std::string& where) {
  if (!json.contains(key) || json[key].is_null()) return fallback;
  if (!json[key].is_number() || !(json[key].get<double>() > 0)) {
    throw Error(FRT_ERR_FORMAT, where + ": " + key + " is not a positive number");
  }
  return json[key].get<double>();
}

bool flag(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_boolean() && json[key].get<bool>();
}

void read_lerobot(Config& config, const Json& json, const std::string& where) {
  const std::string type = json["type"].is_string() ? json["type"].get<std::string>() : "?";
  if (type != "pi05") {
    throw Error(FRT_ERR_UNSUPPORTED, where + ": type is \"" + type +
                                         "\", expected \"pi05\"; this plugin runs Pi0.5 only");
  }
  for (const char* key : {"use_visual_memory", "use_proprioceptive_memory"}) {
    if (flag(json, key)) {
      throw Error(FRT_ERR_UNSUPPORTED, where + ": " + key +
                                           " is true; checkpoints with memory (MEM) cannot be "
                                           "run, use one that was trained without");
    }
  }
  config.layout = Layout::kLerobot;
  config.horizon = integer(json, "chunk_size", 50, 1, 4096, where);
  config.steps = integer(json, "num_inference_steps", 10, 1, 1000, where);
  config.max_prompt = integer(json, "tokenizer_max_length", 200, 1, 4096, where);
  config.max_delay = integer(json, "rtc_training_max_delay", 0, 0, 4096, where);
  config.dims.action_dim = integer(json, "max_action_dim", 32, 1, 4096, where);
  config.min_period = number(json, "min_period", 4e-3, where);
  config.max_period = number(json, "max_period", 4.0, where);
}

}  // namespace

void set_dim(Dims& dims, std::string_view name, std::int64_t value) {
  for (const auto& [known, member] : kDims) {
    if (known == name) {
      dims.*member = value;
      return;
    }
  }
  std::string names;
  for (const auto& [known, member] : kDims)
    names += (names.empty() ? "" : ", ") + std::string(known);
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "dimension '" + std::string(name) + "' is unknown; choose one of " + names);
}

std::vector<std::string_view> dim_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, member] : kDims) names.push_back(name);
  return names;
}

void override_dims(Dims& dims, const Json& values, const std::string& where) {
  if (!values.is_object()) throw Error(FRT_ERR_FORMAT, where + ": dims is not an object");
  for (const auto& [name, value] : values.items()) {
    if (!value.is_number_integer()) {
      throw Error(FRT_ERR_FORMAT, where + ": dims." + name + " is not an integer");
    }
    set_dim(dims, name, value.get<std::int64_t>());
  }
  validate(dims, where);
}

Config read_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  const Json json = io::read_json_file(file);
  const std::string where = file.string();
  if (!json.is_object()) throw Error(FRT_ERR_FORMAT, where + ": not an object");
  Config config;
  if (json.contains("type")) {
    read_lerobot(config, json, where);
  } else if (json.contains("action_horizon")) {
    config.horizon = integer(json, "action_horizon", 50, 1, 4096, where);
    config.dims.action_dim = integer(json, "action_dim", 32, 1, 4096, where);
    config.max_prompt = integer(json, "max_token_len", 200, 1, 4096, where);
  } else {
    throw Error(FRT_ERR_FORMAT, where +
                                    ": neither openpi's (action_horizon) nor LeRobot's (type); "
                                    "give the folder of a converted checkpoint");
  }
  apply_variants(config.dims, json);
  if (json.contains("dims")) override_dims(config.dims, json["dims"], where);
  validate(config.dims, where);
  config.json = json;
  return config;
}

std::string describe(const Config& config, std::size_t views) {
  const Dims& d = config.dims;
  const auto text = [](std::int64_t value) { return std::to_string(value); };
  return text(static_cast<std::int64_t>(views)) + " views of " + text(d.image) + "x" +
         text(d.image) + ", vision " + text(d.vision_layers) + "x" + text(d.vision_width) +
         ", prefix " + text(d.layers) + "x" + text(d.width) + ", expert " + text(d.layers) + "x" +
         text(d.expert_width) + ", horizon " + text(config.horizon);
}

std::string canonical_text(const Config& config) {
  const std::string text = "pi05 horizon " + std::to_string(config.horizon) + " prompt " +
                           std::to_string(config.max_prompt) + " periods " +
                           std::to_string(config.min_period) + " " +
                           std::to_string(config.max_period);
  return text + " " + dims_text(config.dims);
}

std::string dims_text(const Dims& dims) {
  std::string text;
  for (const auto& [name, member] : kDims) {
    text += (text.empty() ? "" : " ") + std::string(name) + " " + std::to_string(dims.*member);
  }
  return text;
}

}  // namespace frt::pi05
