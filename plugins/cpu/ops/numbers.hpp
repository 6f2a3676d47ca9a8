// SPDX-License-Identifier: Apache-2.0
// numbers.hpp - one value at a time: the stored number formats and the functions of the operators.
//
// Every conversion to fewer bits rounds to nearest even. The vector code (simd-inl.hpp) gives the
// same bits for the conversions; transcendental functions agree to a few ulp.
#pragma once

#include <frt/base.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace frt::cpu {

inline float bf16_to_float(uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t bf16_from_float(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// E4M3FN: bias 7, largest 448, 0x7F and 0xFF are NaN.
inline float e4m3_to_float(uint8_t bits) noexcept {
  const float sign = bits & 0x80u ? -1.0f : 1.0f;
  const int exponent = (bits >> 3) & 15;
  const int mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(0x7FC00000u);
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-9f;
  return sign * std::bit_cast<float>((static_cast<uint32_t>(exponent + 120) << 23) |
                                     (static_cast<uint32_t>(mantissa) << 20));
}

// Saturates to 448; NaN stays NaN.
inline uint8_t e4m3_from_float(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint8_t sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);
  if (magnitude >= 0x43E00000u) return static_cast<uint8_t>(sign | 0x7Eu);  // >= 448
  if (magnitude < 0x3C800000u) {  // below 2^-6, the smallest normal: multiples of 2^-9
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p9f;
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
  const uint32_t result = (rounded >> 20) - (120u << 3);
  return static_cast<uint8_t>(sign | (result > 0x7Eu ? 0x7Eu : result));
}

// Element `i` of an array of f32, bf16 or f8_e4m3.
inline float load_float(frt_dtype dtype, const void* data, int64_t i) noexcept {
  if (dtype == FRT_DTYPE_F32) return static_cast<const float*>(data)[i];
  if (dtype == FRT_DTYPE_BF16) return bf16_to_float(static_cast<const uint16_t*>(data)[i]);
  return e4m3_to_float(static_cast<const uint8_t*>(data)[i]);
}

inline void store_float(frt_dtype dtype, void* data, int64_t i, float value) noexcept {
  if (dtype == FRT_DTYPE_F32) {
    static_cast<float*>(data)[i] = value;
  } else if (dtype == FRT_DTYPE_BF16) {
    static_cast<uint16_t*>(data)[i] = bf16_from_float(value);
  } else {
    static_cast<uint8_t*>(data)[i] = e4m3_from_float(value);
  }
}

// FP8 activations (frt/ops/dense.h): y = e4m3(x * (1 / scale)).
inline void store_scaled(int64_t count, const float* x, float scale, void* y) noexcept {
  const float factor = 1.0f / scale;
  for (int64_t i = 0; i < count; ++i) {
    static_cast<uint8_t*>(y)[i] = e4m3_from_float(x[i] * factor);
  }
}

// What `value` becomes when it is stored as `dtype` (f32, bf16).
inline float rounded_to(frt_dtype dtype, float value) noexcept {
  return dtype == FRT_DTYPE_BF16 ? bf16_to_float(bf16_from_float(value)) : value;
}

// Bytes of one element of f32, bf16, f8_e4m3.
inline int64_t element_bytes(frt_dtype dtype) noexcept {
  return dtype == FRT_DTYPE_F32 ? 4 : dtype == FRT_DTYPE_BF16 ? 2 : 1;
}

template <class T>
T* byte_offset(T* pointer, int64_t bytes) noexcept {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + static_cast<uintptr_t>(bytes));
}

inline const void* element(frt_dtype dtype, const void* data, int64_t i) noexcept {
  return static_cast<const std::byte*>(data) + i * element_bytes(dtype);
}
inline void* element(frt_dtype dtype, void* data, int64_t i) noexcept {
  return static_cast<std::byte*>(data) + i * element_bytes(dtype);
}

inline float sigmoid(float x) noexcept {
  return 1.0f / (1.0f + std::exp(-x));
}
inline float silu(float x) noexcept {
  return x * sigmoid(x);
}
// z/2 (1 + tanh(u)) = z sigmoid(2 u)
inline float gelu_tanh(float x) noexcept {
  return x * sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
}
inline float softplus(float x) noexcept {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

}  // namespace frt::cpu
