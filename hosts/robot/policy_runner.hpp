// SPDX-License-Identifier: Apache-2.0
// policy_runner.hpp - one inference after the other: an observation in, one replay, a chunk of
// robot actions out. And the same for a critic, on a stream of its own, at the same time.
//
// observe() hands the arrays to the model; submit() uploads the noise, replays and copies the
// actions back, which allocates nothing; wait() gives them in the robot's units. One thread at a
// time ([driver]), one inference in flight.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "robot/guidance.hpp"
#include "robot/policy_model.hpp"

namespace frt::host {

// Standard normal values that depend on (seed, draw, index) alone, so that a run can be repeated.
void fill_normal(uint64_t seed, uint64_t draw, std::span<float> out) noexcept;

// Whether an error is about what came in or out (NaN, a missing array, a size), so that the next
// observation may be good again; else something is broken.
bool is_refusal(frt_status status) noexcept;

class PolicyRunner {
 public:
  explicit PolicyRunner(const PolicyModel& policy);  // [setup]

  const PolicyModel& policy() const noexcept { return policy_; }
  const Stream& stream() const noexcept { return stream_; }

  // Checks and uploads an observation (frt/observation.h). An error leaves what was there.
  void observe(const frt_observation& observation);
  // Another instruction for the observation that is there, in all branches: the prompt's buffer is
  // overwritten, in the order of the stream. `state` is the robot's, for prompts that hold it;
  // others ignore it. Throws FRT_ERR_UNSUPPORTED if the model takes no instructions.
  void overwrite_prompt(const std::string& instruction, std::span<const float> state = {});
  // What the model said of the last observation; it may be put back.
  const frt_observed& observed() const noexcept { return observed_; }
  void set_observed(const frt_observed& observed) noexcept { observed_ = observed; }
  // Its shape; what is not the observation's is 0.
  frt_policy_shape observed_shape() const noexcept;
  // Of the inferences to come; 0: the model's default.
  void set_steps(uint32_t steps) noexcept { steps_ = steps; }
  // Where they are 1 throughout, the branches beyond the first are not computed. Throws what
  // GuidanceStrengths::table() does, FRT_ERR_UNSUPPORTED for others if the model has no guidance.
  void set_guidance(const GuidanceStrengths& strengths);

  // (horizon, action_dim), pinned; written by the caller before submit(), not while one is in
  // flight.
  std::span<float> noise() noexcept;
  // The noise came with the observation: do not upload the one above.
  void keep_noise(bool keep) noexcept { keep_noise_ = keep; }

  void submit();                                // [hot]
  bool ready() const { return done_.query(); }  // [hot]
  // Waits; the chunk in robot units, (horizon, robot action_dim), valid until the next submit().
  // Throws FRT_ERR_FORMAT if a value is not finite: such a chunk must never reach a robot.
  std::span<const double> wait();
  // The same chunk as the network computed it, (horizon, action_dim); after wait().
  std::span<const float> network_actions() const noexcept;

 private:
  const PolicyModel& policy_;
  Stream stream_;
  Event done_;
  Buffer noise_, actions_;  // pinned
  frt_observed observed_{};
  uint32_t steps_ = 0;
  GuidanceStrengths guidance_;
  bool keep_noise_ = false;
  std::vector<double> robot_;
};

class CriticRunner {
 public:
  explicit CriticRunner(const CriticModel& critic);  // [setup]

  const CriticModel& critic() const noexcept { return critic_; }
  const Stream& stream() const noexcept { return stream_; }
  void set_instruction(const std::string& instruction);
  // Submits the valuation of an observation; what the critic does not take is ignored. Throws
  // FRT_ERR_MISMATCH if it takes more images or state than there are.  [hot]
  void submit(std::span<const uint8_t> images, std::span<const float> state);
  float wait();  // [hot]

 private:
  const CriticModel& critic_;
  Stream stream_;
  Event done_;
  Buffer staging_;  // pinned: images | state
  Buffer value_;    // pinned
  uint64_t image_bytes_ = 0, state_at_ = 0, state_bytes_ = 0;
  std::vector<frt_copy> inputs_;
  std::string instruction_;
};

}  // namespace frt::host
