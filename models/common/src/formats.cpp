// SPDX-License-Identifier: Apache-2.0
// Encoding by bit arithmetic. For E4M3 (and in the same way any small float): a value in the normal
// range is rounded by adding just under half of the last kept bit, plus that bit itself (ties to
// even); the exponent is then rebased by a subtraction. A value below the normal range is added to
// a power of two whose last bit is the format's smallest step, so that the addition itself rounds.
// Both work for any IEEE source type, here float and double, which matters because quantisation
// divides in double and must not round twice.
#include <frt/error.hpp>
#include <frt/models/formats.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

namespace frt::models {
namespace {

constexpr std::array<float, 8> kE2m1 = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

constexpr std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    float value = exponent > 0 ? 1.0f + static_cast<float>(mantissa) / 8.0f
                               : static_cast<float>(mantissa) / 8.0f;
    for (int e = exponent > 0 ? exponent : 1; e < 7; ++e) value /= 2;
    for (int e = exponent; e > 7; --e) value *= 2;
    if (code == 127) value = std::numeric_limits<float>::quiet_NaN();
    table[static_cast<std::size_t>(code)] = value;
    table[static_cast<std::size_t>(code) + 128] = -value;
  }
  return table;
}
constexpr std::array<float, 256> kE4m3 = make_e4m3_table();

template <class Float>
std::uint8_t encode_e4m3(Float value) {
  using Bits = std::conditional_t<sizeof(Float) == 4, std::uint32_t, std::uint64_t>;
  constexpr int kMantissa = std::numeric_limits<Float>::digits - 1;  // 23 or 52
  constexpr int kDrop = kMantissa - 3;
  constexpr Bits kRebase = static_cast<Bits>(std::numeric_limits<Float>::max_exponent - 1 - 7) << 3;
  constexpr Bits kOne = 1;
  constexpr Float kMagic = static_cast<Float>(kOne << (kMantissa - 9));  // its last bit is 2^-9
  const Bits bits = std::bit_cast<Bits>(value);
  const auto sign = static_cast<std::uint8_t>(bits >> (sizeof(Float) * 8 - 8) & 0x80u);
  const Bits magnitude = bits & ~(kOne << (sizeof(Float) * 8 - 1));
  const Float absolute = std::bit_cast<Float>(magnitude);
  if (absolute != absolute) return static_cast<std::uint8_t>(sign | 0x7Fu);
  if (absolute >= Float(448)) return static_cast<std::uint8_t>(sign | 0x7Eu);
  Bits code;
  if (absolute < Float(0.015625)) {  // 2^-6, the smallest normal
    code = std::bit_cast<Bits>(absolute + kMagic) - std::bit_cast<Bits>(kMagic);
  } else {
    const Bits half = (kOne << (kDrop - 1)) - 1 + (magnitude >> kDrop & 1u);
    code = ((magnitude + half) >> kDrop) - kRebase;
  }
  return static_cast<std::uint8_t>(sign | static_cast<std::uint8_t>(code));
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <class T, class Predicate>
std::optional<std::size_t> find_if(const std::byte* data, std::size_t count, Predicate bad) {
  constexpr std::size_t kBlock = 4096;  // looked at without branches, then searched
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t last = std::min(count, first + kBlock);
    T found = 0;  // as wide as a value, so that a vector holds as many of them
    for (std::size_t i = first; i < last; ++i) {
      found = static_cast<T>(found | T{bad(load<T>(data + i * sizeof(T)))});
    }
    if (found == 0) continue;
    for (std::size_t i = first; i < last; ++i) {
      if (bad(load<T>(data + i * sizeof(T)))) return i;
    }
  }
  return std::nullopt;
}

std::size_t ceil_div(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

void require_size(const char* what, std::size_t found, std::size_t expected) {
  if (found == expected) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(what) + " has " + std::to_string(found) +
                                            " elements where the sizes need " +
                                            std::to_string(expected));
}

void require_block(BlockShape block) {
  if (block.rows > 0 && block.columns > 0) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT, "an FP8 block of " + std::to_string(block.rows) + " x " +
                                            std::to_string(block.columns) + " elements is empty");
}

void require_groups(std::size_t columns) {
  if (columns % kNvfp4Group == 0) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "NVFP4 needs a multiple of 16 columns, found " + std::to_string(columns));
}

}  // namespace

// ---- elements ------------------------------------------------------------------------------

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 31u;
  const std::uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t code = 0;
  if (magnitude > 0x7F800000u) {
    code = 0x7E00u | (magnitude >> 13 & 0x3FFu);
  } else if (magnitude >= 0x477FF000u) {  // 65520 and above round to infinity
    code = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: the addition rounds to steps of 2^-24
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  } else {
    code = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | code);
}

float e4m3_to_f32(std::uint8_t bits) {
  return kE4m3[bits];
}
std::uint8_t f32_to_e4m3(float value) {
  return encode_e4m3(value);
}
std::uint8_t f64_to_e4m3(double value) {
  return encode_e4m3(value);
}

