// SPDX-License-Identifier: Apache-2.0
// policy_model.hpp - a policy and a critic as a host sees them: the tables of one model, typed.
//
// A policy has the role frt.role.policy/1 and takes observations through frt.observation/1. Owns
// nothing: the model and its context outlive these views. All members are [any] unless tagged.
#pragma once

#include <frt/model.h>
#include <frt/observation.h>
#include <frt/role/critic.h>
#include <frt/role/policy.h>
#include <frt/exec.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace frt::host {

// An array that a model reads, as its frt.observation/1 names it.
struct ObservedName {
  std::string name;
  bool image = false;  // else a part of the state
  bool required = true;
  std::vector<int64_t> shape;
};

// What a policy says of itself, checked: its numbers are ones that a host can count with, its
// buffers have room for what they say, and what it says it has is there. Throws
// FRT_ERR_ABI for an info that cannot be read, FRT_ERR_MISMATCH for what does not fit.  [setup]
frt_policy_info read_policy_info(const Context& context, const frt_role_policy_v1& role,
                                 frt_model model, const std::string& sender);

class PolicyModel {
 public:
  // `name` is the user's name of the model and `plugin` the id of its plugin, for messages. Throws
  // FRT_ERR_UNSUPPORTED if the model is no policy; the rest as read_policy_info().  [setup]
  PolicyModel(const Context& context, const frt_model_v1* table, frt_model model, std::string name,
              std::string plugin = {});

  const std::string& name() const noexcept { return name_; }
  // "model 'arm' (plugin acme.policy)", for errors.
  const std::string& sender() const noexcept { return sender_; }
  const Context& context() const noexcept { return context_; }
  const frt_policy_info& info() const noexcept { return info_; }
  const frt_observation_info& observation_info() const noexcept { return observation_info_; }
  const frt_role_policy_v1& role() const noexcept { return role_; }
  const frt_observation_v1& observation() const noexcept { return observation_; }
  frt_model handle() const noexcept { return model_; }

  uint64_t action_values() const noexcept {  // of one chunk, in the network's space
    return uint64_t{info_.horizon} * info_.action_dim;
  }
  uint64_t robot_values() const noexcept {  // of one chunk, in the robot's
    return uint64_t{info_.horizon} * observation_info_.action_dim;
  }
  // What it reads; empty if it does not say.  [setup]
  std::vector<ObservedName> names() const;
  // Throws FRT_ERR_NO_VARIANT, saying what was asked for.  [hot] without the error
  frt_shape_key infer_key(const frt_policy_shape& shape) const;

 private:
  Context context_;
  frt_model model_;
  std::string name_, sender_;
  frt_role_policy_v1 role_{};
  frt_observation_v1 observation_{};
  frt_policy_info info_{};
  frt_observation_info observation_info_{};
};

class CriticModel {
 public:
  // As PolicyModel.  [setup]
  CriticModel(const Context& context, const frt_model_v1* table, frt_model model, std::string name,
              std::string plugin = {});

  const std::string& name() const noexcept { return name_; }
  // "model 'arm' (plugin acme.policy)", for errors.
  const std::string& sender() const noexcept { return sender_; }
  const Context& context() const noexcept { return context_; }
  const frt_critic_info& info() const noexcept { return info_; }
  void set_instruction(const std::string& instruction, const Stream& stream) const;  // [driver]

 private:
  Context context_;
  frt_model model_;
  std::string name_, sender_;
  frt_role_critic_v1 role_{};
  frt_critic_info info_{};
};

}  // namespace frt::host
