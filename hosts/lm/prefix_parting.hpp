// SPDX-License-Identifier: Apache-2.0
// prefix_parting.hpp - why no longer part of a prompt was reused: where it parts from the nearest
// thing known. What the driver notes at the beginning of a request costs it little; texts are
// compared and decoded by who asks for them, on its own thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lm/capsules/content.hpp"
#include "lm/text_model.hpp"

namespace frt::host {

struct PrefixDecision;

// What the driver knew when the request began.
struct PrefixParting {
  uint64_t common = 0;          // tokens that the slot and the prompt began with alike
  uint64_t held = 0;            // tokens of the slot
  uint64_t window_begin = 0;    // where in the slot `window` begins
  std::vector<int32_t> window;  // tokens of the slot around `common`
  std::vector<std::shared_ptr<const CapsuleContent>> capsules;  // of the same owner, in memory
};

// Of a slot that holds `held`. Null: nothing is known that the prompt could part from.  [driver]
std::shared_ptr<const PrefixParting> prefix_parting(
    std::span<const int32_t> prompt, std::span<const int32_t> held,
    std::vector<std::shared_ptr<const CapsuleContent>> capsules);

// `decision.reason`, and where the prompt parts from what was known: `...; first difference at
// token 8190: before "...", now "..."`. `prompt` is the one of the decision.  [any]
std::string prefix_reason(const PrefixDecision& decision, std::span<const int32_t> prompt,
                          const TextModel& model);

}  // namespace frt::host
