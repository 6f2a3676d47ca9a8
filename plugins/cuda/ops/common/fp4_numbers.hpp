// SPDX-License-Identifier: Apache-2.0
// fp4_numbers.hpp - e2m1 and e4m3 in plain arithmetic, the same on the host and on the device, and
// how rows of activations are rounded to NVFP4 by them.
//
// A row has a scale r and each 16 values of it one of their own, s; x is about code * s * r.
//   r      the smallest power of two for which 2688 r is at least the row's largest magnitude
//          (2688 = 6 * 448, the largest e2m1 times the largest e4m3), and at least 2^-126
//   s      the largest magnitude of the 16 / (6 r), to the nearest e4m3, of two the even one
//   code   x / (s r) to the nearest e2m1, of two the even one; what is beyond 6 is 6. Where s is 0
//          all are 0. Zeros keep the sign of x.
// In a row with an infinity or a NaN r is NaN, so every product with it is, and s and codes are 0.
//
// A power of two makes dividing by r exact. Each value is compared with the middles between two
// codes times s, which f32 has exactly, so nothing is rounded twice.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace frt::cuda {

inline constexpr int kFp4Group = 16;  // values of one scale

// Magnitudes as bits grow with the values; infinities and NaN are the largest ones.
constexpr uint32_t magnitude_bits(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu;
}
inline constexpr uint32_t kInfinityBits = 0x7F800000u;

// r of a row whose largest magnitude has these bits.
constexpr float fp4_row_scale(uint32_t largest_bits) {
  if (largest_bits >= kInfinityBits) return std::numeric_limits<float>::quiet_NaN();
  // 2688 is 1.3125 * 2^11.
  const int exponent = static_cast<int>(largest_bits >> 23) - 11 +
                       ((largest_bits & 0x007FFFFFu) > 0x00280000u ? 1 : 0);
  return std::bit_cast<float>(static_cast<uint32_t>(exponent < 1 ? 1 : exponent) << 23);
}

// 1 / r of a power of two from 2^-126 to 2^126, exactly.
constexpr float fp4_inverse(float row_scale) {
  return std::bit_cast<float>(0x7F000000u - std::bit_cast<uint32_t>(row_scale));
}

// The code of s, for a largest magnitude of 16 values of x / r: at most 2688.
constexpr uint32_t fp4_scale_code(float largest) {
  const float scale = largest / 6.0f;
  if (scale < 0x1p-6f) {  // steps of 2^-9, which are those of f32 from 2^14 on
    return std::bit_cast<uint32_t>(scale + 0x1p14f) - std::bit_cast<uint32_t>(0x1p14f);
  }
  const auto bits = std::bit_cast<uint32_t>(scale);
  return ((bits + 0x0007FFFFu + (bits >> 20 & 1u)) >> 20) - (120u << 3);
}

// An e4m3 without a sign.
constexpr float from_ue4m3(uint32_t code) {
  if (code == 0x7Fu) return std::numeric_limits<float>::quiet_NaN();
  if (code < 8) return static_cast<float>(code) * 0x1p-9f;
  return std::bit_cast<float>((code + (120u << 3)) << 20);
}

// The middles between neighbouring codes, times s.
struct Fp4Middles {
  float at[7];
};
constexpr Fp4Middles fp4_middles(uint32_t scale_code) {
  const float scale =
      scale_code == 0 ? std::numeric_limits<float>::infinity() : from_ue4m3(scale_code);
  return {{0.25f * scale, 0.75f * scale, 1.25f * scale, 1.75f * scale, 2.5f * scale, 3.5f * scale,
           5.0f * scale}};
}

// The code of one value of x / r. In the middle the even code is taken.
constexpr uint32_t fp4_code(float value, const Fp4Middles& middles) {
  const float magnitude = std::bit_cast<float>(magnitude_bits(value));
  const uint32_t code =
      (magnitude > middles.at[0] ? 1u : 0u) + (magnitude >= middles.at[1] ? 1u : 0u) +
      (magnitude > middles.at[2] ? 1u : 0u) + (magnitude >= middles.at[3] ? 1u : 0u) +
      (magnitude > middles.at[4] ? 1u : 0u) + (magnitude >= middles.at[5] ? 1u : 0u) +
      (magnitude > middles.at[6] ? 1u : 0u);
  return code | std::bit_cast<uint32_t>(value) >> 31 << 3;
}

// Twice the e2m1 in the lowest four bits: 0, 1, 2, 3, 4, 6, 8 or 12, and the sign.
constexpr int twice_e2m1(uint32_t code) {
  const int magnitude = static_cast<int>(0xC8643210u >> (code & 7u) * 4 & 15u);
  return code & 8u ? -magnitude : magnitude;
}

}  // namespace frt::cuda
