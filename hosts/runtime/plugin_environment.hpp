// SPDX-License-Identifier: Apache-2.0
// plugin_environment.hpp - the environment of a plugin (frt/environment.h) as one that rollouts and
// hand-offs drive. Nothing that the plugin gives is used unchecked: its ports when it is made, each
// observation against them, each result.
#pragma once

#include <frt/environment.h>
#include <frt/core/plugin.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "robot/environment.hpp"
#include "robot/environment_registry.hpp"

namespace frt::host {

// "u8[28,28,3]".  [any]
std::string array_type(frt_dtype dtype, uint32_t rank, const int64_t* shape);

// What the environment says of itself, checked: its ports, action, tasks and limits are ones that
// frt/environment.h allows. Throws FRT_ERR_ABI for an info that cannot be read, FRT_ERR_FORMAT for
// what is no text, FRT_ERR_MISMATCH for what does not fit.  [setup]
frt_environment_info read_environment_info(const frt_environment_v1& table,
                                           frt_environment environment, const std::string& sender);

// Under which names a policy gets the arrays: its own name where the policy reads that, else the
// policy's first free one of the same kind, in order; without names of the policy, its own.  [any]
std::vector<std::string> names_for_policy(const frt_environment_info& info,
                                          const std::vector<ObservedName>& names);

class PluginEnvironment : public Environment {
 public:
  // Makes the environment called `name` of an opened plugin, which outlives it. Throws what the
  // plugin reports, with environment and plugin before the text, and as read_environment_info().
  // [setup]
  PluginEnvironment(const core::OpenPlugin& plugin, std::string name, const core::Config& options,
                    const EnvironmentRequest& request = {});
  ~PluginEnvironment() override;
  PluginEnvironment(const PluginEnvironment&) = delete;
  PluginEnvironment& operator=(const PluginEnvironment&) = delete;

  const frt_environment_info& info() const noexcept { return info_; }
  // "environment 'arm' (plugin acme.arm)", for errors.
  const std::string& sender() const noexcept { return sender_; }
  // A reset with a task of its own.
  void reset(uint64_t seed, uint32_t task);
  // SVG elements of the episode since the reset. Throws FRT_ERR_UNSUPPORTED where it draws nothing.
  std::string draw(uint32_t frames);
  bool has_expert() const noexcept { return table_.expert_action != nullptr; }
  bool draws() const noexcept { return table_.draw != nullptr; }

  // Of Environment. All throw what the plugin reports, FRT_ERR_INTERNAL if it throws, and
  // FRT_ERR_FORMAT or FRT_ERR_MISMATCH for what it must not give.
  void reset(uint64_t seed) override { reset(seed, FRT_TASK_ANY); }
  const frt_observation& observe() override;
  std::span<const uint8_t> images() const override { return images_; }
  std::span<const float> state() const override { return state_; }
  uint32_t action_dim() const override { return action_dim_; }
  uint32_t max_ticks() const override { return info_.max_steps; }
  double period_s() const override { return info_.period_s; }
  void apply(std::span<const double> action) override;
  bool operator_action(std::span<double> action) override;
  bool succeeded() const override { return (flags_ & FRT_EPISODE_SUCCEEDED) != 0; }
  bool over() const override { return (flags_ & FRT_EPISODE_OVER) != 0; }
  double reward() const override { return reward_; }
  const std::string& instruction() const override { return instruction_; }
  std::vector<EnvironmentSubgoal> subgoals() const override;
  void choose(std::size_t index) override;
  std::unique_ptr<EpisodePicture> picture() override;

 private:
  class Picture;

  enum class Pace { kTick, kAny };  // whether it is called in each tick
  template <class Body>
  void call(const char* function, const Body& body, Pace pace = Pace::kAny) const;
  void take_array(const frt_environment_port& port, const frt_array& array);
  void set_instruction(const char* text);

  const core::OpenPlugin& plugin_;
  std::string name_, sender_, suffix_;
  frt_environment_v1 table_{};
  frt_environment handle_ = nullptr;
  frt_environment_info info_{};
  uint32_t action_dim_ = 0;
  std::vector<std::string> names_;  // of the arrays, as the policy reads them
  std::vector<frt_array> arrays_;
  frt_observation observation_{};
  std::string told_, instruction_;  // by the plugin; with the suffix
  std::span<const uint8_t> images_;
  std::vector<uint8_t> joined_images_;  // where there are several
  std::vector<float> state_;
  uint32_t flags_ = 0;
  double reward_ = 0;
  // Of the episode, for a picture.
  bool keeps_actions_ = false;
  uint64_t seed_ = 0;
  std::vector<double> actions_;
};

}  // namespace frt::host
