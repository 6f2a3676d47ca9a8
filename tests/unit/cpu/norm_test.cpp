// SPDX-License-Identifier: Apache-2.0
// frt.rms_norm/1, frt.add_rms_norm/1 and frt.gated_rms_norm/1 against double precision loops.
#include <doctest/doctest.h>
#include <frt/ops/norm.h>

#include <limits>

#include "sequence_tools.hpp"

namespace {

using namespace frt::cpu_test;

double tolerance_of(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? 2e-6 : 5e-3;
}

std::vector<double> normed(const Array& x, std::size_t first, std::size_t width, float epsilon,
                           const std::vector<float>& weight) {
  double squares = 0;
  for (std::size_t i = 0; i < width; ++i) {
    squares += static_cast<double>(x[first + i]) * static_cast<double>(x[first + i]);
  }
  const double factor =
      1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(epsilon));
  std::vector<double> y(width);
  for (std::size_t i = 0; i < width; ++i) {
    y[i] = static_cast<double>(x[first + i]) * factor * static_cast<double>(weight[i]);
  }
  return y;
}

}  // namespace

TEST_CASE("rms_norm agrees with the definition for every type, width, stride and instruction set") {
  for (const std::string& isa : isa_caps()) {
    CpuDevice device({.threads = 2, .isa = isa});
    for (const frt_dtype x_dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      for (const frt_dtype y_dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
        for (const int32_t width : {1, 7, 16, 33, 128, 1000}) {
          CAPTURE(isa);
          CAPTURE(width);
          Random random(3);
          const int32_t rows = 3;
          const auto w = static_cast<std::size_t>(width);
          Array x = random.array(x_dtype, 3 * (w + 2), 3.0f);
          Array y(y_dtype, 3 * (w + 5), 7.0f);
          const std::vector<float> weight = random.floats(w, 0.5f, 1.5f);
          frt_rms_norm_args args{};
          args.x_dtype = x_dtype;
          args.y_dtype = y_dtype;
          args.rows = rows;
          args.width = width;
          args.epsilon = 1e-6f;
          args.x = x.data();
          args.x_stride = width + 2;
          args.weight = weight.data();
          args.y = y.data();
          args.y_stride = width + 5;
          device.run(FRT_OP_RMS_NORM, args);
          for (std::size_t row = 0; row < 3; ++row) {
            const std::vector<double> expected = normed(x, row * (w + 2), w, 1e-6f, weight);
            std::vector<float> found(w);
            for (std::size_t i = 0; i < w; ++i) found[i] = y[row * (w + 5) + i];
            CHECK(worst_error(found, expected, w) < tolerance_of(y_dtype));
            CHECK(y[row * (w + 5) + w] == 7.0f);
          }
        }
      }
    }
  }
}

TEST_CASE("rms_norm computes the rows that row_count asks for, in place, captured, on any thread") {
  std::vector<std::byte> bits;
  for (const int64_t threads : {1, 2, 3}) {
    CpuDevice device({.threads = threads});
    Random random(3);
    Array x = random.array(FRT_DTYPE_BF16, 5 * 40);
    const Array before = x;
    const std::vector<float> weight(40, 1.0f);
    int32_t row_count = 2;
    frt_rms_norm_args args{};
    args.x_dtype = args.y_dtype = FRT_DTYPE_BF16;
    args.rows = 5;
    args.width = 40;
    args.epsilon = 1e-6f;
    args.row_count = &row_count;
    args.x = args.y = x.data();
    args.x_stride = args.y_stride = 40;
    args.weight = weight.data();
    device.run_captured(FRT_OP_RMS_NORM, args);
    CHECK(x[0] != before[0]);
    CHECK(x[79] != before[79]);
    for (std::size_t i = 120; i < 200; ++i) CHECK(x[i] == before[i]);
    if (bits.empty()) bits = x.bytes();
    CHECK(bits == x.bytes());
  }
}

