// SPDX-License-Identifier: Apache-2.0
// episode_boundary.hpp - where every episode begins: the policy's whole state as a capsule.
//
// Where the policy has an arena (frt_policy_info), a capsule of its slot 0 is all of it, and
// restoring is one submission. Where it has none, its state is what lies in its input buffers
// (prompt, strengths, noise, the chunk before): they are mirrored in an arena of the host's, and
// restoring is one submission for the capsule and one for the buffers. Nothing is captured again,
// and what is computed afterwards is what was computed after take(), bit for bit.
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
  void mirror_inputs(const frt_state_v1* states);

  PolicyRunner& runner_;
  State mirror_;  // only without an arena of the policy's
  Capsules verbs_;
  Capsule capsule_;
  std::vector<frt_copy> into_, out_of_;
  frt_observed observed_{};
};

}  // namespace frt::host