float e5m2_to_f32(std::uint8_t bits) {
  return f16_to_f32(static_cast<std::uint16_t>(static_cast<unsigned>(bits) << 8));
}

float e2m1_to_f32(std::uint8_t nibble) {
  const float value = kE2m1[nibble & 7u];
  return nibble & 8u ? -value : value;
}

std::uint8_t f64_to_e2m1(double value) {
  if (std::isnan(value)) return 7;
  const double size = std::abs(value);
  // The middles between neighbours; a tie goes to the even code.
  const unsigned code = (size > 0.25) + (size >= 0.75) + (size > 1.25) + (size >= 1.75) +
                        (size > 2.5) + (size >= 3.5) + (size > 5.0);
  return static_cast<std::uint8_t>(code | (std::signbit(value) ? 8u : 0u));
}

void convert_to_f32(frt_dtype dtype, const std::byte* data, std::size_t count, float* out) {
  switch (dtype) {
    case FRT_DTYPE_F32:
      std::memcpy(out, data, count * sizeof(float));
      return;
    case FRT_DTYPE_F64:
      for (std::size_t i = 0; i < count; ++i)
        out[i] = static_cast<float>(load<double>(data + 8 * i));
      return;
    case FRT_DTYPE_F16:
      for (std::size_t i = 0; i < count; ++i)
        out[i] = f16_to_f32(load<std::uint16_t>(data + 2 * i));
      return;
    case FRT_DTYPE_BF16:
      for (std::size_t i = 0; i < count; ++i) {
        out[i] = bf16_to_f32(load<std::uint16_t>(data + 2 * i));
      }
      return;
    case FRT_DTYPE_F8_E4M3:
      for (std::size_t i = 0; i < count; ++i) out[i] = kE4m3[std::to_integer<std::size_t>(data[i])];
      return;
    case FRT_DTYPE_F8_E5M2:
      for (std::size_t i = 0; i < count; ++i) {
        out[i] = e5m2_to_f32(std::to_integer<std::uint8_t>(data[i]));
      }
      return;
    default:
      throw Error(FRT_ERR_UNSUPPORTED, std::string("values of type ") + dtype_name(dtype) +
                                           " cannot be converted to f32");
  }
}

void convert_from_f32(frt_dtype dtype, const float* values, std::size_t count, std::byte* out) {
  switch (dtype) {
    case FRT_DTYPE_F32:
      std::memcpy(out, values, count * sizeof(float));
      return;
    case FRT_DTYPE_F64:
      for (std::size_t i = 0; i < count; ++i) store(out + 8 * i, static_cast<double>(values[i]));
      return;
    case FRT_DTYPE_F16:
      for (std::size_t i = 0; i < count; ++i) store(out + 2 * i, f32_to_f16(values[i]));
      return;
    case FRT_DTYPE_BF16:
      for (std::size_t i = 0; i < count; ++i) store(out + 2 * i, f32_to_bf16(values[i]));
      return;
    case FRT_DTYPE_F8_E4M3:
      for (std::size_t i = 0; i < count; ++i) store(out + i, f32_to_e4m3(values[i]));
      return;
    default:
      throw Error(FRT_ERR_UNSUPPORTED,
                  std::string("f32 values cannot be rounded to ") + dtype_name(dtype));
  }
}

std::optional<std::size_t> first_non_finite(frt_dtype dtype, const std::byte* data,
                                            std::size_t count) {
  switch (dtype) {
    case FRT_DTYPE_F64:
      return find_if<std::uint64_t>(data, count, [](std::uint64_t bits) {
        return (bits & 0x7FF0000000000000u) == 0x7FF0000000000000u;
      });
    case FRT_DTYPE_F32:
      return find_if<std::uint32_t>(
          data, count, [](std::uint32_t bits) { return (bits & 0x7F800000u) == 0x7F800000u; });
    case FRT_DTYPE_BF16:
      return find_if<std::uint16_t>(data, count,
                                    [](std::uint16_t bits) { return (bits & 0x7F80u) == 0x7F80u; });
    case FRT_DTYPE_F16:
      return find_if<std::uint16_t>(data, count,
                                    [](std::uint16_t bits) { return (bits & 0x7C00u) == 0x7C00u; });
    case FRT_DTYPE_F8_E4M3:
      return find_if<std::uint8_t>(data, count,
                                   [](std::uint8_t bits) { return (bits & 0x7Fu) == 0x7Fu; });
    case FRT_DTYPE_F8_E5M2:
      return find_if<std::uint8_t>(data, count,
                                   [](std::uint8_t bits) { return (bits & 0x7Cu) == 0x7Cu; });
    default:
      return std::nullopt;
  }
}

// ---- FP8 weights ---------------------------------------------------------------------------

