// SPDX-License-Identifier: Apache-2.0
#include "embed/policy.hpp"

#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

namespace frt::embed {
namespace {

constexpr std::string_view kNoise = "noise";

}  // namespace

Policy::Policy(const std::shared_ptr<Instance>& instance)
    : instance_(instance),
      lease_(instance->device()),
      model_(instance->device().context(), instance->made().table, instance->made().handle,
             instance->name(), instance->plugin()) {
  const auto turn = device().turn();
  runner_ = std::make_unique<host::PolicyRunner>(model_);
}

Policy::~Policy() {
  const auto turn = device().turn();
  runner_.reset();
}

frt_policy_facts Policy::facts() const noexcept {
  const frt_policy_info& info = model_.info();
  const frt_observation_info& robot = model_.observation_info();
  frt_policy_facts facts{};
  facts.horizon = info.horizon;
  facts.action_dim = robot.action_dim;
  facts.network_dim = info.action_dim;
  facts.state_dim = robot.state_dim;
  facts.views = info.views;
  facts.default_steps = info.default_steps;
  facts.guidance_branches = info.guidance_branches > 1 ? info.guidance_branches - 1 : 0;
  facts.name = model_.name().c_str();
  facts.inputs = robot.names ? robot.names : "[]";
  facts.metadata = robot.metadata ? robot.metadata : "{}";
  return facts;
}

void Policy::observe(const frt_observation& observation) {
  const auto turn = device().turn();
  runner_->observe(observation);
  settings_.observed = true;
  const std::span arrays(observation.arrays, observation.array_count);
  settings_.noise_given =
      std::ranges::any_of(arrays, [](const frt_array& array) { return array.name == kNoise; });
}

void Policy::guide(host::GuidanceStrengths strengths) {
  const auto turn = device().turn();
  runner_->set_guidance(strengths);
  settings_.strengths = std::move(strengths);
}

void Policy::require_observation() const {
  if (settings_.observed) return;
  throw Error(FRT_ERR_BAD_STATE, "the policy has seen nothing; give it an observation first");
}

void Policy::infer(const frt_infer_options& options, std::span<double> actions,
                   std::span<float> network) {
  const auto require_room = [](uint64_t room, uint64_t values, const char* name) {
    if (room >= values) return;
    throw Error(FRT_ERR_OUT_OF_RANGE, std::string(name) + " has room for " + std::to_string(room) +
                                          " values, a chunk has " + std::to_string(values));
  };
  require_room(actions.size(), model_.robot_values(), "actions");
  if (network.data()) require_room(network.size(), model_.action_values(), "network");
  const auto turn = device().turn();
  require_observation();
  runner_->set_steps(options.steps);
  runner_->keep_noise(settings_.noise_given);
  if (!settings_.noise_given) host::fill_normal(options.seed, options.draw, runner_->noise());
  runner_->submit();
  const std::span<const double> robot = runner_->wait();
  std::ranges::copy(robot, actions.begin());
  if (!network.empty()) std::ranges::copy(runner_->network_actions(), network.begin());
}

std::shared_ptr<PolicyCapsule> Policy::snapshot() {
  return std::make_shared<PolicyCapsule>(shared_from_this());
}

void Policy::restore(PolicyCapsule& capsule) {
  if (capsule.policy_.get() != this) {
    throw Error(FRT_ERR_MISMATCH, "the capsule is one of another policy");
  }
  const auto turn = device().turn();
  runner_->set_guidance(capsule.settings_.strengths);
  capsule.boundary_->restore();
  settings_ = capsule.settings_;
}

PolicyCapsule::PolicyCapsule(std::shared_ptr<Policy> policy) : policy_(std::move(policy)) {
  const auto turn = policy_->device().turn();
  policy_->require_observation();
  boundary_ = std::make_unique<host::EpisodeBoundary>(core::state_table(), core::capsules_table(),
                                                      *policy_->runner_);
  try {
    boundary_->take();
  } catch (...) {
    boundary_.reset();  // on the policy's turn
    throw;
  }
  settings_ = policy_->settings_;
}

PolicyCapsule::~PolicyCapsule() {
  const auto turn = policy_->device().turn();
  boundary_.reset();
}

frt_capsule_facts PolicyCapsule::facts() const noexcept {
  frt_capsule_facts facts{};
  facts.space = FRT_SPACE_DEVICE;
  facts.bytes = boundary_->bytes();
  return facts;
}

}  // namespace frt::embed
