// SPDX-License-Identifier: Apache-2.0
// frt/models/formats.hpp - the number formats of checkpoints: BF16, F16, E4M3FN and E2M1 elements,
// FP8 weights with block, row or tensor scales, NVFP4 weights, both ways.
//
// These are the definitions the rest is checked against: loaders and make-checkpoint use them,
// tests compare kernels with them. Encoding rounds to nearest, ties to even. Quantisation divides
// in double, so that the codes are those of exact arithmetic on the given values.
//
// All functions are [any] (pure). Matrices are row-major [rows, columns] = [out, in].
// FRT_ERR_INVALID_ARGUMENT: sizes that do not fit each other.
#pragma once

#include <frt/base.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace frt::models {

// ---- elements ------------------------------------------------------------------------------

// BF16: the upper half of an F32. NaN stays a (quiet) NaN of the same sign.
inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// F16 (IEEE binary16, with subnormals). Overflow becomes infinity, NaN stays NaN.
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);

// E4M3FN: bias 7, subnormals down to 2^-9, largest 448, no infinity, 0x7F and 0xFF are NaN.
// Encoding saturates: everything above 448, infinity included, becomes 448; NaN becomes NaN.
float e4m3_to_f32(std::uint8_t bits);
std::uint8_t f32_to_e4m3(float value);
std::uint8_t f64_to_e4m3(double value);

// E5M2: an F16 with two mantissa bits: infinities and NaNs as in F16. Decoding only.
float e5m2_to_f32(std::uint8_t bits);

// E2M1 in the low four bits: bit 3 sign, magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6. Encoding saturates
// at 6; the format has no NaN, which becomes +6 as on the hardware: check before quantising.
float e2m1_to_f32(std::uint8_t nibble);
std::uint8_t f64_to_e2m1(double value);

// `count` elements of `dtype` at `data` (any alignment) to F32: F32, F64 (rounded), F16,
// BF16, F8_E4M3, F8_E5M2. FRT_ERR_UNSUPPORTED for anything else.
void convert_to_f32(frt_dtype dtype, const std::byte* data, std::size_t count, float* out);

// Rounds `count` values to `dtype` at `out`: F32, F64, F16, BF16, F8_E4M3. FRT_ERR_UNSUPPORTED for
// anything else.
void convert_from_f32(frt_dtype dtype, const float* values, std::size_t count, std::byte* out);

// Index of the first NaN or infinity (for E4M3: NaN) among `count` elements of a float type at
// `data`; nothing if all are finite. Types without such values: nothing.
std::optional<std::size_t> first_non_finite(frt_dtype dtype, const std::byte* data,
                                            std::size_t count);

// ---- FP8 weights ---------------------------------------------------------------------------

// The part of a weight that shares one scale. {128, 128}: the official FP8 checkpoints. {1,
// columns}: one scale per output row. {rows, columns}: one per tensor. Last blocks may be partial.
struct BlockShape {
  std::size_t rows = 128;
  std::size_t columns = 128;
};

struct Fp8Weight {
  std::vector<std::uint8_t> codes;  // [rows, columns], E4M3FN
  std::vector<float> scales;        // [ceil(rows/block.rows), ceil(columns/block.columns)]
};

// w = code * scale with scale = amax(block) / 448, rounded to `scale_dtype` (F32 or BF16) before
// the codes are made. A block of zeros has scale 1.
Fp8Weight quantise_fp8(std::span<const float> weight, std::size_t rows, std::size_t columns,
                       BlockShape block, frt_dtype scale_dtype);

// out[r, c] = e4m3(codes[r, c]) * scales[r / block.rows, c / block.columns], in F32.
void dequantise_fp8(std::span<const std::uint8_t> codes, std::span<const float> scales,
                    std::size_t rows, std::size_t columns, BlockShape block, std::span<float> out);

// ---- NVFP4 weights -------------------------------------------------------------------------

// How a checkpoint states the global scale of an NVFP4 weight.
enum class Nvfp4Naming {
  kCompressedTensors,  // `weight_packed`, `weight_global_scale` = 448 * 6 / amax: divide by it
  kModelOpt,           // `weight`, `weight_scale_2` = amax / (448 * 6): multiply by it
};

constexpr std::size_t kNvfp4Group = 16;  // consecutive inputs that share one E4M3 scale

struct Nvfp4Weight {
  std::vector<std::uint8_t> packed;  // [rows, columns / 2], the even column in the low nibble
  std::vector<std::uint8_t> scales;  // [rows, columns / 16], E4M3FN
  float global_scale = 1;            // in the form of the naming asked for
};

// Quantises with the given `amax` (0: that of `weight`; gate and up share theirs in modelopt
// files). `columns` must be a multiple of 16.
Nvfp4Weight quantise_nvfp4(std::span<const float> weight, std::size_t rows, std::size_t columns,
                           Nvfp4Naming naming, float amax = 0);

// out = e2m1 * f32(scale), then / or * global_scale by the naming, in F32 and in this order.
void dequantise_nvfp4(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                      float global_scale, Nvfp4Naming naming, std::size_t rows, std::size_t columns,
                      std::span<float> out);

}  // namespace frt::models