Fp8Weight quantise_fp8(std::span<const float> weight, std::size_t rows, std::size_t columns,
                       BlockShape block, frt_dtype scale_dtype) {
  require_size("the weight", weight.size(), rows * columns);
  require_block(block);
  if (scale_dtype != FRT_DTYPE_F32 && scale_dtype != FRT_DTYPE_BF16) {
    throw Error(
        FRT_ERR_INVALID_ARGUMENT,
        std::string("FP8 scales are stored as f32 or bf16, not ") + dtype_name(scale_dtype));
  }
  const std::size_t down = ceil_div(rows, block.rows), across = ceil_div(columns, block.columns);
  Fp8Weight result;
  result.codes.resize(rows * columns);
  result.scales.resize(down * across);
  for (std::size_t i = 0; i < down; ++i) {
    for (std::size_t j = 0; j < across; ++j) {
      const std::size_t last_row = std::min(rows, (i + 1) * block.rows);
      const std::size_t first = j * block.columns;
      const std::size_t last = std::min(columns, first + block.columns);
      float amax = 0;
      for (std::size_t r = i * block.rows; r < last_row; ++r) {
        for (std::size_t c = first; c < last; ++c) {
          amax = std::max(amax, std::abs(weight[r * columns + c]));
        }
      }
      float scale = amax / 448.0f;
      if (scale_dtype == FRT_DTYPE_BF16) scale = bf16_to_f32(f32_to_bf16(scale));
      if (scale == 0) scale = 1;
      result.scales[i * across + j] = scale;
      for (std::size_t r = i * block.rows; r < last_row; ++r) {
        for (std::size_t c = first; c < last; ++c) {
          const std::size_t at = r * columns + c;
          result.codes[at] = encode_e4m3(static_cast<double>(weight[at]) / scale);
        }
      }
    }
  }
  return result;
}

void dequantise_fp8(std::span<const std::uint8_t> codes, std::span<const float> scales,
                    std::size_t rows, std::size_t columns, BlockShape block, std::span<float> out) {
  require_block(block);
  const std::size_t across = ceil_div(columns, block.columns);
  require_size("the FP8 weight", codes.size(), rows * columns);
  require_size("the output", out.size(), rows * columns);
  require_size("the FP8 scales", scales.size(), ceil_div(rows, block.rows) * across);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* scale = scales.data() + r / block.rows * across;
    for (std::size_t c = 0; c < columns; ++c) {
      out[r * columns + c] = kE4m3[codes[r * columns + c]] * scale[c / block.columns];
    }
  }
}

// ---- NVFP4 weights -------------------------------------------------------------------------

Nvfp4Weight quantise_nvfp4(std::span<const float> weight, std::size_t rows, std::size_t columns,
                           Nvfp4Naming naming, float amax) {
  require_size("the weight", weight.size(), rows * columns);
  require_groups(columns);
  if (amax == 0) {
    for (const float value : weight) amax = std::max(amax, std::abs(value));
  }
  // The block scales are stored multiplied by `factor`, which brings the largest to 448.
  constexpr float kLargest = std::numeric_limits<float>::max();  // for a subnormal amax
  const float factor = amax > 0 ? std::min(448.0f * 6.0f / amax, kLargest) : 1.0f;
  Nvfp4Weight result;
  result.packed.resize(rows * columns / 2);
  result.scales.resize(rows * columns / kNvfp4Group);
  result.global_scale = naming == Nvfp4Naming::kCompressedTensors
                            ? factor
                            : static_cast<float>(1.0 / static_cast<double>(factor));
  for (std::size_t group = 0; group < result.scales.size(); ++group) {
    const float* values = weight.data() + group * kNvfp4Group;
    float peak = 0;
    for (std::size_t i = 0; i < kNvfp4Group; ++i) peak = std::max(peak, std::abs(values[i]));
    const std::uint8_t scale = encode_e4m3(std::max(peak / 6.0f * factor, 0x1p-9f));
    const double step = static_cast<double>(kE4m3[scale]) / factor;
    result.scales[group] = scale;
    for (std::size_t i = 0; i < kNvfp4Group; i += 2) {
      const unsigned low = f64_to_e2m1(values[i] / step), high = f64_to_e2m1(values[i + 1] / step);
      result.packed[(group * kNvfp4Group + i) / 2] = static_cast<std::uint8_t>(low | high << 4);
    }
  }
  return result;
}

void dequantise_nvfp4(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                      float global_scale, Nvfp4Naming naming, std::size_t rows, std::size_t columns,
                      std::span<float> out) {
  require_groups(columns);
  require_size("the packed weight", packed.size(), rows * columns / 2);
  require_size("the NVFP4 scales", scales.size(), rows * columns / kNvfp4Group);
  require_size("the output", out.size(), rows * columns);
  const bool divide = naming == Nvfp4Naming::kCompressedTensors;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const unsigned nibble = packed[i / 2] >> (i % 2 * 4) & 15u;
    const float value =
        e2m1_to_f32(static_cast<std::uint8_t>(nibble)) * kE4m3[scales[i / kNvfp4Group]];
    out[i] = divide ? value / global_scale : value * global_scale;
  }
}

}  // namespace frt::models
