// SPDX-License-Identifier: Apache-2.0
// The references' own arithmetic: number formats, and bounds that a sound product keeps and one
// that drops an input does not.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "expected.hpp"

using namespace frt::conformance;

namespace {

float as_bf16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
  return std::bit_cast<float>(bits);
}

// Inputs of a product of the kind that cases have: normal, rounded to bf16.
struct Inputs {
  std::size_t rows, outputs, count;
  std::vector<float> x, weight;

  Inputs(std::size_t rows_, std::size_t outputs_, std::size_t count_, std::uint64_t seed)
      : rows(rows_), outputs(outputs_), count(count_) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    const float scale = 1 / std::sqrt(static_cast<float>(count));
    for (std::size_t i = 0; i < rows * count; ++i) x.push_back(as_bf16(normal(random)));
    for (std::size_t i = 0; i < outputs * count; ++i) {
      weight.push_back(as_bf16(scale * normal(random)));
    }
  }

  // A kernel: f32 sums in one order, one rounding. `dropped`: an input that it forgets.
  std::vector<std::byte> multiply(frt_dtype y_dtype, std::size_t dropped,
                                  bool round_weights) const {
    std::vector<std::byte> y;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t o = 0; o < outputs; ++o) {
        float sum = 0;
        for (std::size_t i = 0; i < count; ++i) {
          float w = weight[o * count + i];
          if (round_weights) w = as_bf16(w * 1.01f);
          if (i != dropped) sum += x[r * count + i] * w;
        }
        const std::uint32_t code = encode(y_dtype, static_cast<double>(sum));
        const auto* bytes = reinterpret_cast<const std::byte*>(&code);
        y.insert(y.end(), bytes, bytes + (y_dtype == FRT_DTYPE_F32 ? 4 : 2));
      }
    }
    return y;
  }

  // The same inputs with x in e4m3, each row with a scale of its own; `scale_error`: a factor that
  // the scale is wrong by.
  Inputs in_fp8(float scale_error) const {
    Inputs made = *this;
    for (std::size_t r = 0; r < rows; ++r) {
      const std::span<float> row = std::span(made.x).subspan(r * count, count);
      float largest = 0;
      for (const float value : row) largest = std::max(largest, std::fabs(value));
      for (float& value : row) {
        const double code = rounded(FRT_DTYPE_F8_E4M3, static_cast<double>(value / largest) * 448);
        value = static_cast<float>(code) * (largest / 448) * scale_error;
      }
    }
    return made;
  }

  // The same with x in NVFP4, each row with a power of two as its own scale.
  Inputs in_fp4(float scale_error) const {
    constexpr std::size_t kGroup = 16;
    Inputs made = *this;
    const auto largest_of = [](std::span<const float> values) {
      float largest = 0;
      for (const float value : values) largest = std::max(largest, std::fabs(value));
      return static_cast<double>(largest);
    };
    for (std::size_t r = 0; r < rows; ++r) {
      const std::span<float> row = std::span(made.x).subspan(r * count, count);
      const double unit = std::exp2(std::ceil(std::log2(largest_of(row) / 2688)));
      for (std::size_t first = 0; first < count; first += kGroup) {
        const std::span<float> group = row.subspan(first, kGroup);
        const double scale = unit * rounded(FRT_DTYPE_F8_E4M3, largest_of(group) / unit / 6);
        for (float& value : group) {
          const double code = rounded(FRT_DTYPE_F4_E2M1, static_cast<double>(value) / scale);
          value = static_cast<float>(code * scale) * scale_error;
        }
      }
    }
    return made;
  }

  std::string judge(frt_dtype y_dtype, const std::vector<std::byte>& y, bool rounded,
                    Rounding x_rounding = Rounding::kNone) const {
    Expected expected(y_dtype, static_cast<std::int64_t>(rows * outputs));
    std::vector<double> a(count), b(count);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t o = 0; o < outputs; ++o) {
        for (std::size_t i = 0; i < count; ++i) {
          a[i] = static_cast<double>(x[r * count + i]);
          b[i] = static_cast<double>(weight[o * count + i]) * (rounded ? 1.01f : 1.0f);
        }
        const Product one = rounded_product(product(a, b, rounded, x_rounding), 0, y_dtype);
        expected.value(static_cast<std::int64_t>(r * outputs + o), one.sum, one.bound,
                       one.deviation);
      }
    }
    return expected.judge("y", std::vector<std::byte>(y.size()), y);
  }
};

}  // namespace

