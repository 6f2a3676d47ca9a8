// SPDX-License-Identifier: Apache-2.0
// frt.silu_mul/1, frt.sigmoid_mul/1, frt.add/1, frt.convert/1 and frt.fill_uniform/1 beside their
// definitions in double.
#include <doctest/doctest.h>
#include <frt/ops/elementwise.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "packed_weight.hpp"

using namespace frt::cpu_test;

namespace {

constexpr const char* kBinaries[] = {FRT_OP_SILU_MUL, FRT_OP_SIGMOID_MUL, FRT_OP_ADD};

double sigmoid_of(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double binary_of(const std::string& name, double a, double b) {
  if (name == FRT_OP_SILU_MUL) return a * sigmoid_of(a) * b;
  if (name == FRT_OP_SIGMOID_MUL) return a * sigmoid_of(b);
  return a + b;
}

// The code among all codes of a format whose value is nearest to `value`; even codes win ties.
// `decode(code)`; codes [0, count) are the positive ones in rising order.
template <class Decode>
uint32_t nearest_code(double value, uint32_t count, Decode&& decode) {
  uint32_t best = 0;
  for (uint32_t code = 0; code < count; ++code) {
    const double error = std::fabs(decode(code) - std::fabs(value));
    const double best_error = std::fabs(decode(best) - std::fabs(value));
    if (error < best_error || (error == best_error && code % 2 == 0)) best = code;
  }
  return best;
}

}  // namespace

TEST_CASE("binary operators are right for all types, widths, strides and row counts") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    for (const char* name : kBinaries) {
      for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
        for (const int32_t width : {1, 3, 16, 37, 260, 20000}) {
          CAPTURE(name);
          CAPTURE(width);
          const int32_t rows = 5;
          int32_t row_count = 4;
          frt_binary_args args{};
          args.dtype = dtype;
          args.rows = rows;
          args.width = width;
          args.row_count = &row_count;
          args.a_stride = width + 1;
          args.b_stride = width;
          args.y_stride = width + 3;
          const Tensor a =
              random_tensor(dtype, static_cast<std::size_t>(rows * args.a_stride), 1, 6.0f);
          const Tensor b =
              random_tensor(dtype, static_cast<std::size_t>(rows * args.b_stride), 2, 6.0f);
          Tensor y(dtype, static_cast<std::size_t>(rows * args.y_stride), 99.0f);
          args.a = a.data();
          args.b = b.data();
          args.y = y.data();
          device.run(name, args);
          int wrong = 0;
          for (int32_t r = 0; r < 4; ++r) {
            for (int32_t c = 0; c < args.y_stride; ++c) {
              const double got = y[static_cast<std::size_t>(r * args.y_stride + c)];
              if (c >= width) {
                wrong += got != 99.0;
                continue;
              }
              const double expected =
                  binary_of(name, a[static_cast<std::size_t>(r * args.a_stride + c)],
                            b[static_cast<std::size_t>(r * args.b_stride + c)]);
              const double relative = dtype == FRT_DTYPE_F32 ? 1e-6 : 1.0 / 255;
              wrong += std::fabs(got - expected) > relative * std::fabs(expected) + 1e-6;
            }
          }
          CHECK(wrong == 0);
          // In place, and recorded.
          Tensor in_place = a;
          args.a = args.y = in_place.data();
          args.y_stride = args.a_stride;
          device.run_captured(name, args);
          bool same = true;
          for (int32_t r = 0; r < 4; ++r) {
            for (int32_t c = 0; c < width; ++c) {
              same &= in_place[static_cast<std::size_t>(r * args.a_stride + c)] ==
                      y[static_cast<std::size_t>(r * (width + 3) + c)];
            }
          }
          CHECK(same);
        }
      }
    }
  }
}

TEST_CASE("binary operators keep NaN and saturate sigmoid at the ends") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    Tensor a(FRT_DTYPE_F32, 5);
    Tensor b(FRT_DTYPE_F32, 5, 2.0f);
    const float values[] = {NAN, 200.0f, -200.0f, INFINITY, -1e38f};
    for (std::size_t i = 0; i < 5; ++i) a.set(i, values[i]);
    Tensor y(FRT_DTYPE_F32, 5);
    frt_binary_args args{};
    args.dtype = FRT_DTYPE_F32;
    args.rows = 1;
    args.width = args.a_stride = args.b_stride = args.y_stride = 5;
    args.a = a.data();
    args.b = b.data();
    args.y = y.data();
    device.run(FRT_OP_SILU_MUL, args);
    CHECK(std::isnan(y[0]));
    CHECK(y[1] == 400.0);
    CHECK(std::fabs(y[2]) < 1e-30);
    CHECK(y[3] == INFINITY);
    CHECK(std::fabs(y[4]) < 1e-30);
    args.a = b.data();
    args.b = a.data();
    device.run(FRT_OP_SIGMOID_MUL, args);
    CHECK(std::isnan(y[0]));
    CHECK(y[1] == 2.0);
    CHECK(std::fabs(y[2]) < 1e-30);
    CHECK(y[3] == 2.0);
  }
}

