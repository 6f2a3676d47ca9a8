// SPDX-License-Identifier: Apache-2.0
// bf16_values.hpp - numbers that a bf16 has exactly.
#pragma once

#include <bit>
#include <cstdint>

namespace frt::cuda_test {

// A finite `value` to the nearest bf16, of two the even one. Not cut off by a mask alone: GCC 12.2
// at -O1 and above loses `bits & 0xFFFF0000u` where the bits are those of a float in a register.
inline float as_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
}

}  // namespace frt::cuda_test
