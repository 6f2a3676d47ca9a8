// SPDX-License-Identifier: Apache-2.0
#include "robot/policy_model.hpp"

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
              sender + " is no " + what + " (it offers no " + id + "); choose another model");
}

}  // namespace

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
  info_ =
      ask<frt_policy_info>(sender_, [&](frt_policy_info* out) { return role_.info(model_, out); });
  observation_info_ = ask<frt_observation_info>(
      sender_, [&](frt_observation_info* out) { return observation_.info(model_, out); });
  if (action_values() == 0 || robot_values() == 0) {
    throw Error(FRT_ERR_MISMATCH, sender_ + ": its role has an empty chunk of actions");
  }
  require_room(context_, sender_, "actions", info_.actions, action_values() * sizeof(float));
  require_room(context_, sender_, "noise", info_.noise, action_values() * sizeof(float));
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
                           " steps, " + std::to_string(shape.ways) + " branches";
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
  require_room(context_, sender_, "value", info_.value, sizeof(float));
  require_room(context_, sender_, "images", info_.images,
               uint64_t{3} * info_.views * info_.image_height * info_.image_width);
  require_room(context_, sender_, "proprioception", info_.proprioception,
               info_.state_dim * sizeof(float));
}

void CriticModel::set_instruction(const std::string& instruction, const Stream& stream) const {
  if (!role_.set_instruction) return;  // it values every task alike
  frt_error error{};
  check(role_.set_instruction(model_, instruction.c_str(), stream.handle(), &error), error,
        sender_);
}

}  // namespace frt::host
