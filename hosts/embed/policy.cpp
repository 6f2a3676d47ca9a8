// SPDX-License-Identifier: Apache-2.0
#include "embed/policy.hpp"

#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

namespace frt::embed {
namespace {

constexpr uint32_t kMostArrays = 256;
constexpr std::string_view kNoise = "noise";

// What a model reads without asking: pointers, and sizes that can be counted with.
void check_array(const frt_array& array, uint32_t index) {
  const std::string which = "array " + std::to_string(index);
  const std::string name = required(array.name, (which + ": its name").c_str());
  const auto refuse = [&](const std::string& what) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, which + " '" + name + "' " + what);
  };
  if (!array.data) refuse("has no data");
  if (dtype_bits(array.dtype) < 8) {
    refuse("has the type " + std::to_string(array.dtype) + ", which no array has");
  }
  if (array.rank > FRT_ARRAY_MAX_RANK) {
    refuse("has rank " + std::to_string(array.rank) + ", at most " +
           std::to_string(FRT_ARRAY_MAX_RANK) + " is known");
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < array.rank; ++i) {
    const int64_t extent = array.shape[i];
    if (extent < 0 || static_cast<uint64_t>(extent) > kMostEntries) {
      refuse("has the extent " + std::to_string(extent));
    }
    elements *= static_cast<uint64_t>(extent);
    if (elements > kMostEntries) refuse("has more elements than any policy reads");
  }
}

}  // namespace

Policy::Policy(const std::shared_ptr<Instance>& instance)
    : lease_(instance),
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
  const auto arrays = list_of(observation.arrays, observation.array_count, "arrays");
  if (arrays.size() > kMostArrays) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "array_count is " + std::to_string(arrays.size()) +
                                          ", at most " + std::to_string(kMostArrays) +
                                          " arrays are read");
  }
  for (uint32_t i = 0; i < arrays.size(); ++i) check_array(arrays[i], i);
  list_of(observation.prompt_tokens, observation.prompt_token_count, "prompt_tokens");
  if (observation.prompt && ::strnlen(observation.prompt, kMostText) == kMostText) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "the prompt is too long for any policy");
  }
  const auto turn = device().turn();
  runner_->observe(observation);
  settings_.observed = true;
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