TEST_CASE("add_rms_norm rounds the sum before it norms it, and does either part alone") {
  for (const char* numerics : {"fast", "reference"}) {
    CpuDevice device({.threads = 2, .numerics = numerics});
    for (const frt_dtype residual_dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
        Random random(5);
        Array residual = random.array(residual_dtype, 4 * 100);
        const Array delta = random.array(dtype, 4 * 100);
        Array expected_sum = residual;
        for (std::size_t i = 0; i < 400; ++i) expected_sum.set(i, residual[i] + delta[i]);
        Array y(dtype, 400, 7.0f);
        const std::vector<float> weight = random.floats(100, 0.5f, 1.5f);
        frt_add_rms_norm_args args{};
        args.residual_dtype = residual_dtype;
        args.dtype = dtype;
        args.rows = 4;
        args.width = 100;
        args.epsilon = 1e-6f;
        args.residual = residual.data();
        Array delta_copy = delta;
        args.delta = delta_copy.data();
        args.weight = weight.data();
        args.y = nullptr;
        Array only_sum = residual;
        args.residual = only_sum.data();
        device.run(FRT_OP_ADD_RMS_NORM, args);
        CHECK(only_sum.bytes() == expected_sum.bytes());

        args.residual = residual.data();
        args.y = y.data();
        device.run(FRT_OP_ADD_RMS_NORM, args);
        CHECK(residual.bytes() == expected_sum.bytes());
        const Array with_delta = y;
        for (std::size_t row = 0; row < 4; ++row) {
          const std::vector<double> expected = normed(expected_sum, row * 100, 100, 1e-6f, weight);
          std::vector<float> found(100);
          for (std::size_t i = 0; i < 100; ++i) found[i] = y[row * 100 + i];
          CHECK(worst_error(found, expected, 100) < tolerance_of(dtype));
        }
        args.delta = nullptr;
        device.run(FRT_OP_ADD_RMS_NORM, args);
        CHECK(y.bytes() == with_delta.bytes());
      }
    }
  }
}

TEST_CASE("gated_rms_norm norms each head on its own and then gates it") {
  for (const std::string& isa : isa_caps()) {
    CpuDevice device({.threads = 2, .isa = isa});
    for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      for (const std::size_t width : {std::size_t{5}, std::size_t{128}}) {
        Random random(5);
        Array x = random.array(FRT_DTYPE_F32, 2 * 3 * width);
        Array z = random.array(dtype, x.size(), 3.0f);
        Array y(dtype, x.size());
        const std::vector<float> weight = random.floats(width, 0.5f, 1.5f);
        frt_gated_rms_norm_args args{};
        args.x_dtype = FRT_DTYPE_F32;
        args.dtype = dtype;
        args.rows = 2;
        args.heads = 3;
        args.width = static_cast<int32_t>(width);
        args.epsilon = 1e-5f;
        args.x = x.data();
        args.z = z.data();
        args.weight = weight.data();
        args.y = y.data();
        device.run(FRT_OP_GATED_RMS_NORM, args);
        for (std::size_t head = 0; head < 6; ++head) {
          std::vector<double> expected = normed(x, head * width, width, 1e-5f, weight);
          std::vector<float> found(width);
          for (std::size_t i = 0; i < width; ++i) {
            expected[i] *= silu(static_cast<double>(z[head * width + i]));
            found[i] = y[head * width + i];
          }
          CHECK(worst_error(found, expected, width) < tolerance_of(dtype));
        }
      }
    }
  }
}

TEST_CASE("a NaN stays in its row, and zeros stay zero") {
  CpuDevice device({.threads = 2});
  Array x(FRT_DTYPE_F32, 3 * 20, 0.0f);
  for (std::size_t i = 20; i < 40; ++i) x.set(i, 1.0f);
  x.set(25, NAN);
  Array y(FRT_DTYPE_BF16, 60, 7.0f);
  const std::vector<float> weight(20, 1.0f);
  frt_rms_norm_args args{};
  args.x_dtype = FRT_DTYPE_F32;
  args.y_dtype = FRT_DTYPE_BF16;
  args.rows = 3;
  args.width = 20;
  args.epsilon = 1e-6f;
  args.x = x.data();
  args.y = y.data();
  args.x_stride = args.y_stride = 20;
  args.weight = weight.data();
  device.run(FRT_OP_RMS_NORM, args);
  for (std::size_t i = 0; i < 60; ++i) {
    if (i < 20 || i >= 40) {
      CHECK(y[i] == 0.0f);
    } else {
      CHECK(std::isnan(y[i]));
    }
  }
}

TEST_CASE("norms refuse what makes no sense by name") {
  CpuDevice device({.threads = 1});
  std::vector<float> data(16, 1.0f);
  std::string message;
  const auto refuses = [&](const char* argument, auto&& change) {
    frt_rms_norm_args args{};
    args.x_dtype = args.y_dtype = FRT_DTYPE_F32;
    args.rows = 2;
    args.width = 8;
    args.x = args.y = data.data();
    args.x_stride = args.y_stride = 8;
    args.weight = data.data();
    change(args);
    CHECK(device.refusal(FRT_OP_RMS_NORM, args, &message) == FRT_ERR_INVALID_ARGUMENT);
    CHECK_MESSAGE(message.find(std::string(FRT_OP_RMS_NORM) + ": " + argument) == 0, message);
  };
  refuses("x_dtype", [](auto& args) { args.x_dtype = FRT_DTYPE_I8; });
  refuses("rows", [](auto& args) { args.rows = 0; });
  refuses("width", [](auto& args) { args.width = -1; });
  refuses("x_stride", [](auto& args) { args.x_stride = 7; });
  refuses("weight", [](auto& args) { args.weight = nullptr; });
}
