// SPDX-License-Identifier: Apache-2.0
// The kernels of a product with FP4 activations: rounding bit for bit, and sums of what was
// rounded. Where the test's code has no instruction, the product is emulated.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "bf16_values.hpp"
#include "cuda_device.hpp"
#include "ops/common/fp4_numbers.hpp"

using namespace frt::cuda_test;
using namespace frt::cuda;

namespace {

struct Shape {
  int rows, inputs, outputs;
  int row_count = -1;  // none
};

class Trial {
 public:
  Trial(const Shape& shape, bool x_bf16) : shape_(shape), x_bf16_(x_bf16) {
    std::mt19937_64 random(static_cast<uint64_t>(shape.rows * 7 + shape.inputs));
    std::normal_distribution<float> normal;
    for (int i = 0; i < shape.rows * shape.inputs; ++i) {
      const float value = std::ldexp(normal(random), static_cast<int>(random() % 12) - 6);
      x_.push_back(x_bf16 ? as_bf16(value) : value);
    }
    std::fill_n(x_.begin(), shape.inputs, 0.0f);
    x_[static_cast<std::size_t>(2 * shape.inputs + 5)] = std::numeric_limits<float>::infinity();
    x_[static_cast<std::size_t>(3 * shape.inputs - 1 + shape.inputs)] =
        std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < shape.outputs * shape.inputs / 2; ++i) {
      weight_.push_back(static_cast<uint8_t>(random()));
    }
    for (int i = 0; i < shape.outputs * shape.inputs / 16; ++i) {
      weight_scales_.push_back(static_cast<uint8_t>(0x28 + random() % 0x18));
    }
  }

  void run(frt_dtype y_dtype, bool accumulate) {
    CudaDevice device;
    const StreamHandle stream = device.stream();
    const auto upload = [&](const void* data, std::size_t bytes) {
      auto* memory = device.allocate<uint8_t>(bytes);
      device.copy(stream, memory, FRT_SPACE_DEVICE, data, FRT_SPACE_HOST, bytes);
      return memory;
    };
    std::vector<uint16_t> halves;
    for (const float value : x_) {
      halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    }
    Fp4Args args;
    args.x_dtype = x_bf16_ ? FRT_DTYPE_BF16 : FRT_DTYPE_F32;
    args.y_dtype = y_dtype;
    args.rows = shape_.rows;
    args.inputs = shape_.inputs;
    args.outputs = shape_.outputs;
    args.global_scale = kGlobal;
    args.accumulate = accumulate ? 1 : 0;
    const int32_t count = shape_.row_count;
    if (count >= 0) {
      args.row_count = reinterpret_cast<const int32_t*>(upload(&count, sizeof(count)));
    }
    args.x = x_bf16_ ? upload(halves.data(), halves.size() * 2) : upload(x_.data(), x_.size() * 4);
    args.weight = upload(weight_.data(), weight_.size());
    args.weight_scales = upload(weight_scales_.data(), weight_scales_.size());
    const auto rows = static_cast<std::size_t>(shape_.rows);
    const auto stride = static_cast<std::size_t>((shape_.inputs / 16 + 15) / 16 * 16);
    const std::size_t value_bytes = rows * static_cast<std::size_t>(shape_.inputs / 2);
    args.values = device.allocate<uint8_t>(value_bytes);
    args.scales = device.allocate<uint8_t>(rows * stride);
    args.row_scales = device.allocate<float>(rows);
    const std::size_t y_count = rows * static_cast<std::size_t>(shape_.outputs);
    const std::size_t y_bytes = y_count * (y_dtype == FRT_DTYPE_F32 ? 4 : 2);
    auto* y = device.allocate<uint8_t>(y_bytes);
    device.fill(stream, y, y_bytes, kBefore);
    args.y = y;
    device.run(stream, kFp4, args);
    check_rounding(device.read(stream, args.values, value_bytes),
                   device.read(stream, args.scales, rows * stride),
                   device.read(stream, args.row_scales, rows), stride);
    check_sums(device.read(stream, y, y_bytes), y_dtype, accumulate);
  }

 private:
  static constexpr float kGlobal = 0.37f;
  static constexpr uint8_t kBefore = 0x3F;  // 0.747 as f32 and as bf16

  int active() const { return shape_.row_count < 0 ? shape_.rows : shape_.row_count; }

