// SPDX-License-Identifier: Apache-2.0
#include "robot/policy_inputs.hpp"

#include <array>
#include <frt/io/json.hpp>
#include <nlohmann/json.hpp>

namespace frt::host {
namespace {

// "[H,W,3]".
std::string extents_text(const io::Json& shape) {
  static constexpr std::array<const char*, 3> kLetters = {"H", "W", "C"};
  std::string text;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const char* letter = shape.size() == kLetters.size() ? kLetters.at(i) : "N";
    text += (i > 0 ? "," : "") + (shape[i].is_null() ? letter : shape[i].dump());
  }
  return "[" + text + "]";
}

io::Json shape_of(const ObservedName& name) {
  if (name.shape.empty()) {
    return name.image ? io::Json::array({nullptr, nullptr, 3}) : io::Json::array({nullptr});
  }
  io::Json shape = io::Json::array();
  for (const int64_t extent : name.shape) {
    shape.push_back(extent < 0 ? io::Json() : io::Json(extent));
  }
  return shape;
}

}  // namespace

io::Json inputs_json(const PolicyModel& policy) {
  io::Json inputs = io::Json::array();
  for (const ObservedName& name : policy.names()) {
    inputs.push_back({{"name", name.name},
                      {"dtype", name.image ? "u8" : "f32"},
                      {"shape", shape_of(name)},
                      {"required", name.required}});
  }
  if (!inputs.empty() && policy.info().prompt_tokens) {
    inputs.push_back({{"name", "prompt"}, {"dtype", "text"}});
  }
  return inputs;
}

std::string inputs_text(const PolicyModel& policy) {
  std::string text;
  for (const io::Json& input : inputs_json(policy)) {
    std::string one = input["name"].get<std::string>();
    if (input.contains("shape")) {
      one += " " + input["dtype"].get<std::string>() + extents_text(input["shape"]);
    }
    if (!input.value("required", true)) one = "(" + one + ")";
    text += (text.empty() ? "" : "; ") + one;
  }
  return text;
}

io::Json policy_json(const PolicyModel& policy) {
  const frt_policy_info& info = policy.info();
  const frt_observation_info& robot = policy.observation_info();
  return {{"inputs", inputs_json(policy)},
          {"views", info.views},
          {"image_height", info.image_height},
          {"image_width", info.image_width},
          {"state_dim", robot.state_dim ? robot.state_dim : info.state_dim},
          {"prompt_tokens", info.max_prompt},
          {"horizon", info.horizon},
          {"action_dim", robot.action_dim},
          {"network_action_dim", info.action_dim},
          {"steps", info.default_steps},
          {"guidance_branches", info.guidance_branches}};
}

}  // namespace frt::host
