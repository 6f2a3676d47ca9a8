// SPDX-License-Identifier: Apache-2.0
// environment.hpp - what a rollout acts on: a robot, or a simulation of one.
#pragma once

#include <frt/observation.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace frt::host {

// Something that an environment can be asked to do.
struct EnvironmentSubgoal {
  std::string name;         // one word that texts name it by: "red"
  std::string instruction;  // what a policy is told: "reach the red disc"
};

// Collects episodes of one environment and draws them.
class EpisodePicture {
 public:
  virtual ~EpisodePicture() = default;
  // Adds the episode that has just ended. Keeps the first few, ignores the others.
  virtual void add_episode() = 0;
  // One SVG file of the kept episodes under a title and a line of text (no markup), and a histogram
  // of `chunk_ms`, milliseconds per chunk of actions. The environment's own episode is lost.
  virtual std::string svg(const std::string& title, const std::string& line,
                          std::span<const double> chunk_ms) = 0;
};

class Environment {
 public:
  virtual ~Environment() = default;

  // A new episode; equal seeds make equal episodes.
  virtual void reset(uint64_t seed) = 0;
  // What is seen now; valid until the next call of any member.
  virtual const frt_observation& observe() = 0;
  // Of the last observe(), for a critic: images u8, one after the other, and the state.
  virtual std::span<const uint8_t> images() const = 0;
  virtual std::span<const float> state() const = 0;
  virtual uint32_t action_dim() const = 0;
  virtual uint32_t max_ticks() const { return 0; }  // of an episode; 0: no limit of its own
  virtual double period_s() const { return 0; }     // seconds of a tick; 0: any
  // One tick. Neither allocates nor waits.  [hot]
  virtual void apply(std::span<const double> action) = 0;
  // What an operator who has taken over does in this tick; false if there is no operator.  [hot]
  virtual bool operator_action(std::span<double> action) = 0;
  virtual bool succeeded() const = 0;          // [hot]
  virtual bool over() const = 0;               // its own limit is reached  [hot]
  virtual double reward() const { return 0; }  // of the last apply()  [hot]
  virtual const std::string& instruction() const = 0;

  // For a hand-off: what a planner may name, without the text that the environment's request puts
  // behind instructions. Empty: nothing can be handed off.
  virtual std::vector<EnvironmentSubgoal> subgoals() const;
  // Succeeds with subgoals()[index] from now on, without a reset.
  virtual void choose(std::size_t index);
  // For a picture of the episodes from now on; null: it draws none. The picture lives no longer
  // than the environment.
  virtual std::unique_ptr<EpisodePicture> picture();
};

// Throws FRT_ERR_MISMATCH if actions of `width` values, which `policy` gives, are too short for the
// environment.  [any]
void require_action_width(const Environment& environment, uint32_t width,
                          const std::string& policy);

inline std::vector<EnvironmentSubgoal> Environment::subgoals() const {
  return {};
}
inline void Environment::choose(std::size_t) {}
inline std::unique_ptr<EpisodePicture> Environment::picture() {
  return nullptr;
}

}  // namespace frt::host
