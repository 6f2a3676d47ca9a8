// SPDX-License-Identifier: Apache-2.0
#include "robot/policy_model.hpp"

#include <frt/io/json.hpp>
#include <nlohmann/json.hpp>
#include <utility>

namespace frt::host {
namespace {

// A buffer that is there has room for what the role says of it.
void require_bytes(const Context& context, const std::string& model, const char* port,
                   frt_buffer buffer, uint64_t bytes) {
  if (!buffer) return;
  frt_buffer_info info{};
  info.struct_size = sizeof(info);
  check(context.table().buffer_info(buffer, &info), "buffer_info");
  if (info.bytes >= bytes) return;
  throw Error(FRT_ERR_MISMATCH, "model '" + model + "': its buffer " + port + " has " +
                                    std::to_string(info.bytes) + " bytes, its role says " +
                                    std::to_string(bytes) + "; the plugin is broken");
}

Error not_the_role(const std::string& name, const char* what, const char* role) {
  return Error(FRT_ERR_UNSUPPORTED, "model '" + name + "' is no " + what +
                                        " (its plugin offers no " + role +
                                        "); choose another model");
}

}  // namespace

PolicyModel::PolicyModel(const Context& context, const frt_model_v1* table, frt_model model,
                         std::string name)
    : context_(context), model_(model), name_(std::move(name)) {
  role_ = static_cast<const frt_role_policy_v1*>(table->extension(model, FRT_EXT_ROLE_POLICY));
  if (!role_) throw not_the_role(name_, "policy", FRT_EXT_ROLE_POLICY);
  observation_ =
      static_cast<const frt_observation_v1*>(table->extension(model, FRT_EXT_OBSERVATION));
  if (!observation_) throw not_the_role(name_, "policy for robots", FRT_EXT_OBSERVATION);
  info_.struct_size = sizeof(info_);
  check(role_->info(model_, &info_), "model '" + name_ + "': role info");
  observation_info_.struct_size = sizeof(observation_info_);
  check(observation_->info(model_, &observation_info_), "model '" + name_ + "': observation info");
  if (!info_.infer || !info_.actions || action_values() == 0 || robot_values() == 0) {
    throw Error(FRT_ERR_MISMATCH,
                "model '" + name_ + "': its role has no graph, no actions or an empty chunk");
  }
  require_bytes(context_, name_, "actions", info_.actions, action_values() * sizeof(float));
  require_bytes(context_, name_, "noise", info_.noise, action_values() * sizeof(float));
}

std::vector<ObservedName> PolicyModel::names() const {
  std::vector<ObservedName> names;
  if (!observation_info_.names) return names;
  const std::string what = "model '" + name_ + "': the list of arrays it reads";
  const io::Json json = io::parse_json(observation_info_.names, what);
  if (!json.is_array()) throw Error(FRT_ERR_FORMAT, what + " is no JSON list");
  for (const auto& entry : json) {
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
  const frt_status status = role_->infer_key(model_, &shape, &key);
  if (status == FRT_OK) return key;
  const std::string what = std::to_string(shape.views) + " views, " + std::to_string(shape.prompt) +
                           " prompt tokens, " +
                           std::to_string(shape.steps ? shape.steps : info_.default_steps) +
                           " steps, " + std::to_string(shape.ways) + " branches";
  throw Error(status, "model '" + name_ + "' was loaded without a variant for " + what + " (" +
                          status_name(status) + "); what is captured is set in [model." + name_ +
                          ".options]");
}

CriticModel::CriticModel(const Context& context, const frt_model_v1* table, frt_model model,
                         std::string name)
    : context_(context), model_(model), name_(std::move(name)) {
  role_ = static_cast<const frt_role_critic_v1*>(table->extension(model, FRT_EXT_ROLE_CRITIC));
  if (!role_) throw not_the_role(name_, "critic", FRT_EXT_ROLE_CRITIC);
  info_.struct_size = sizeof(info_);
  check(role_->info(model_, &info_), "model '" + name_ + "': role info");
  if (!info_.infer || !info_.value) {
    throw Error(FRT_ERR_MISMATCH, "model '" + name_ + "': its role has no graph or no value");
  }
  require_bytes(context_, name_, "value", info_.value, sizeof(float));
  require_bytes(context_, name_, "images", info_.images,
                uint64_t{3} * info_.views * info_.image_height * info_.image_width);
  require_bytes(context_, name_, "proprioception", info_.proprioception,
                info_.state_dim * sizeof(float));
}

void CriticModel::set_instruction(const std::string& instruction, const Stream& stream) const {
  if (!role_->set_instruction) return;  // it values every task alike
  frt_error error{};
  check(role_->set_instruction(model_, instruction.c_str(), stream.handle(), &error), error);
}

}  // namespace frt::host
