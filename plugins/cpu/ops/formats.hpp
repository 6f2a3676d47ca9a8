// SPDX-License-Identifier: Apache-2.0
// formats.hpp - the stored number formats that conversion, filling and the general form of weights
// need: f16 and e2m1. To nearest even, like everything in numbers.hpp.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace frt::cpu {

// The values of the codes 0 to 15.
inline constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                -2.0f, -3.0f, -4.0f, -6.0f};

inline float f16_to_float(uint16_t bits) noexcept {
  const float sign = bits & 0x8000u ? -1.0f : 1.0f;
  const uint32_t rest = bits & 0x7FFFu;
  if (rest >= 0x7C00u) {  // infinity, NaN
    return std::bit_cast<float>((bits & 0x8000u) << 16 | 0x7F800000u | (rest & 0x3FFu) << 13);
  }
  if (rest < 0x400u) return sign * static_cast<float>(rest) * 0x1p-24f;
  return sign * std::bit_cast<float>((rest << 13) + (112u << 23));
}

// Overflow becomes infinity; NaN stays NaN.
inline uint16_t f16_from_float(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // >= 2^16
  if (magnitude < 0x38800000u) {  // below 2^-14, the smallest normal: multiples of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

// The code in the low four bits. Saturates to 6; NaN, which the format has not, becomes 6.
inline uint8_t e2m1_from_float(float value) noexcept {
  const auto sign = static_cast<uint8_t>(std::signbit(value) && !std::isnan(value) ? 8 : 0);
  const float magnitude = std::fabs(value);
  // Halfway points; a tie goes to the even code, so it belongs below or above in turn.
  uint8_t code = 7;
  if (magnitude <= 0.25f) {
    code = 0;
  } else if (magnitude < 0.75f) {
    code = 1;
  } else if (magnitude <= 1.25f) {
    code = 2;
  } else if (magnitude < 1.75f) {
    code = 3;
  } else if (magnitude <= 2.5f) {
    code = 4;
  } else if (magnitude < 3.5f) {
    code = 5;
  } else if (magnitude <= 5.0f) {
    code = 6;
  }
  return static_cast<uint8_t>(sign | code);
}

}  // namespace frt::cpu
