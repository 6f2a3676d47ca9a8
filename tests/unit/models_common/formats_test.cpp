// SPDX-License-Identifier: Apache-2.0
// Each format beside a naive one: decoding from the definition, encoding by searching the nearest
// of all values. Whole weights are compared with what numpy made of the same numbers.
#include <frt/models/formats.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// sign, exponent with bias, mantissa; an exponent field of 0 is subnormal.
double by_definition(unsigned bits, int exponent_bits, int mantissa_bits, int bias) {
  const unsigned mantissa = bits & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  const double size =
      exponent > 0 ? std::ldexp(1 + fraction, exponent - bias) : std::ldexp(fraction, 1 - bias);
  return bits >> (exponent_bits + mantissa_bits) & 1u ? -size : size;
}

// The code of the value nearest to `x` among 0 .. `last` (ascending, positive), ties to even codes.
unsigned nearest(double x, unsigned last, double (*value)(unsigned)) {
  unsigned best = 0;
  for (unsigned code = 1; code <= last; ++code) {
    const double now = std::abs(x - value(code)), before = std::abs(x - value(best));
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best;
}

double e4m3_value(unsigned code) {
  return by_definition(code, 4, 3, 7);
}
double e2m1_value(unsigned code) {
  return by_definition(code, 2, 1, 1);
}

// Values of all magnitudes around a format, with many exact ties.
std::vector<double> probes(double largest) {
  std::vector<double> out = {0.0, -0.0, 0x1p-1074, 1e-30};
  std::mt19937_64 random(7);
  for (double size = largest * 4; size > largest * 0x1p-24; size /= 2) {
    for (int i = 0; i < 64; ++i) {
      out.push_back(size * (1 + i / 64.0));
      out.push_back(-size * std::uniform_real_distribution(0.5, 1.0)(random));
    }
  }
  return out;
}

std::vector<float> random_weight(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> out(count);
  for (float& value : out) value = bf16_to_f32(f32_to_bf16(normal(random)));
  return out;
}

}  // namespace

TEST_CASE("bf16 is the upper half of f32, rounded to nearest even") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(bits));
    CHECK(std::bit_cast<std::uint32_t>(value) == bits << 16);
    if (!std::isnan(value)) CHECK(f32_to_bf16(value) == bits);
  }
  CHECK(f32_to_bf16(std::bit_cast<float>(0x3F808000u)) == 0x3F80);  // tie, down to even
  CHECK(f32_to_bf16(std::bit_cast<float>(0x3F818000u)) == 0x3F82);  // tie, up to even
  CHECK(f32_to_bf16(std::bit_cast<float>(0x3F808001u)) == 0x3F81);
  CHECK(f32_to_bf16(std::numeric_limits<float>::max()) == 0x7F80);
  CHECK(f32_to_bf16(-kInfinity) == 0xFF80);
  CHECK(std::isnan(bf16_to_f32(f32_to_bf16(kNan))));
  // A NaN whose payload lies in the dropped half stays a NaN of its sign.
  CHECK(f32_to_bf16(std::bit_cast<float>(0xFF800001u)) == 0xFFC0);
}

TEST_CASE("f16 decodes by its definition and encodes to the nearest") {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    const unsigned size = bits & 0x7FFFu;
    if (size > 0x7C00u) {
      CHECK(std::isnan(value));
      CHECK(std::isnan(f16_to_f32(f32_to_f16(value))));
      continue;
    }
    if (size == 0x7C00u) {
      CHECK(value == (bits & 0x8000u ? -kInfinity : kInfinity));
    } else {
      CHECK(static_cast<double>(value) == by_definition(bits, 5, 10, 15));
    }
    CHECK(f32_to_f16(value) == bits);
    if (size >= 0x7BFFu) continue;
    // Just below, at and just above the middle to the next value.
    const float next = f16_to_f32(static_cast<std::uint16_t>(bits + 1));
    const float middle = (value + next) / 2;
    const auto even = static_cast<std::uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    CHECK(f32_to_f16(middle) == even);
    CHECK(f32_to_f16(std::nextafter(middle, value)) == bits);
    CHECK(f32_to_f16(std::nextafter(middle, next)) == bits + 1);
  }
  CHECK(f32_to_f16(65519.0f) == 0x7BFF);
  CHECK(f32_to_f16(65520.0f) == 0x7C00);
  CHECK(f32_to_f16(-1e30f) == 0xFC00);
  CHECK(f32_to_f16(0x1p-25f) == 0);
  CHECK(f32_to_f16(std::nextafter(0x1p-25f, 1.0f)) == 1);
}

