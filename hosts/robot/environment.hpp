// SPDX-License-Identifier: Apache-2.0
// environment.hpp - what a rollout acts on: a robot, or a simulation of one.
#pragma once

#include <frt/observation.h>

#include <cstdint>
#include <span>
#include <string>

namespace frt::host {

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
  // One tick. Neither allocates nor waits.  [hot]
  virtual void apply(std::span<const double> action) = 0;
  // What an operator who has taken over does in this tick; false if there is no operator.  [hot]
  virtual bool operator_action(std::span<double> action) = 0;
  virtual bool succeeded() const = 0;  // [hot]
  virtual bool over() const = 0;       // its own limit is reached  [hot]
  virtual const std::string& instruction() const = 0;
};

}  // namespace frt::host
