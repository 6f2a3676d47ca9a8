// SPDX-License-Identifier: Apache-2.0
// episode_boundary.hpp - where every episode begins: the policy's whole state as a capsule.
//
// A policy's state is what its graphs read and the host did not just write: its own arena, if it
// has one, and what lies in its input buffers (prompt, strengths, noise, the chunk before). The
// input buffers are mirrored in an arena of the host's, so one capsule holds them; restoring is one
// submission for the capsule and one for the buffers. Nothing is captured again, and what is
// computed afterwards is what was computed after take(), bit for bit.
#pragma once

#include <frt/capsule.hpp>

#include <vector>

#include "robot/policy_runner.hpp"

namespace frt::host {

class EpisodeBoundary {
 public:
  // The tables come from core. The runner outlives the object.  [setup]
  EpisodeBoundary(const frt_state_v1* states, const frt_capsules_v1* capsules,
                  PolicyRunner& runner);

  // Keeps the state as it is now, in the order of the runner's stream.  [driver]
  void take();
  // Brings it back, in the order of the runner's stream.  [hot]
  void restore();
  uint64_t bytes() const noexcept;

 private:
  PolicyRunner& runner_;
  State mirror_;
  Capsules verbs_, model_verbs_;
  Capsule capsule_, model_capsule_;
  std::vector<frt_copy> into_, out_of_;
  frt_observed observed_{};
};

}  // namespace frt::host