TEST_CASE("e4m3 decodes by its definition and has two NaNs") {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const float value = e4m3_to_f32(static_cast<std::uint8_t>(bits));
    if ((bits & 0x7Fu) == 0x7Fu) {
      CHECK(std::isnan(value));
    } else {
      CHECK(static_cast<double>(value) == by_definition(bits, 4, 3, 7));
      CHECK(f32_to_e4m3(value) == bits);
      CHECK(f64_to_e4m3(value) == bits);
    }
  }
  CHECK(e4m3_to_f32(0x7E) == 448.0f);
}

TEST_CASE("e4m3 encodes to the nearest value, ties to even, and saturates") {
  for (const double x : probes(448)) {
    const unsigned sign = std::signbit(x) ? 0x80u : 0u;
    const unsigned expected = sign | nearest(std::abs(x), 0x7E, e4m3_value);
    INFO(x);
    CHECK(f64_to_e4m3(x) == expected);
    const auto single = static_cast<float>(x);
    CHECK(f32_to_e4m3(single) ==
          (sign | nearest(std::abs(static_cast<double>(single)), 0x7E, e4m3_value)));
  }
  for (unsigned code = 0; code < 0x7E; ++code) {
    const double middle = (e4m3_value(code) + e4m3_value(code + 1)) / 2;
    CHECK(f64_to_e4m3(middle) == code + code % 2);
    CHECK(f32_to_e4m3(static_cast<float>(middle)) == code + code % 2);
    CHECK(f64_to_e4m3(std::nextafter(middle, 0.0)) == code);
    CHECK(f64_to_e4m3(std::nextafter(middle, 1000.0)) == code + 1);
  }
  CHECK(f32_to_e4m3(kInfinity) == 0x7E);
  CHECK(f32_to_e4m3(-kInfinity) == 0xFE);
  CHECK(f32_to_e4m3(kNan) == 0x7F);
  CHECK(f32_to_e4m3(-kNan) == 0xFF);
  CHECK(f32_to_e4m3(-0.0f) == 0x80);
}

TEST_CASE("e5m2 decodes by its definition") {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const float value = e5m2_to_f32(static_cast<std::uint8_t>(bits));
    const unsigned size = bits & 0x7Fu;
    if (size > 0x7Cu) {
      CHECK(std::isnan(value));
    } else if (size == 0x7Cu) {
      CHECK(std::isinf(value));
    } else {
      CHECK(static_cast<double>(value) == by_definition(bits, 5, 2, 15));
    }
  }
}

TEST_CASE("e2m1 decodes by its definition, encodes to the nearest, ties to even, and saturates") {
  for (unsigned bits = 0; bits < 16; ++bits) {
    const float value = e2m1_to_f32(static_cast<std::uint8_t>(bits));
    CHECK(static_cast<double>(value) == by_definition(bits, 2, 1, 1));
    CHECK(f64_to_e2m1(value) == bits);
  }
  for (const double x : probes(6)) {
    INFO(x);
    CHECK(f64_to_e2m1(x) == ((std::signbit(x) ? 8u : 0u) | nearest(std::abs(x), 7, e2m1_value)));
  }
  const std::pair<double, double> ties[] = {{.25, 0}, {.75, 1}, {1.25, 1}, {1.75, 2},
                                            {2.5, 2}, {3.5, 4}, {5, 4}};
  for (const auto& [x, rounded] : ties) {
    CHECK(static_cast<double>(e2m1_to_f32(f64_to_e2m1(x))) == rounded);
    CHECK(static_cast<double>(e2m1_to_f32(f64_to_e2m1(-x))) == -rounded);
  }
  CHECK(f64_to_e2m1(std::numeric_limits<double>::infinity()) == 7);
  CHECK(f64_to_e2m1(std::numeric_limits<double>::quiet_NaN()) == 7);
}