  void check_rounding(const std::vector<uint8_t>& values, const std::vector<uint8_t>& scales,
                      const std::vector<float>& row_scales, std::size_t stride) {
    decoded_.assign(x_.size(), 0);
    for (int row = 0; row < active(); ++row) {
      const float* x = x_.data() + row * shape_.inputs;
      uint32_t largest = 0;
      for (int k = 0; k < shape_.inputs; ++k) largest = std::max(largest, magnitude_bits(x[k]));
      const float row_scale = fp4_row_scale(largest);
      const bool finite = largest < kInfinityBits;
      const float found = row_scales[static_cast<std::size_t>(row)];
      CHECK((finite ? found == row_scale : std::isnan(found)));
      const float inverse = finite ? fp4_inverse(row_scale) : 0.0f;
      int wrong = 0;
      for (int first = 0; first < shape_.inputs; first += kFp4Group) {
        uint32_t most = 0;
        for (int k = first; k < first + kFp4Group; ++k) most = std::max(most, magnitude_bits(x[k]));
        const uint32_t scale = finite ? fp4_scale_code(std::bit_cast<float>(most) * inverse) : 0;
        const Fp4Middles middles = fp4_middles(scale);
        wrong += scales[static_cast<std::size_t>(row) * stride +
                        static_cast<std::size_t>(first / kFp4Group)] != scale;
        for (int k = first; k < first + kFp4Group; ++k) {
          const uint32_t code = finite ? fp4_code(x[k] * inverse, middles) : 0;
          const auto at = static_cast<std::size_t>(row * shape_.inputs + k);
          wrong += (values[at / 2] >> 4 * (k % 2) & 15u) != code;
          decoded_[at] = finite ? 0.5 * twice_e2m1(code) * static_cast<double>(from_ue4m3(scale)) *
                                      static_cast<double>(row_scale)
                                : std::numeric_limits<double>::quiet_NaN();
        }
      }
      CAPTURE(row);
      CHECK(wrong == 0);
    }
  }

  void check_sums(const std::vector<uint8_t>& y, frt_dtype y_dtype, bool accumulate) const {
    const std::size_t bytes = y_dtype == FRT_DTYPE_F32 ? 4 : 2;
    const auto value_at = [&](const uint8_t* at) {
      uint32_t bits = 0;
      for (std::size_t i = 0; i < bytes; ++i) bits |= static_cast<uint32_t>(at[i]) << 8 * i;
      return static_cast<double>(std::bit_cast<float>(bytes == 4 ? bits : bits << 16));
    };
    const std::vector<uint8_t> poison(4, kBefore);
    const double before = value_at(poison.data());
    int wrong = 0;
    for (int row = 0; row < shape_.rows; ++row) {
      for (int output = 0; output < shape_.outputs; ++output) {
        const double found =
            value_at(y.data() + static_cast<std::size_t>(row * shape_.outputs + output) * bytes);
        if (row >= active()) {
          wrong += found != before;
          continue;
        }
        double sum = accumulate ? before : 0, squares = 0;
        for (int k = 0; k < shape_.inputs; ++k) {
          const auto at = static_cast<std::size_t>(output * shape_.inputs + k);
          const double weight =
              0.5 * twice_e2m1(static_cast<uint32_t>(weight_[at / 2] >> 4 * (k % 2) & 15)) *
              static_cast<double>(from_ue4m3(weight_scales_[at / kFp4Group]));
          const double term = decoded_[static_cast<std::size_t>(row * shape_.inputs + k)] * weight *
                              static_cast<double>(kGlobal);
          sum += term;
          squares += term * term;
        }
        // f32 sums of exact products, scaled and rounded once more
        // (tests/conformance/expected.hpp).
        const double bound = shape_.inputs * std::ldexp(std::sqrt(squares), -23) +
                             std::ldexp(std::fabs(sum) + before, bytes == 4 ? -22 : -8);
        const bool good = std::isnan(sum) ? std::isnan(found) : std::fabs(found - sum) <= bound;
        if (!good && ++wrong <= 3) {
          CAPTURE(row);
          CAPTURE(output);
          CHECK(found == sum);
        }
      }
    }
    CHECK(wrong == 0);
  }

  const Shape shape_;
  const bool x_bf16_;
  std::vector<float> x_;
  std::vector<double> decoded_;  // x as it was rounded
  std::vector<uint8_t> weight_, weight_scales_;
};

}  // namespace

TEST_CASE("FP4 activations: rows are rounded bit for bit, and products are of what was rounded") {
  FRT_NEEDS_DEVICE();
  Trial({130, 320, 137}, true).run(FRT_DTYPE_F32, false);
  Trial({130, 320, 137}, false).run(FRT_DTYPE_BF16, true);
  Trial({64, 512, 128}, true).run(FRT_DTYPE_BF16, false);
  Trial({257, 64, 264}, false).run(FRT_DTYPE_F32, true);
}

TEST_CASE("FP4 activations: rows beyond the count of the device are left alone") {
  FRT_NEEDS_DEVICE();
  Trial({200, 128, 40, 77}, true).run(FRT_DTYPE_F32, false);
  Trial({200, 128, 40, 140}, true).run(FRT_DTYPE_BF16, true);
}
