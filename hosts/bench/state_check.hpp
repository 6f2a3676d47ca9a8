// SPDX-License-Identifier: Apache-2.0
// state_check.hpp - whether capsules keep their promise on this policy and this device: snapshot,
// restore, fork, files and going back, at random and compared to the bit.
//
// A case draws images, prompts, noise, strengths and a previous chunk, and takes a capsule in
// front of the actions (behind `observe` where the policy is split). Compared are the chunks:
//
//   restored   after another inference has overwritten everything
//   whole      the whole inference, from the inputs that the capsule brought back
//   parts      the same as vision, prefix and actions, where the policy is split so
//   forked     through another slot, where the state has one
//   file       written, read again
//   earlier    a capsule of some cases before
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "robot/policy_model.hpp"

namespace frt::host {

struct StateCheckOptions {
  uint64_t cases = 1000;
  uint64_t seed = 1;
  uint64_t first = 0;            // number of the first case: to repeat one alone
  std::filesystem::path folder;  // for the cases with files; empty: there are none
};

struct StateCheckResult {
  uint64_t cases = 0;
  std::map<std::string, uint64_t> compared;  // how often each comparison was made
  std::map<std::string, uint64_t> drawn;     // how many cases had each property
  std::vector<std::string> failures;         // one line each
};

// Throws FRT_ERR_UNSUPPORTED if the policy has no state. The tables come from core; with a folder
// the state's fingerprint was made. `step` is called after each case; true: stop.  [driver]
StateCheckResult check_policy_state(const PolicyModel& policy, const frt_state_v1* states,
                                    const frt_capsules_v1* capsules,
                                    const StateCheckOptions& options,
                                    const std::function<bool(const StateCheckResult&)>& step);

}  // namespace frt::host