TEST_CASE("conversions to and from f32 take any alignment and agree with the element functions") {
  const std::vector<float> values = {0, 1.5f, -2.25f, 3.0e-5f, 448, -0.0078125f, 65504};
  for (const frt_dtype dtype :
       {FRT_DTYPE_F32, FRT_DTYPE_F64, FRT_DTYPE_F16, FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3}) {
    const std::size_t bytes = frt::dtype_bits(dtype) / 8;
    std::vector<std::byte> stored(values.size() * bytes + 1);
    convert_from_f32(dtype, values.data(), values.size(), stored.data() + 1);
    std::vector<float> back(values.size());
    convert_to_f32(dtype, stored.data() + 1, values.size(), back.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      float expected = values[i];
      if (dtype == FRT_DTYPE_F16) expected = f16_to_f32(f32_to_f16(expected));
      if (dtype == FRT_DTYPE_BF16) expected = bf16_to_f32(f32_to_bf16(expected));
      if (dtype == FRT_DTYPE_F8_E4M3) expected = e4m3_to_f32(f32_to_e4m3(expected));
      CHECK(back[i] == expected);
    }
  }
  const std::byte e5m2{0x3C};
  float one = 0;
  convert_to_f32(FRT_DTYPE_F8_E5M2, &e5m2, 1, &one);
  CHECK(one == 1.0f);
  std::byte byte{};
  CHECK_FAILS(convert_to_f32(FRT_DTYPE_I32, &byte, 0, &one), "UNSUPPORTED", "i32");
  CHECK_FAILS(convert_from_f32(FRT_DTYPE_U8, &one, 0, &byte), "UNSUPPORTED", "u8");
}

TEST_CASE("the first NaN or infinity is found in every float type") {
  std::vector<float> values(10000, 1.0f);
  for (const std::size_t bad : {std::size_t{0}, std::size_t{5000}, std::size_t{9999}}) {
    for (const float poison : {kNan, kInfinity, -kInfinity}) {
      std::vector<float> poisoned = values;
      poisoned[bad] = poison;
      for (const frt_dtype dtype :
           {FRT_DTYPE_F32, FRT_DTYPE_F64, FRT_DTYPE_F16, FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3}) {
        if (dtype == FRT_DTYPE_F8_E4M3 && !std::isnan(poison)) continue;  // has no infinity
        std::vector<std::byte> stored(values.size() * 8);
        convert_from_f32(dtype, values.data(), values.size(), stored.data());
        CHECK(first_non_finite(dtype, stored.data(), values.size()) == std::nullopt);
        convert_from_f32(dtype, poisoned.data(), values.size(), stored.data());
        CHECK(first_non_finite(dtype, stored.data(), values.size()) == bad);
      }
    }
  }
  const std::byte e5m2[] = {std::byte{0x7B}, std::byte{0xFC}, std::byte{0x7D}};
  CHECK(first_non_finite(FRT_DTYPE_F8_E5M2, e5m2, 3) == std::size_t{1});
  CHECK(first_non_finite(FRT_DTYPE_U8, e5m2, 3) == std::nullopt);
}

TEST_CASE("fp8 blocks of every shape hold the weight within half a step of e4m3") {
  const std::size_t rows = 37, columns = 150;
  const std::vector<float> weight = random_weight(rows * columns, 1);
  for (const BlockShape block : {BlockShape{128, 128}, BlockShape{16, 16}, BlockShape{1, columns},
                                 BlockShape{rows, columns}, BlockShape{5, 7}}) {
    for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      const Fp8Weight packed = quantise_fp8(weight, rows, columns, block, dtype);
      const std::size_t across = (columns + block.columns - 1) / block.columns;
      REQUIRE(packed.scales.size() == (rows + block.rows - 1) / block.rows * across);
      std::vector<float> back(weight.size());
      dequantise_fp8(packed.codes, packed.scales, rows, columns, block, back);
      for (std::size_t i = 0; i < weight.size(); ++i) {
        const std::size_t r = i / columns, c = i % columns;
        const float scale = packed.scales[r / block.rows * across + c / block.columns];
        CHECK(back[i] == e4m3_to_f32(packed.codes[i]) * scale);
        // Half of the last of 3 mantissa bits, or half of the smallest step.
        CHECK(std::abs(back[i] - weight[i]) <=
              std::max(std::abs(weight[i]) * 0.0635f, scale * 0x1p-10f * 1.01f));
        if (dtype == FRT_DTYPE_BF16) CHECK(bf16_to_f32(f32_to_bf16(scale)) == scale);
      }
    }
  }
}

