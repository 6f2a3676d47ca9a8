// SPDX-License-Identifier: Apache-2.0
// policy_runner.hpp - one inference after the other: inputs staged in pinned memory, one replay, the
// actions back in pinned memory.
//
// The caller fills the staging area, submits, and waits or asks; the staging area must not be
// touched in between. Where a critic is given, it is replayed on a stream of its own, at the same
// time, from a staging area of its own. One thread at a time ([driver]); submit, ready and wait
// allocate nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "robot/policy_model.hpp"

namespace frt::host {

// Standard normal values that depend on (seed, draw, index) alone, so that a run can be repeated.
void fill_normal(uint64_t seed, uint64_t draw, std::span<float> out) noexcept;

class PolicyRunner {
 public:
  // `steps` 0: the model's default. The models outlive the runner.  [setup]
  explicit PolicyRunner(const PolicyModel& policy, uint32_t steps = 0);

  const PolicyModel& policy() const noexcept { return policy_; }
  const Stream& stream() const noexcept { return stream_; }

  // ---- inputs of the next inference ----
  std::span<uint8_t> image(uint32_t view) noexcept;
  std::span<uint8_t> images() noexcept;     // all views
  std::span<int32_t> view_mask() noexcept;  // 1 valid, 0 absent; all 1 at first
  std::span<float> state() noexcept;
  std::span<float> noise() noexcept;
  // Takes effect with the next inference.
  void set_steps(uint32_t steps) { key_ = policy_.infer_key(steps); }
  // Builds the prompt of one branch if it differs from the one before. `options`: JSON or empty.
  void set_prompt(uint32_t way, const std::string& instruction, const std::string& options = {});
  // Token ids in place of a text.  Throws FRT_ERR_OUT_OF_RANGE if there are too many.
  void set_prompt_ids(uint32_t way, std::span<const int32_t> ids);
  // Guidance strength. Throws FRT_ERR_UNSUPPORTED for another value than 1 if the model has no
  // guidance, FRT_ERR_OUT_OF_RANGE below 1.
  void set_beta(double beta);

  // ---- running ----
  void submit();  // [hot]
  bool ready() const { return done_.query(); }  // [hot]
  // Waits; the chunk, (horizon, action_dim). Throws FRT_ERR_BAD_STATE if a value is not finite: such
  // a chunk must never reach a robot.  [hot]
  std::span<const float> wait();

 private:
  struct Prompt {
    std::string instruction, options;
    bool from_text = false;
  };

  const PolicyModel& policy_;
  Stream stream_;
  Event done_;
  frt_shape_key key_;
  Buffer staging_;  // pinned: images | view mask | state | noise
  Buffer actions_;  // pinned
  Buffer words_;    // pinned: prompt ids and a length, or betas
  uint64_t mask_at_ = 0, state_at_ = 0, noise_at_ = 0;
  std::vector<frt_copy> inputs_;
  std::vector<Prompt> prompts_;
};

// The same for a critic.
class CriticRunner {
 public:
  explicit CriticRunner(const CriticModel& critic);  // [setup]

  const CriticModel& critic() const noexcept { return critic_; }
  const Stream& stream() const noexcept { return stream_; }
  void set_instruction(const std::string& instruction);
  // Submits the valuation of an observation; what the critic does not take is ignored. Throws
  // FRT_ERR_MISMATCH if it takes more or other images or state than there are.  [hot]
  void submit(std::span<const uint8_t> images, std::span<const float> state);
  float wait();  // [hot]

 private:
  const CriticModel& critic_;
  Stream stream_;
  Event done_;
  Buffer staging_;  // pinned: images | state
  Buffer value_;    // pinned
  uint64_t image_bytes_ = 0, state_at_ = 0;
  std::vector<frt_copy> inputs_;
  std::string instruction_;
};

}  // namespace frt::host