TEST_CASE("conversions round to nearest even, saturate E4M3 and keep NaN") {
  CpuDevice device({.threads = 2});
  std::vector<float> x = {0.0f,          -0.0f,         1.0f,     -1.0f,       448.0f,
                          449.0f,        464.0f,        1e9f,     -1e9f,       65504.0f,
                          65520.0f,      65519.0f,      1e-8f,    6e-8f,       3e-8f,
                          0.015625f,     0.001f,        1.0625f,  1.1875f,     -1.3125f,
                          0.0009765625f, 0.0029296875f, 3.14159f, 1.00390625f, 1.01171875f,
                          5.9604645e-8f, 6.1035156e-5f, INFINITY, -INFINITY};
  for (int i = 0; i < 2000; ++i)
    x.push_back(std::ldexp(std::sin(static_cast<float>(i)), i % 30 - 15));
  x.push_back(NAN);
  const std::size_t n = x.size();
  frt_convert_args args{};
  args.x_dtype = FRT_DTYPE_F32;
  args.rows = 1;
  args.width = static_cast<int32_t>(n);
  args.x = x.data();
  args.x_stride = args.y_stride = args.width;

  std::vector<uint16_t> half(n), brain(n);
  std::vector<uint8_t> eight(n);
  args.y_dtype = FRT_DTYPE_F16;
  args.y = half.data();
  device.run(FRT_OP_CONVERT, args);
  args.y_dtype = FRT_DTYPE_BF16;
  args.y = brain.data();
  device.run(FRT_OP_CONVERT, args);
  args.y_dtype = FRT_DTYPE_F8_E4M3;
  args.y = eight.data();
  device.run(FRT_OP_CONVERT, args);
  for (std::size_t i = 0; i + 1 < n; ++i) {
    const double value = static_cast<double>(x[i]);
    CAPTURE(value);
    const uint32_t e4m3 = nearest_code(std::min(std::fabs(value), 448.0), 0x7F, [](uint32_t code) {
      return e4m3_value(static_cast<uint8_t>(code));
    });
    CHECK(eight[i] == (e4m3 | (std::signbit(value) ? 0x80u : 0u)));
    if (i < 200) {
      // 0x7C00 stands for 2^16, the next value if there were one.
      const uint32_t f16 = nearest_code(
          std::min(std::fabs(value), 65536.0), 0x7C01,
          [](uint32_t c) { return c == 0x7C00 ? 65536.0 : f16_value(static_cast<uint16_t>(c)); });
      CHECK(half[i] == (f16 | (std::signbit(value) ? 0x8000u : 0u)));
    }
    if (std::isfinite(x[i])) CHECK(brain[i] == to_bf16(x[i]));
  }
  CHECK(std::isnan(f16_value(half[n - 1])));
  CHECK(std::isnan(bf16_value(brain[n - 1])));
  CHECK(std::isnan(e4m3_value(eight[n - 1])));

  // Back to f32, exactly.
  std::vector<float> back(n);
  args.y_dtype = FRT_DTYPE_F32;
  args.y = back.data();
  args.x_dtype = FRT_DTYPE_F16;
  args.x = half.data();
  device.run(FRT_OP_CONVERT, args);
  bool exact = true;
  for (std::size_t i = 0; i + 1 < n; ++i) {
    exact &= static_cast<double>(back[i]) == f16_value(half[i]);
  }
  args.x_dtype = FRT_DTYPE_F8_E4M3;
  args.x = eight.data();
  device.run(FRT_OP_CONVERT, args);
  for (std::size_t i = 0; i + 1 < n; ++i) {
    exact &= static_cast<double>(back[i]) == e4m3_value(eight[i]);
  }
  CHECK(exact);
}

TEST_CASE("conversion to f32 without a factor keeps the bits of a NaN") {
  CpuDevice device({.threads = 1});
  std::vector<uint16_t> x = {0x7F81, 0xFF81, 0x7FC0, 0x7FFF};  // bf16; the first two signalling
  std::vector<uint32_t> y(x.size());
  frt_convert_args args{};
  args.x_dtype = FRT_DTYPE_BF16;
  args.y_dtype = FRT_DTYPE_F32;
  args.rows = 1;
  args.width = static_cast<int32_t>(x.size());
  args.x = x.data();
  args.y = y.data();
  args.x_stride = args.y_stride = args.width;
  device.run(FRT_OP_CONVERT, args);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(y[i] == static_cast<uint32_t>(x[i]) << 16);
}