TEST_CASE("a block of zeros has a usable scale") {
  const std::vector<float> zeros(256, 0.0f);
  const Fp8Weight fp8 = quantise_fp8(zeros, 16, 16, {8, 8}, FRT_DTYPE_F32);
  CHECK(fp8.scales == std::vector<float>(4, 1.0f));
  CHECK(fp8.codes == std::vector<std::uint8_t>(256, 0));
  for (const Nvfp4Naming naming : {Nvfp4Naming::kCompressedTensors, Nvfp4Naming::kModelOpt}) {
    const Nvfp4Weight fp4 = quantise_nvfp4(zeros, 16, 16, naming);
    CHECK(fp4.global_scale == 1.0f);
    std::vector<float> back(256, 1.0f);
    dequantise_nvfp4(fp4.packed, fp4.scales, fp4.global_scale, naming, 16, 16, back);
    CHECK(back == zeros);
  }
}

TEST_CASE("nvfp4 holds the weight within half a step of its group in both namings") {
  const std::size_t rows = 24, columns = 96;
  const std::vector<float> weight = random_weight(rows * columns, 2);
  for (const Nvfp4Naming naming : {Nvfp4Naming::kCompressedTensors, Nvfp4Naming::kModelOpt}) {
    const Nvfp4Weight packed = quantise_nvfp4(weight, rows, columns, naming);
    std::vector<float> back(weight.size());
    dequantise_nvfp4(packed.packed, packed.scales, packed.global_scale, naming, rows, columns,
                     back);
    for (std::size_t group = 0; group < packed.scales.size(); ++group) {
      const auto first = weight.begin() + static_cast<std::ptrdiff_t>(group * 16);
      float peak = 0;
      for (auto at = first; at != first + 16; ++at) peak = std::max(peak, std::abs(*at));
      for (std::size_t i = group * 16; i < group * 16 + 16; ++i) {
        // Steps are at most a third of the peak; the group's scale is itself rounded to 3 bits.
        CHECK(std::abs(back[i] - weight[i]) <= peak / 6 * 1.07f + 1e-6f);
      }
    }
    // The low nibble is the even column.
    const float factor =
        naming == Nvfp4Naming::kModelOpt ? packed.global_scale : 1 / packed.global_scale;
    CHECK(back[0] == doctest::Approx(e2m1_to_f32(packed.packed[0] & 15u) *
                                     e4m3_to_f32(packed.scales[0]) * factor));
    CHECK(back[1] == doctest::Approx(e2m1_to_f32(packed.packed[0] >> 4) *
                                     e4m3_to_f32(packed.scales[0]) * factor));
  }
}

TEST_CASE("the two nvfp4 namings differ in the global scale only, and share a given amax") {
  const std::vector<float> weight = random_weight(64 * 32, 3);
  const Nvfp4Weight divide = quantise_nvfp4(weight, 64, 32, Nvfp4Naming::kCompressedTensors, 0.5f);
  const Nvfp4Weight multiply = quantise_nvfp4(weight, 64, 32, Nvfp4Naming::kModelOpt, 0.5f);
  CHECK(divide.packed == multiply.packed);
  CHECK(divide.scales == multiply.scales);
  CHECK(divide.global_scale == 448 * 6 / 0.5f);
  CHECK(multiply.global_scale == doctest::Approx(0.5 / (448 * 6)));
}

TEST_CASE("sizes that do not fit each other are refused") {
  const std::vector<float> weight(64);
  std::vector<float> out(64);
  const std::vector<std::uint8_t> bytes(64);
  CHECK_FAILS(quantise_fp8(weight, 8, 9, {8, 8}, FRT_DTYPE_F32), "INVALID_ARGUMENT", "64", "72");
  CHECK_FAILS(quantise_fp8(weight, 8, 8, {0, 8}, FRT_DTYPE_F32), "INVALID_ARGUMENT", "0 x 8");
  CHECK_FAILS(quantise_fp8(weight, 8, 8, {8, 8}, FRT_DTYPE_F16), "INVALID_ARGUMENT", "f16");
  CHECK_FAILS(dequantise_fp8(bytes, std::vector<float>(3), 8, 8, {4, 4}, out), "INVALID_ARGUMENT",
              "scales", "3", "4");
  CHECK_FAILS(dequantise_fp8(bytes, std::vector<float>(1), 8, 8, {8, 0}, out), "INVALID_ARGUMENT");
  CHECK_FAILS(quantise_nvfp4(weight, 8, 8, Nvfp4Naming::kModelOpt), "INVALID_ARGUMENT",
              "multiple of 16", "8");
  CHECK_FAILS(dequantise_nvfp4(bytes, bytes, 1, Nvfp4Naming::kModelOpt, 4, 16, out),
              "INVALID_ARGUMENT", "packed", "64", "32");
}
