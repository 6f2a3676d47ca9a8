// SPDX-License-Identifier: Apache-2.0
#include "robot/policy_model.hpp"

#include <utility>

namespace frt::host {
namespace {

uint64_t bytes_of(const Context& context, frt_buffer buffer) {
  if (!buffer) return 0;
  frt_buffer_info info{};
  info.struct_size = sizeof(info);
  check(context.table().buffer_info(buffer, &info), "buffer_info");
  return info.bytes;
}

// A buffer that is there has room for what the role says of it.
void require_bytes(const Context& context, const std::string& model, const char* port,
                   frt_buffer buffer, uint64_t bytes) {
  const uint64_t found = bytes_of(context, buffer);
  if (!buffer || found >= bytes) return;
  throw Error(FRT_ERR_MISMATCH, "model '" + model + "': its buffer " + port + " has " +
                                    std::to_string(found) + " bytes, its role says " +
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
  info_.struct_size = sizeof(info_);
  check(role_->info(model_, &info_), "model '" + name_ + "': role info");
  if (!info_.infer || !info_.actions || action_values() == 0) {
    throw Error(FRT_ERR_MISMATCH,
                "model '" + name_ + "': its role has no graph, no actions or an empty chunk");
  }
  const auto require = [&](const char* port, frt_buffer buffer, uint64_t bytes) {
    require_bytes(context_, name_, port, buffer, bytes);
  };
  require("images", info_.images, info_.views * image_bytes());
  require("view_mask", info_.view_mask, info_.views * sizeof(int32_t));
  require("proprioception", info_.proprioception, info_.state_dim * sizeof(float));
  require("actions", info_.actions, action_values() * sizeof(float));
  require("beta", info_.beta, info_.guidance_ways * sizeof(float));
  require("prompt_length", info_.prompt_length, info_.guidance_ways * sizeof(int32_t));
  require("prompt_tokens", info_.prompt_tokens,
          uint64_t{info_.guidance_ways} * info_.max_prompt * sizeof(int32_t));
  // A model may denoise more columns than it gives out.
  noise_values_ = bytes_of(context_, info_.noise) / sizeof(float);
  require("noise", info_.noise, action_values() * sizeof(float));
}

frt_shape_key PolicyModel::infer_key(uint32_t steps) const {
  frt_shape_key key = 0;
  const uint32_t count = steps ? steps : info_.default_steps;
  const frt_status status = role_->infer_key(model_, count, &key);
  if (status == FRT_ERR_NO_VARIANT) {
    throw Error(status, "model '" + name_ + "' was loaded without a variant of " +
                            std::to_string(count) + " denoising steps; it has " +
                            std::to_string(info_.default_steps));
  }
  check(status, "model '" + name_ + "': key of " + std::to_string(count) + " steps");
  return key;
}

void PolicyModel::set_prompt(uint32_t way, const std::string& instruction,
                             const std::string& options, const Stream& stream) const {
  if (!role_->set_prompt) {
    throw Error(FRT_ERR_UNSUPPORTED, "model '" + name_ + "' takes no instructions");
  }
  frt_error error{};
  check(role_->set_prompt(model_, way, instruction.c_str(),
                          options.empty() ? nullptr : options.c_str(), stream.handle(), &error),
        error);
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
