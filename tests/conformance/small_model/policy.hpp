// SPDX-License-Identifier: Apache-2.0
// policy.hpp - the policy: two branches, a continuation, a calibration, and a state that its
// buffers are parts of. At each step a value goes half way to a sine of its inputs.
#pragma once

#include <frt/calibration.h>
#include <frt/observation.h>
#include <frt/role/policy.h>
#include <frt/capsule_layout.hpp>
#include <frt/exec.hpp>

#include <span>
#include <string>
#include <vector>

namespace small {

class Policy {
 public:
  Policy(const frt::Context& context, const frt_state_v1* states);

  const frt_policy_info& role() const { return role_; }
  const frt_capsule_layout& layout() const { return layout_.table(); }
  frt_state state() const { return state_.handle(); }

  static frt_status key_of(const frt_policy_shape& shape, frt_shape_key& key);
  void set_prompt(uint32_t branch, std::span<const int32_t> ids, frt_stream stream) const;
  // The ids of an instruction, one for each byte; returns how many.
  uint32_t tell(uint32_t branch, const char* instruction, frt_stream stream);
  void set_guidance(std::span<const float> strengths, frt_stream stream) const;
  void set_continuation(const frt_policy_previous& previous, frt_stream stream) const;
  frt_observed write(const frt_observation& given, frt_stream stream) const;
  static void finish(const float* actions, double* robot);

  void begin_calibration();
  void note(const frt_policy_shape& shape, frt_stream stream);
  std::string calibration(double margin) const;

 private:
  frt::Buffer part(const char* name, uint64_t bytes);
  void capture(uint32_t branches);
  void infer(uint32_t branches, float added) const;
  float velocity(uint32_t branch, uint32_t row, uint32_t value, float at) const;
  // Writes behind what the stream has: the device's memory is the processor's.
  template <class T>
  void upload(const frt::Buffer& target, std::span<const T> values, frt_stream stream,
              uint64_t first = 0) const;

  frt::Context context_;
  frt::CapsuleLayout layout_;
  frt::State state_;
  frt::Buffer arena_, images_, mask_, values_, prompt_, lengths_, noise_, beta_, previous_,
      weights_, continuation_, actions_;
  frt::Graph infer_;
  mutable float launches_ = 0;
  // Of copies that break a rule.
  bool told_ = false, remembers_ = false;
  const char* borrowed_ = nullptr;
  uint64_t frames_ = 0;
  float largest_ = 0;
  frt_policy_info role_{};
};

const frt_role_policy_v1& policy_table();
const frt_observation_v1& observation_table();
const frt_calibration_v1& calibration_table();

}  // namespace small
