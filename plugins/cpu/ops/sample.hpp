// SPDX-License-Identifier: Apache-2.0
// sample.hpp - what one block of the vocabulary contributes to a draw (sample.cpp).
#pragma once

#include <cstdint>

namespace frt::cpu {

// Tokens with a probability below exp(-kReach) of the largest are not candidates at first.
inline constexpr float kReach = 10.0f;

// The largest logit of a block and the first token that has it.
struct BlockTop {
  float value;
  int64_t place;
};

struct BlockSums {
  float plain;         // of exp(logit - largest)
  float tempered;      // of exp((logit - largest) / temperature)
  int64_t candidates;  // keys written
};

}  // namespace frt::cpu
