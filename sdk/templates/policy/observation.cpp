// SPDX-License-Identifier: Apache-2.0
// frt.observation/1: a robot's arrays into the policy's buffers, its actions into robot units.
// Everything here came from a client: it is checked before a buffer is touched.
#include "policy.hpp"
#include "tables.hpp"

#include <frt/observation.hpp>

#include <algorithm>
#include <cmath>
#include <string>

namespace acme {
namespace {

frt_status info(frt_model model, frt_observation_info* out) {
  return frt::fill(out, frt::object<Policy>(model)->observation_info());
}

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw frt::Error(FRT_ERR_FORMAT, "'" + name + "' " + what);
}

const frt_array& require_array(const frt_observation& observation, const std::string& name) {
  for (uint32_t i = 0; i < observation.array_count; ++i) {
    if (observation.arrays[i].name == name) return observation.arrays[i];
  }
  refuse(name, "is missing");
}

// u8 to -1 .. 1.
std::vector<float> read_image(const frt_observation& observation, int64_t side) {
  const frt_array& image = require_array(observation, "observation/image");
  if (image.dtype != FRT_DTYPE_U8 || image.rank != 3 || image.shape[0] != side ||
      image.shape[1] != side || image.shape[2] != 3) {
    const std::string text = std::to_string(side);
    refuse(image.name, "must be u8 (" + text + ", " + text + ", 3)");
  }
  std::vector<float> values(static_cast<std::size_t>(side * side * 3));
  const auto* pixels = static_cast<const uint8_t*>(image.data);
  std::transform(pixels, pixels + values.size(), values.begin(),
                 [](uint8_t pixel) { return static_cast<float>(pixel) / 127.5f - 1; });
  return values;
}

std::vector<float> read_state(const frt_observation& observation) {
  const frt_array& state = require_array(observation, "observation/state");
  const bool single = state.dtype == FRT_DTYPE_F32;
  if ((!single && state.dtype != FRT_DTYPE_F64) || state.rank != 1 || state.shape[0] != kAxes) {
    refuse(state.name, "must be f32 or f64 (2)");
  }
  std::vector<float> values(kAxes);
  for (uint32_t i = 0; i < kAxes; ++i) {
    values[i] = single ? static_cast<const float*>(state.data)[i]
                       : static_cast<float>(static_cast<const double*>(state.data)[i]);
    if (!std::isfinite(values[i])) refuse(state.name, "is not finite");
  }
  return values;
}

// These checkpoints have no default instruction.
int32_t read_goal(const frt_observation& observation, const Policy& policy) {
  if (observation.prompt_tokens) {
    const int32_t goal = observation.prompt_token_count == 1 ? observation.prompt_tokens[0] : -1;
    if (goal < 0 || static_cast<std::size_t>(goal) >= policy.goals().size()) {
      refuse("prompt_tokens", "must be one id below " + std::to_string(policy.goals().size()));
    }
    return goal;
  }
  if (!observation.prompt) {
    throw frt::Error(FRT_ERR_NOT_FOUND,
                     "no instruction, and this policy has no default one; give one that names a "
                     "goal");
  }
  return policy.goal_of(observation.prompt);
}

frt_status write(frt_model model, const frt_observation* given, frt_stream stream,
                 frt_observed* out, frt_error* error) {
  return frt::guard(error, [&]() -> frt_status {
    auto& policy = *frt::object<Policy>(model);
    const auto observation = frt::read_observation(given, "the host");
    Policy::Inputs inputs;
    inputs.image = read_image(observation, policy.role().image_width);
    inputs.state = read_state(observation);
    inputs.goal = {read_goal(observation, policy)};
    policy.upload(inputs, stream);
    frt_observed observed{};
    observed.struct_size = sizeof(observed);
    observed.state_count = kAxes;
    observed.views = observed.prompt = 1;
    std::copy(inputs.state.begin(), inputs.state.end(), observed.state);
    return frt::fill(out, observed);
  });
}

frt_status finish(frt_model model, const frt_observed*, const float* actions, double* robot,
                  frt_error* error) {
  return frt::guard(error, [&] {
    const uint32_t values = frt::object<Policy>(model)->role().horizon * kAxes;
    for (uint32_t i = 0; i < values; ++i) {
      if (!std::isfinite(actions[i])) {
        refuse("actions", "value " + std::to_string(i) + " is not finite");
      }
      robot[i] = static_cast<double>(actions[i]);  // the network's unit is the robot's
    }
  });
}

}  // namespace

const frt_observation_v1 kObservation = {sizeof(frt_observation_v1), 0, info, write, finish};

}  // namespace acme
