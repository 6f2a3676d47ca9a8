// SPDX-License-Identifier: Apache-2.0
// model.hpp - test.small: a model of host functions, for the CPU backend. It offers all that
// frt-plugin-check looks at, and keeps every rule but the one that FRT_TEST_DEFECT names. The
// checkpoint "synthetic:lm" is a language model, "synthetic:policy" a policy.
#pragma once

#include <frt/model.h>
#include <frt/plugin.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lm.hpp"
#include "policy.hpp"

namespace small {

class Model {
 public:
  Model(const frt::Context& context, const frt_state_v1* states, const std::string& checkpoint);

  const Lm& lm() const { return *lm_; }
  Policy& policy() { return *policy_; }

  const frt_model_info& info() const { return info_; }
  const std::vector<frt_port>& ports() const { return ports_; }
  const std::vector<frt_model_graph>& graphs() const { return graphs_; }
  const frt_capsule_layout& capsule_layout() const {
    return lm_ ? lm_->layout() : policy_->layout();
  }
  frt_state capsule_state() const { return lm_ ? lm_->state() : policy_->state(); }
  const std::vector<frt_fingerprint_field>& fingerprint() const { return fingerprint_; }
  const void* extension(std::string_view id) noexcept;

 private:
  std::unique_ptr<Lm> lm_;
  std::unique_ptr<Policy> policy_;
  frt_model_info info_{};
  std::vector<frt_port> ports_;
  std::vector<frt_model_graph> graphs_;
  std::vector<frt_fingerprint_field> fingerprint_ = {{"config", "small"}, {"state", "1"}};
};

inline Model& model_of(frt_model model) {
  return *frt::object<Model>(model);
}

}  // namespace small
