// SPDX-License-Identifier: Apache-2.0
#include "robot/policy_model.hpp"

#include <algorithm>
#include <frt/io/json.hpp>
#include <frt/reading.hpp>
#include <frt/role/contracts.hpp>
#include <frt/sender.hpp>
#include <nlohmann/json.hpp>
#include <utility>

namespace frt::host {
namespace {

// An extension that the model must have.
template <class Table>
Table require_extension(const frt_model_v1& table, frt_model model, const char* id,
                        const std::string& sender, const char* what) {
  if (const auto found = find_extension<Table>(table, model, id, sender)) return *found;
  throw Error(FRT_ERR_UNSUPPORTED,
              sender + " is no " + what + " (it offers no " + id +
                  "); choose another model; one without a role is driven by a program that knows "
                  "it, and `frt-host verify` runs its frt.selftest/1");
}

// Above what any policy has, and low enough that a host can allocate and loop by it.
constexpr uint64_t kMostViews = 256, kMostPixels = 1u << 16, kMostValues = 1u << 20,
                   kMostSteps = 1u << 12, kMostBranches = 256;

// What the role promises where it says that it has something.
void require_parts(const std::string& sender, const char* what,
                   std::initializer_list<std::pair<const char*, bool>> parts) {
  for (const auto& [name, there] : parts) {
    if (there) continue;
    throw Error(FRT_ERR_MISMATCH, sender + ": its role says " + what + ", but has no " + name +
                                      "; the plugin is broken");
  }
}

}  // namespace

frt_policy_info read_policy_info(const Context& context, const frt_role_policy_v1& role,
                                 frt_model model, const std::string& sender) {
  const auto info =
      ask<frt_policy_info>(sender, [&](frt_policy_info* out) { return role.info(model, out); });
  const auto range = [&](const char* name, uint64_t value, uint64_t least, uint64_t most) {
    require_range(sender, name, value, least, most);
  };
  range("views", info.views, info.images || info.view_mask ? 1 : 0, kMostViews);
  range("image_height", info.image_height, info.images ? 1 : 0, kMostPixels);
  range("image_width", info.image_width, info.images ? 1 : 0, kMostPixels);
  range("state_dim", info.state_dim, info.proprioception ? 1 : 0, kMostValues);
  range("horizon", info.horizon, 1, kMostValues);
  range("action_dim", info.action_dim, 1, kMostValues);
  range("max_prompt", info.max_prompt, 0, kMostValues);
  range("default_steps", info.default_steps, 0, kMostSteps);
  range("max_steps", info.max_steps, info.beta ? 1 : 0, kMostSteps);
  range("max_samples", info.max_samples, 0, kMostSteps);
  range("guidance_branches", info.guidance_branches, 0, kMostBranches);
  range("has_split", info.has_split, 0, 2);
  range("has_continuation", info.has_continuation, 0, 1);
  if (info.images && info.image_dtype != FRT_DTYPE_U8 && info.image_dtype != FRT_DTYPE_F32) {
    throw Error(FRT_ERR_MISMATCH, sender + ": its role says image_dtype = " +
                                      dtype_name(info.image_dtype) + "; it must be u8 or f32");
  }
  if (info.has_split) {
    require_parts(sender, "has_split",
                  {{"graph observe", info.observe},
                   {"graph act", info.act},
                   {"observe_key", role.observe_key},
                   {"act_key", role.act_key}});
  }
  if (info.has_split == 2) {
    require_parts(sender, "has_split = 2",
                  {{"graph vision", info.vision},
                   {"graph prefix", info.prefix},
                   {"vision_key", role.vision_key},
                   {"prefix_key", role.prefix_key}});
  }
  if (info.has_continuation) {
    require_parts(sender, "has_continuation",
                  {{"buffer previous", info.previous},
                   {"buffer previous_weights", info.previous_weights},
                   {"buffer continuation", info.continuation},
                   {"set_continuation", role.set_continuation}});
  }
  const uint64_t branches = std::max(info.guidance_branches, 1u);
  const uint64_t samples = std::max(info.max_samples, 1u);
  const uint64_t horizon = info.horizon, values = info.action_dim;
  const uint64_t word = sizeof(float);  // as long as an i32
  const auto room = [&](const char* port, frt_buffer buffer,
                        std::initializer_list<uint64_t> extents) {
    require_room(context, sender, port, buffer, array_bytes(sender, port, extents));
  };
  room("images", info.images,
       {info.views, info.image_height, info.image_width, 3, dtype_bits(info.image_dtype) / 8});
  room("view_mask", info.view_mask, {info.views, word});
  room("proprioception", info.proprioception, {info.state_dim, word});
  room("prompt_tokens", info.prompt_tokens, {branches, info.max_prompt, word});
  room("prompt_length", info.prompt_length, {branches, word});
  room("noise", info.noise, {samples, horizon, values, word});
  room("beta", info.beta, {info.max_steps, branches - 1, word});
  room("previous", info.previous, {horizon, values, word});
  room("previous_weights", info.previous_weights, {horizon, word});
  room("continuation", info.continuation, {sizeof(frt_policy_continuation)});
  room("actions", info.actions, {samples, horizon, values, word});
  return info;
}

PolicyModel::PolicyModel(const Context& context, const frt_model_v1* table, frt_model model,
                         std::string name, std::string plugin)
    : context_(context),
      model_(model),
      name_(std::move(name)),
      sender_(model_sender(name_, plugin)) {
  role_ =
      require_extension<frt_role_policy_v1>(*table, model, FRT_EXT_ROLE_POLICY, sender_, "policy");
  observation_ = require_extension<frt_observation_v1>(*table, model, FRT_EXT_OBSERVATION, sender_,
                                                       "policy for robots");
  info_ = read_policy_info(context_, role_, model_, sender_);
  observation_info_ = ask<frt_observation_info>(
      sender_, [&](frt_observation_info* out) { return observation_.info(model_, out); });
  require_range(sender_, "the robot's action_dim", observation_info_.action_dim, 1, kMostValues);
  require_range(sender_, "the robot's state_dim", observation_info_.state_dim, 0, kMostValues);
}

std::vector<ObservedName> PolicyModel::names() const {
  std::vector<ObservedName> names;
  if (!observation_info_.names) return names;
  const std::string what = sender_ + ": the list of arrays it reads";
  const io::Json json = io::parse_json(observation_info_.names, what);
  if (!json.is_array()) throw Error(FRT_ERR_FORMAT, what + " is no JSON list");
  for (const auto& entry : json) {
    const auto is_text = [&](const char* key) {
      return !entry.contains(key) || entry[key].is_string();
    };
    if (!entry.is_object() || !is_text("name") || !is_text("kind") ||
        (entry.contains("required") && !entry["required"].is_boolean())) {
      throw Error(FRT_ERR_FORMAT, what + " has an entry that describes none");
    }
    ObservedName name;
    name.name = entry.value("name", "");
    name.image = entry.value("kind", "") == "image";
    name.required = entry.value("required", true);
    if (entry.contains("shape") && entry["shape"].is_array()) {
      for (const auto& extent : entry["shape"]) {
        name.shape.push_back(extent.is_number_integer() ? extent.get<int64_t>() : -1);
      }
    }
    names.push_back(std::move(name));
  }
  return names;
}

frt_shape_key PolicyModel::infer_key(const frt_policy_shape& shape) const {
  frt_shape_key key = 0;
  const frt_status status = role_.infer_key(model_, &shape, &key);
  if (status == FRT_OK) return key;
  const std::string what = std::to_string(shape.views) + " views, " + std::to_string(shape.prompt) +
                           " prompt tokens, " +
                           std::to_string(shape.steps ? shape.steps : info_.default_steps) +
                           " steps, " + std::to_string(shape.branches) + " branches";
  throw Error(status, sender_ + " was loaded without a variant for " + what + " (" +
                          status_name(status) + "); what is captured is set in [model." + name_ +
                          ".options]");
}

CriticModel::CriticModel(const Context& context, const frt_model_v1* table, frt_model model,
                         std::string name, std::string plugin)
    : context_(context),
      model_(model),
      name_(std::move(name)),
      sender_(model_sender(name_, plugin)) {
  role_ =
      require_extension<frt_role_critic_v1>(*table, model, FRT_EXT_ROLE_CRITIC, sender_, "critic");
  info_ =
      ask<frt_critic_info>(sender_, [&](frt_critic_info* out) { return role_.info(model_, out); });
  require_range(sender_, "views", info_.views, info_.images ? 1 : 0, kMostViews);
  require_range(sender_, "image_height", info_.image_height, info_.images ? 1 : 0, kMostPixels);
  require_range(sender_, "image_width", info_.image_width, info_.images ? 1 : 0, kMostPixels);
  require_range(sender_, "state_dim", info_.state_dim, info_.proprioception ? 1 : 0, kMostValues);
  const auto room = [&](const char* port, frt_buffer buffer,
                        std::initializer_list<uint64_t> extents) {
    require_room(context_, sender_, port, buffer, array_bytes(sender_, port, extents));
  };
  room("value", info_.value, {sizeof(float)});
  room("images", info_.images, {info_.views, info_.image_height, info_.image_width, 3});
  room("proprioception", info_.proprioception, {info_.state_dim, sizeof(float)});
}

void CriticModel::set_instruction(const std::string& instruction, const Stream& stream) const {
  if (!role_.set_instruction) return;  // it values every task alike
  frt_error error{};
  check(role_.set_instruction(model_, instruction.c_str(), stream.handle(), &error), error,
        sender_);
}

}  // namespace frt::host