TEST_CASE("every code of the small formats is the nearest to its own value") {
  for (const frt_dtype dtype :
       {FRT_DTYPE_BF16, FRT_DTYPE_F16, FRT_DTYPE_F8_E4M3, FRT_DTYPE_F4_E2M1}) {
    const std::uint32_t count = 1u << frt::dtype_bits(dtype);
    std::uint32_t wrong = 0;
    for (std::uint32_t code = 0; code < count; ++code) {
      const auto bits = static_cast<std::uint16_t>(code);
      std::byte data[2];
      std::memcpy(data, &bits, sizeof(bits));
      const double value = decode(dtype, data, 0);
      if (std::isnan(value)) {
        const std::uint32_t nan = encode(dtype, value);
        std::memcpy(data, &nan, sizeof(data));
        wrong += std::isnan(decode(dtype, data, 0)) ? 0 : 1;
      } else {
        wrong += encode(dtype, value) == code ? 0 : 1;
      }
    }
    CAPTURE(frt::dtype_name(dtype));
    CHECK(wrong == 0);
  }
}

TEST_CASE("values between two codes go to the nearer, in the middle to the even one") {
  CHECK(rounded(FRT_DTYPE_BF16, 1 + 0x1p-8) == 1);
  CHECK(rounded(FRT_DTYPE_BF16, 1 + 0x3p-8) == 1 + 0x1p-6);
  CHECK(rounded(FRT_DTYPE_BF16, 1 + 0x1.01p-8) == 1 + 0x1p-7);
  CHECK(rounded(FRT_DTYPE_F8_E4M3, 17) == 16);
  CHECK(rounded(FRT_DTYPE_F8_E4M3, 19) == 20);
  CHECK(rounded(FRT_DTYPE_F8_E4M3, 1e9) == 448);
  CHECK(rounded(FRT_DTYPE_F8_E4M3, -1e9) == -448);
  CHECK(rounded(FRT_DTYPE_F8_E4M3, 0x1p-10) == 0);
  CHECK(rounded(FRT_DTYPE_F8_E4M3, 0x1.8p-9) == 0x1p-8);
  CHECK(rounded(FRT_DTYPE_F4_E2M1, 5) == 4);
  CHECK(rounded(FRT_DTYPE_F4_E2M1, 2.5) == 2);
  CHECK(rounded(FRT_DTYPE_F4_E2M1, 100) == 6);
  CHECK(std::isinf(rounded(FRT_DTYPE_F16, 65520)));
  CHECK(rounded(FRT_DTYPE_F16, 65519) == 65504);
  CHECK(half_step(FRT_DTYPE_BF16, 1) == 0x1p-8);
  CHECK(half_step(FRT_DTYPE_BF16, 1.99) == 0x1p-8);
  CHECK(half_step(FRT_DTYPE_F32, 2) == 0x1p-23);
}

