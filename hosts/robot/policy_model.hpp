// SPDX-License-Identifier: Apache-2.0
// policy_model.hpp - a policy and a critic as a host sees them: the role tables, typed.
//
// Owns nothing: the model and its context outlive these views. All members are [any] unless tagged.
#pragma once

#include <frt/model.h>
#include <frt/role/critic.h>
#include <frt/role/policy.h>
#include <frt/exec.hpp>

#include <string>

namespace frt::host {

class PolicyModel {
 public:
  // `name` is the user's name of the model, for messages. Throws FRT_ERR_UNSUPPORTED if the model
  // does not have the role, FRT_ERR_MISMATCH if its buffers are smaller than its limits say. [setup]
  PolicyModel(const Context& context, const frt_model_v1* table, frt_model model, std::string name);

  const std::string& name() const noexcept { return name_; }
  const Context& context() const noexcept { return context_; }
  const frt_policy_info& info() const noexcept { return info_; }
  frt_model handle() const noexcept { return model_; }

  uint64_t image_bytes() const noexcept {  // of one view
    return uint64_t{3} * info_.image_height * info_.image_width;
  }
  uint64_t action_values() const noexcept { return uint64_t{info_.horizon} * info_.action_dim; }
  uint64_t noise_values() const noexcept { return noise_values_; }
  // 0: the model's default. Throws FRT_ERR_NO_VARIANT, saying what was asked for.  [setup]
  frt_shape_key infer_key(uint32_t steps) const;
  // Null table entries are FRT_ERR_UNSUPPORTED. `options`: JSON or empty.  [driver]
  void set_prompt(uint32_t way, const std::string& instruction, const std::string& options,
                  const Stream& stream) const;

 private:
  Context context_;
  frt_model model_;
  std::string name_;
  const frt_role_policy_v1* role_ = nullptr;
  frt_policy_info info_{};
  uint64_t noise_values_ = 0;
};

class CriticModel {
 public:
  CriticModel(const Context& context, const frt_model_v1* table, frt_model model, std::string name);

  const std::string& name() const noexcept { return name_; }
  const Context& context() const noexcept { return context_; }
  const frt_critic_info& info() const noexcept { return info_; }
  frt_shape_key key() const noexcept { return info_.key; }
  void set_instruction(const std::string& instruction, const Stream& stream) const;  // [driver]

 private:
  Context context_;
  frt_model model_;
  std::string name_;
  const frt_role_critic_v1* role_ = nullptr;
  frt_critic_info info_{};
};

}  // namespace frt::host
