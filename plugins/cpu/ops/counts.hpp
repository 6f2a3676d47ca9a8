// SPDX-License-Identifier: Apache-2.0
// counts.hpp - what a slot remembers of one token for the penalties (frt.count_tokens/1).
#pragma once

#include <cstdint>

namespace frt::cpu {

inline constexpr uint32_t kInPrompt = 0x80000000u;  // of a count; the other bits: times generated

// One more, but never beyond 31 bits.
inline void count_generated(uint32_t& count) noexcept {
  if ((count & ~kInPrompt) != ~kInPrompt) ++count;
}

}  // namespace frt::cpu
