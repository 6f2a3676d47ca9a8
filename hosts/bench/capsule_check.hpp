// SPDX-License-Identifier: Apache-2.0
// capsule_check.hpp - whether capsules keep their promise on this model and this device: restore,
// fork and going back, at random and compared to the bit.
//
// A case draws a prompt, a boundary in it (at a multiple of the chunk, one beside it, or anywhere;
// after prefill or after some decode steps), a suffix, slots, a space (device, pinned host, file)
// and neighbours that decode in the same steps. Compared are the tokens, their log probabilities,
// the last logits and the whole state:
//
//   restored   another slot, used for something else before, continues as the first one did
//   cold       at a multiple of the chunk: the prompt read in one go gives the same
//   forks      two forks that go on differently each give what a slot alone gives
//   back       an earlier boundary, restored after all that, as if it had never gone on
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lm/lm_model.hpp"

namespace frt::host {

struct CapsuleCheckOptions {
  uint64_t cases = 1000;
  uint64_t seed = 1;
  uint64_t first = 0;            // number of the first case: to repeat one alone
  uint64_t most_tokens = 0;      // of a prompt; 0: three chunks and a bit
  std::filesystem::path folder;  // for the cases with files; empty: there are none
};

struct CapsuleCheckResult {
  uint64_t cases = 0;
  std::map<std::string, uint64_t> compared;  // how often each comparison was made
  std::map<std::string, uint64_t> drawn;     // how many cases had each property
  std::vector<std::string> failures;         // one line each
};

// Throws FRT_ERR_OUT_OF_RANGE if the model has fewer than 2 slots or no room for two chunks.
// `step` is called after each case; true: stop.  [driver]
CapsuleCheckResult check_capsules(const LmModel& model, const CapsuleCheckOptions& options,
                                  const std::function<bool(const CapsuleCheckResult&)>& step);

}  // namespace frt::host