TEST_CASE("rows are copied with their strides when the types are equal") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    const Tensor x = random_tensor(dtype, 7 * 12, 1);
    Tensor y(dtype, 7 * 9, 5.0f);
    int32_t row_count = 6;
    frt_convert_args args{};
    args.x_dtype = args.y_dtype = dtype;
    args.rows = 7;
    args.width = 8;
    args.row_count = &row_count;
    args.x = x.data();
    args.x_stride = 12;
    args.y = y.data();
    args.y_stride = 9;
    device.run_captured(FRT_OP_CONVERT, args);
    bool right = true;
    for (std::size_t r = 0; r < 6; ++r) {
      for (std::size_t c = 0; c < 8; ++c) right &= y[r * 9 + c] == x[r * 12 + c];
      right &= y[r * 9 + 8] == 5.0;
    }
    CHECK(right);
  }
}

TEST_CASE("fill_uniform gives the values of its formula in every type") {
  CpuDevice device({.threads = 2});
  const auto mix = [](uint64_t x) {
    uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  };
  const std::size_t count = 70000;  // more than one task
  frt_fill_uniform_args args{};
  args.low = -7.0f;
  args.high = 6.5f;
  args.seed = 0xFFFFFFFFFFFFFF00u;  // the index wraps around
  args.count = count;
  std::vector<float> expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float u = static_cast<float>(mix(args.seed + i) >> 40) * 0x1p-24f;
    expected[i] = args.low + (args.high - args.low) * u;
  }
  std::vector<float> f32(count);
  args.dtype = FRT_DTYPE_F32;
  args.y = f32.data();
  device.run(FRT_OP_FILL_UNIFORM, args);
  CHECK(f32 == expected);
  CHECK(*std::min_element(f32.begin(), f32.end()) < -6.9f);
  CHECK(*std::max_element(f32.begin(), f32.end()) > 6.4f);

  std::vector<uint16_t> bf16(count);
  args.dtype = FRT_DTYPE_BF16;
  args.y = bf16.data();
  device.run(FRT_OP_FILL_UNIFORM, args);
  std::vector<uint8_t> f8(count);
  args.dtype = FRT_DTYPE_F8_E4M3;
  args.y = f8.data();
  device.run(FRT_OP_FILL_UNIFORM, args);
  std::vector<uint8_t> f4(count / 2);
  args.dtype = FRT_DTYPE_F4_E2M1;
  args.y = f4.data();
  device.run_captured(FRT_OP_FILL_UNIFORM, args, 2);
  int wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    wrong += bf16[i] != to_bf16(expected[i]);
    const auto value = static_cast<double>(expected[i]);
    const uint32_t sign = std::signbit(expected[i]) ? 1 : 0;
    const uint32_t four = nearest_code(
        value, 8, [](uint32_t code) { return e2m1_value(static_cast<uint8_t>(code)); });
    wrong += (f4[i / 2] >> (i % 2 * 4) & 15u) != (four | sign << 3);
    if (i >= 3000) continue;
    const uint32_t eight = nearest_code(
        value, 0x7F, [](uint32_t code) { return e4m3_value(static_cast<uint8_t>(code)); });
    wrong += f8[i] != (eight | sign << 7);
  }
  CHECK(wrong == 0);
}

TEST_CASE("wrong elementwise arguments are refused with the operator and the argument") {
  CpuDevice device({.threads = 1});
  Tensor x(FRT_DTYPE_F32, 8);
  frt_binary_args binary{};
  binary.dtype = FRT_DTYPE_F32;
  binary.rows = 2;
  binary.width = binary.a_stride = binary.b_stride = binary.y_stride = 4;
  binary.a = binary.b = x.data();
  binary.y = x.data();
  CHECK(device.refusal(FRT_OP_ADD, binary) == FRT_OK);
  std::string message;
  const auto refused = [&](const char* argument, const frt_binary_args& args) {
    for (const char* name : kBinaries) {
      CHECK(device.refusal(name, args, &message) == FRT_ERR_INVALID_ARGUMENT);
      CHECK(message.find(std::string(name) + ": " + argument + " ") == 0);
    }
  };
  frt_binary_args bad = binary;
  bad.dtype = FRT_DTYPE_F16;
  refused("dtype", bad);
  bad = binary;
  bad.rows = -1;
  refused("rows", bad);
  bad = binary;
  bad.width = 0;
  refused("width", bad);
  bad = binary;
  bad.b = nullptr;
  refused("b", bad);
  bad = binary;
  bad.y_stride = 3;
  refused("y_stride", bad);

  frt_fill_uniform_args fill{};
  fill.dtype = FRT_DTYPE_F4_E2M1;
  fill.count = 3;
  fill.y = x.data();
  CHECK(device.refusal(FRT_OP_FILL_UNIFORM, fill, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("count") != std::string::npos);
  fill.dtype = FRT_DTYPE_I8;
  CHECK(device.refusal(FRT_OP_FILL_UNIFORM, fill, &message) == FRT_ERR_INVALID_ARGUMENT);

  frt_convert_args convert{};
  convert.x_dtype = FRT_DTYPE_F8_E5M2;
  convert.y_dtype = FRT_DTYPE_F32;
  CHECK(device.refusal(FRT_OP_CONVERT, convert, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("x_dtype") != std::string::npos);
}
