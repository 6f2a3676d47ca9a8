// SPDX-License-Identifier: Apache-2.0
// tables.hpp - the C tables of a model object, and the plugin object both plugins share.
#pragma once

#include <frt/capsule.h>
#include <frt/model.h>
#include <frt/observation.h>
#include <frt/role/policy.h>
#include <frt/selftest.h>
#include <frt/tokenizer.h>
#include <frt/model.hpp>
#include <frt/plugin.hpp>

#include <memory>

#include "model.hpp"

namespace frt::pi05 {

// It only remembers its host, and which plugin it is.
class PolicyPlugin {
 public:
  PolicyPlugin(const Host& host, Family family) : host_(host), family_(family) {}

  const void* extension(std::string_view id) noexcept;
  std::unique_ptr<Model> create(const frt_model_params& params) {
    return std::make_unique<Model>(host_, params, family_);
  }

 private:
  Host host_;
  Family family_;
};

// What an frt_model points to.
inline Model& model_of(frt_model model) noexcept {
  return *reinterpret_cast<Model*>(model);
}

const frt_model_v1& model_table() noexcept;
const frt_role_policy_v1& role_table() noexcept;
const frt_capsule_v1& capsule_table() noexcept;
const frt_observation_v1& observation_table() noexcept;
const frt_tokenizer_v1& tokenizer_table() noexcept;
const frt_selftest_v1& selftest_table() noexcept;

}  // namespace frt::pi05