TEST_CASE("a sound product is within its bound, one that drops an input is not") {
  constexpr std::size_t kNone = ~std::size_t{0};
  for (const std::size_t count : {48u, 1280u, 17'408u}) {
    const Inputs inputs(8, 40, count, count);
    for (const frt_dtype y_dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      CAPTURE(count);
      CAPTURE(frt::dtype_name(y_dtype));
      CHECK(inputs.judge(y_dtype, inputs.multiply(y_dtype, kNone, false), false) == "");
      for (const std::size_t dropped : {std::size_t{0}, count / 2, count - 1}) {
        CAPTURE(dropped);
        CHECK(inputs.judge(y_dtype, inputs.multiply(y_dtype, dropped, false), false) != "");
      }
    }
  }
}

TEST_CASE("so it is where packed weights may be rounded to bf16") {
  constexpr std::size_t kNone = ~std::size_t{0};
  for (const std::size_t count : {48u, 1280u, 17'408u}) {
    const Inputs inputs(8, 40, count, count);
    CAPTURE(count);
    CHECK(inputs.judge(FRT_DTYPE_BF16, inputs.multiply(FRT_DTYPE_BF16, kNone, true), true) == "");
    CHECK(inputs.judge(FRT_DTYPE_BF16, inputs.multiply(FRT_DTYPE_BF16, count - 1, true), true) !=
          "");
  }
}

TEST_CASE("so it is where x may be rounded to FP8, and nowhere else") {
  constexpr std::size_t kNone = ~std::size_t{0};
  for (const std::size_t count : {48u, 1280u, 8192u}) {
    const Inputs inputs(8, 40, count, count);
    CAPTURE(count);
    for (const frt_dtype y_dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      const auto sound = inputs.in_fp8(1).multiply(y_dtype, kNone, false);
      CHECK(inputs.judge(y_dtype, sound, false, Rounding::kFp8) == "");
      CHECK(inputs.judge(y_dtype, sound, false) != "");
      for (const float scale_error : {0.5f, 0.75f, 1.25f, 2.0f}) {
        CAPTURE(scale_error);
        const auto wrong = inputs.in_fp8(scale_error).multiply(y_dtype, kNone, false);
        CHECK(inputs.judge(y_dtype, wrong, false, Rounding::kFp8) != "");
      }
    }
  }
}

TEST_CASE(
    "so it is where x may be rounded to FP4, of which all values together tell more than one") {
  constexpr std::size_t kNone = ~std::size_t{0};
  for (const std::size_t count : {64u, 1280u, 8192u}) {
    const Inputs inputs(8, 40, count, count);
    CAPTURE(count);
    for (const frt_dtype y_dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      const auto sound = inputs.in_fp4(1).multiply(y_dtype, kNone, false);
      CHECK(inputs.judge(y_dtype, sound, false, Rounding::kFp4) == "");
      CHECK(inputs.judge(y_dtype, sound, false, Rounding::kFp8) != "");
      CHECK(inputs.judge(y_dtype, sound, false) != "");
      for (const float scale_error : {0.5f, 0.8f, 1.2f, 2.0f}) {
        CAPTURE(scale_error);
        const auto wrong = inputs.in_fp4(scale_error).multiply(y_dtype, kNone, false);
        CHECK(inputs.judge(y_dtype, wrong, false, Rounding::kFp4) != "");
      }
    }
  }
}

TEST_CASE("what may not be written, is no number or is infinite is noticed") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const auto verdict = [](const Expected& expected, std::vector<float> before,
                          std::vector<float> after) {
    return expected.judge("y", std::as_bytes(std::span(before)), std::as_bytes(std::span(after)));
  };
  Expected expected(FRT_DTYPE_F32, 3);
  expected.value(0, 1.0, 0.5);
  expected.value(1, static_cast<double>(infinity));
  CHECK(verdict(expected, {9, 9, 9}, {1.4f, infinity, 9}) == "");
  CHECK(verdict(expected, {9, 9, 9}, {1.6f, infinity, 9}) != "");
  CHECK(verdict(expected, {9, 9, 9}, {nan, infinity, 9}) != "");
  CHECK(verdict(expected, {9, 9, 9}, {1, 3e38f, 9}) != "");
  CHECK(verdict(expected, {9, 9, 9}, {1, infinity, 8}) != "");  // was left alone by the header
  expected.value(0, static_cast<double>(nan));
  CHECK(verdict(expected, {9, 9, 9}, {nan, infinity, 9}) == "");
  CHECK(verdict(expected, {9, 9, 9}, {1, infinity, 9}) != "");
  expected.code(0, -0.0);
  CHECK(verdict(expected, {9, 9, 9}, {-0.0f, infinity, 9}) == "");
  CHECK(verdict(expected, {9, 9, 9}, {0.0f, infinity, 9}) != "");
  expected.ignore(0, 3);
  CHECK(verdict(expected, {9, 9, 9}, {nan, nan, nan}) == "");
}
