// SPDX-License-Identifier: Apache-2.0
// policy.hpp - a robot policy: observations in, chunks of actions out, and capsules of its state.
// Calls take turns on their device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "embed/runtime.hpp"
#include "robot/control/episode_boundary.hpp"
#include "robot/policy_model.hpp"
#include "robot/policy_runner.hpp"

namespace frt::embed {

class PolicyCapsule;

class Policy : public std::enable_shared_from_this<Policy> {
 public:
  static constexpr const char* kNoun = "policy";

  explicit Policy(const std::shared_ptr<Instance>& instance);
  ~Policy();
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  const std::shared_ptr<core::Log>& log_owner() const noexcept { return instance_->log_owner(); }
  frt_policy_facts facts() const noexcept;
  // `observation` is one that frt::read_observation took.
  void observe(const frt_observation& observation);
  void guide(host::GuidanceStrengths strengths);
  // `network` may be empty.
  void infer(const frt_infer_options& options, std::span<double> actions, std::span<float> network);
  std::shared_ptr<PolicyCapsule> snapshot();
  void restore(PolicyCapsule& capsule);

 private:
  friend class PolicyCapsule;

  // What the runner knows besides the device's buffers.
  struct Settings {
    bool observed = false;
    bool noise_given = false;
    host::GuidanceStrengths strengths;
  };

  Device& device() const noexcept { return instance_->device(); }
  void require_observation() const;

  std::shared_ptr<Instance> instance_;
  SharedLease lease_;
  host::PolicyModel model_;
  std::unique_ptr<host::PolicyRunner> runner_;
  Settings settings_;
};

class PolicyCapsule {
 public:
  static constexpr const char* kNoun = "capsule of a policy";

  // Takes it; on the policy's turn.
  explicit PolicyCapsule(std::shared_ptr<Policy> policy);
  ~PolicyCapsule();
  PolicyCapsule(const PolicyCapsule&) = delete;
  PolicyCapsule& operator=(const PolicyCapsule&) = delete;

  const std::shared_ptr<core::Log>& log_owner() const noexcept { return policy_->log_owner(); }
  frt_capsule_facts facts() const noexcept;

 private:
  friend class Policy;

  std::shared_ptr<Policy> policy_;
  std::unique_ptr<host::EpisodeBoundary> boundary_;
  Policy::Settings settings_;
};

}  // namespace frt::embed
