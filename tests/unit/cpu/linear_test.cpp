// SPDX-License-Identifier: Apache-2.0
// frt.linear/1, frt.norm_linears/1 and frt.norm_gate_up/1 beside products in double.
//
// Tolerance: with A = sum |x w| of an output, f32 sums are within 4e-6 A; weights that a
// bf16 GEMM rounds (FP8 blocks) add 2^-8 A; an output in bf16 adds 2^-8 of itself.
#include <doctest/doctest.h>
#include <frt/ops/elementwise.h>
#include <frt/ops/linear.h>
#include <frt/ops/norm.h>

#include <algorithm>
#include <string>
#include <vector>

#include "packed_weight.hpp"

using namespace frt::cpu_test;

namespace {

struct Case {
  int32_t rows, outputs, inputs;
  frt_dtype x_dtype = FRT_DTYPE_F32;
  frt_dtype y_dtype = FRT_DTYPE_F32;
  int64_t x_extra = 0;  // stride beyond the width
  int64_t y_extra = 0;
  bool accumulate = false;
};

frt_linear_args linear_args(const Case& shape, const Tensor& x, const PackedWeight& weight,
                            Tensor& y) {
  frt_linear_args args{};
  args.x_dtype = shape.x_dtype;
  args.y_dtype = shape.y_dtype;
  args.rows = shape.rows;
  args.accumulate = shape.accumulate ? 1 : 0;
  args.x = x.data();
  args.x_stride = shape.inputs + shape.x_extra;
  args.weight = weight.weight();
  args.y = y.data();
  args.y_stride = shape.outputs + shape.y_extra;
  return args;
}

// Rows [0, valid) of `y` against the product in double; `before`: y's values to accumulate on.
void check_product(const Case& shape, const Tensor& x, const PackedWeight& weight,
                   const Tensor& before, const Tensor& y, int32_t valid, bool rounded_weights) {
  int32_t wrong = 0;
  std::vector<double> weights(static_cast<std::size_t>(shape.inputs));
  for (int32_t n = 0; n < shape.outputs; ++n) {
    for (int32_t k = 0; k < shape.inputs; ++k) {
      weights[static_cast<std::size_t>(k)] = weight.value(n, k);
    }
    for (int32_t r = 0; r < valid; ++r) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (int32_t k = 0; k < shape.inputs; ++k) {
        const double product = x[static_cast<std::size_t>(r * (shape.inputs + shape.x_extra) + k)] *
                               weights[static_cast<std::size_t>(k)];
        sum += product;
        magnitude += std::fabs(product);
      }
      const auto at = static_cast<std::size_t>(r * (shape.outputs + shape.y_extra) + n);
      if (shape.accumulate) {
        sum += before[at];
        magnitude += std::fabs(before[at]);
      }
      double tolerance = 4e-6 * magnitude + 1e-30;
      if (rounded_weights) tolerance += magnitude / 256;
      if (shape.y_dtype == FRT_DTYPE_BF16) tolerance += std::fabs(sum) / 256;
      if (std::fabs(y[at] - sum) <= tolerance) continue;
      if (++wrong == 1) {
        CHECK_MESSAGE(false, "row " << r << ", output " << n << ": " << y[at] << ", expected "
                                    << sum << " +- " << tolerance);
      }
    }
  }
  CHECK(wrong == 0);
}

void run_case(CpuDevice& device, const Packing& packing, const Case& shape) {
  CAPTURE(packing.name);
  CAPTURE(shape.rows);
  CAPTURE(shape.outputs);
  CAPTURE(shape.inputs);
  CAPTURE(shape.x_dtype);
  CAPTURE(shape.y_dtype);
  const PackedWeight weight(packing, shape.outputs, shape.inputs, 1);
  const auto rows = static_cast<std::size_t>(shape.rows);
  const Tensor x = random_tensor(shape.x_dtype,
                                 rows * static_cast<std::size_t>(shape.inputs + shape.x_extra), 2);
  const Tensor before = random_tensor(
      shape.y_dtype, rows * static_cast<std::size_t>(shape.outputs + shape.y_extra), 3);
  Tensor y = before;
  device.run(FRT_OP_LINEAR, linear_args(shape, x, weight, y));
  const frt::WeightType type = frt::weight_type(packing.format);
  const bool rounded = shape.rows > 16 && shape.x_dtype == FRT_DTYPE_BF16 &&
                       (type == frt::WeightType::kFp8Block || type == frt::WeightType::kOther);
  check_product(shape, x, weight, before, y, shape.rows, rounded);
  // What lies between the rows of y is left alone.
  bool kept = true;
  for (int32_t r = 0; r < shape.rows; ++r) {
    for (int64_t i = 0; i < shape.y_extra; ++i) {
      const auto at =
          static_cast<std::size_t>(r * (shape.outputs + shape.y_extra) + shape.outputs + i);
      kept &= y[at] == before[at];
    }
  }
  CHECK(kept);
}

}  // namespace

TEST_CASE("products of every weight format, activation type and instruction set are right") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    for (const Packing& packing : all_packings()) {
      const bool fp4 = packing.format == frt::kWeightNvfp4;
      for (const frt_dtype x_dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
        for (const frt_dtype y_dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
          for (const int32_t rows : {1, 2, 3, 7, 16, 17, 65}) {
            if (x_dtype != y_dtype && rows != 3 && rows != 17) continue;
            run_case(device, packing, {rows, 70, fp4 ? 272 : 259, x_dtype, y_dtype});
          }
          if (x_dtype != y_dtype) continue;
          run_case(device, packing, {1, 1, fp4 ? 16 : 1, x_dtype, y_dtype});
          run_case(device, packing, {5, 131, fp4 ? 48 : 15, x_dtype, y_dtype});
          run_case(device, packing, {18, 1, fp4 ? 16 : 1, x_dtype, y_dtype});
          run_case(device, packing, {33, 129, fp4 ? 80 : 67, x_dtype, y_dtype});
        }
      }
    }
  }
}

TEST_CASE("large products are right: many rows, long rows, many outputs") {
  for (const char* isa : {"auto", "portable"}) {
    CpuDevice device({.threads = 2, .isa = isa});
    for (const Packing& packing : all_packings()) {
      run_case(device, packing, {300, 200, 512, FRT_DTYPE_BF16, FRT_DTYPE_BF16});
      run_case(device, packing, {2, 300, 2048, FRT_DTYPE_BF16, FRT_DTYPE_F32});
    }
  }
}

TEST_CASE("strides are honoured, and accumulating adds to what is there") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    for (const Packing& packing : all_packings()) {
      for (const int32_t rows : {1, 4, 40}) {
        for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
          run_case(device, packing, {rows, 67, 160, dtype, dtype, 5, 3, true});
          run_case(device, packing, {rows, 67, 160, dtype, dtype, 8, 9, false});
        }
      }
    }
  }
}

TEST_CASE("row_count is read when the work runs, and only its rows are promised") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    const PackedWeight weight(all_packings()[1], 70, 96, 1);
    const Case shape{80, 70, 96, FRT_DTYPE_BF16, FRT_DTYPE_F32};
    const Tensor x = random_tensor(shape.x_dtype, 80 * 96, 2);
    int32_t row_count = 0;
    for (const int32_t valid : {0, -3, 1, 16, 17, 63, 64, 66, 80, 200}) {
      CAPTURE(valid);
      Tensor y(shape.y_dtype, 80 * 70, 7.0f);
      const Tensor before = y;
      frt_linear_args args = linear_args(shape, x, weight, y);
      args.row_count = &row_count;
      row_count = valid;
      device.run(FRT_OP_LINEAR, args);
      check_product(shape, x, weight, before, y, std::clamp(valid, 0, 80), false);
      if (valid <= 0) CHECK(y == before);
    }
    // No rows at all is no work.
    Tensor y(shape.y_dtype, 1, 7.0f);
    frt_linear_args none = linear_args(shape, x, weight, y);
    none.rows = 0;
    device.run(FRT_OP_LINEAR, none);
    CHECK(y[0] == 7.0);
  }
}

TEST_CASE("up to 16 rows, a row's result has the same bits whatever is computed beside it") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    for (const Packing& packing : all_packings()) {
      CAPTURE(packing.name);
      const bool fp4 = packing.format == frt::kWeightNvfp4;
      const int32_t inputs = fp4 ? 304 : 301;
      const PackedWeight weight(packing, 75, inputs, 1);
      for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
        const Tensor x = random_tensor(dtype, static_cast<std::size_t>(64 * inputs), 2);
        std::vector<float> alone(16 * 75);
        for (int32_t r = 0; r < 16; ++r) {
          Tensor y(FRT_DTYPE_F32, 75);
          frt_linear_args args = linear_args({1, 75, inputs, dtype}, x, weight, y);
          args.x = static_cast<const std::byte*>(x.data()) +
                   static_cast<std::ptrdiff_t>(r) * inputs * (dtype == FRT_DTYPE_F32 ? 4 : 2);
          device.run(FRT_OP_LINEAR, args);
          std::copy(y.f32.begin(), y.f32.end(), alone.begin() + r * 75);
        }
        for (int32_t rows = 2; rows <= 16; ++rows) {
          CAPTURE(rows);
          Tensor y(FRT_DTYPE_F32, static_cast<std::size_t>(rows) * 75);
          device.run(FRT_OP_LINEAR, linear_args({rows, 75, inputs, dtype}, x, weight, y));
          CHECK(std::equal(y.f32.begin(), y.f32.end(), alone.begin()));
          // The same rows as the valid ones of a long bucket.
          Tensor bucket(FRT_DTYPE_F32, 64 * 75);
          frt_linear_args args = linear_args({64, 75, inputs, dtype}, x, weight, bucket);
          args.row_count = &rows;
          device.run(FRT_OP_LINEAR, args);
          CHECK(std::equal(y.f32.begin(), y.f32.end(), bucket.f32.begin()));
        }
      }
    }
  }
}

TEST_CASE("the number of threads does not change a bit, nor does capturing") {
  CpuDevice one({.threads = 1});
  CpuDevice three({.threads = 3});
  for (const Packing& packing : all_packings()) {
    CAPTURE(packing.name);
    const PackedWeight weight(packing, 200, 256, 1);
    for (const int32_t rows : {1, 5, 100}) {
      const Case shape{rows, 200, 256, FRT_DTYPE_BF16, FRT_DTYPE_BF16};
      const Tensor x = random_tensor(shape.x_dtype, static_cast<std::size_t>(rows) * 256, 2);
      Tensor a(shape.y_dtype, static_cast<std::size_t>(rows) * 200);
      Tensor b = a;
      Tensor c = a;
      one.run(FRT_OP_LINEAR, linear_args(shape, x, weight, a));
      three.run(FRT_OP_LINEAR, linear_args(shape, x, weight, b));
      three.run_captured(FRT_OP_LINEAR, linear_args(shape, x, weight, c), 2);
      CHECK(a == b);
      CHECK(a == c);
    }
  }
}

TEST_CASE("NaN and infinity reach exactly the outputs that depend on them") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    for (const Packing& packing : all_packings()) {
      CAPTURE(packing.name);
      PackedWeight weight(packing, 40, 160, 1);
      // A NaN in row 9 of the weight: in the code where the format has one, else in a scale.
      const std::size_t at = 9 * 160 + 150;
      bool one_row = true;
      if (packing.format == frt::kWeightF32) {
        const float nan = NAN;
        std::memcpy(weight.data().data() + at * 4, &nan, 4);
      } else if (packing.format == frt::kWeightBf16) {
        const uint16_t nan = 0x7FC0;
        std::memcpy(weight.data().data() + at * 2, &nan, 2);
      } else if (packing.format == frt::kWeightNvfp4) {
        weight.scale()[at / 16] = 0xFF;
      } else if (frt::weight_type(packing.format) == frt::WeightType::kOther) {
        continue;  // integers have none
      } else {
        weight.data()[at] = 0x7F;
      }
      for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
        for (const int32_t rows : {1, 3, 20}) {
          Tensor x = random_tensor(dtype, static_cast<std::size_t>(rows) * 160, 2);
          const Case shape{rows, 40, 160, dtype, FRT_DTYPE_F32};
          Tensor y(FRT_DTYPE_F32, static_cast<std::size_t>(rows) * 40);
          device.run(FRT_OP_LINEAR, linear_args(shape, x, weight, y));
          for (std::size_t i = 0; i < y.size(); ++i) {
            one_row &= std::isnan(y[i]) == (i % 40 == 9);
          }
          x.set(160 * (static_cast<std::size_t>(rows) - 1) + 3, INFINITY);
          device.run(FRT_OP_LINEAR, linear_args(shape, x, weight, y));
          for (std::size_t i = 0; i < y.size(); ++i) {
            const bool last = i / 40 + 1 == static_cast<std::size_t>(rows);
            one_row &= std::isfinite(y[i]) == (!last && i % 40 != 9);
          }
        }
      }
      CHECK(one_row);
    }
  }
}

// ---- fused ------------------------------------------------------------------------------------

namespace {

struct Normed {
  frt_dtype residual_dtype, dtype;
  int32_t rows, inputs;
  Tensor residual, delta, weight, x;

  Normed(frt_dtype residual_type, frt_dtype type, int32_t row_number, int32_t width)
      : residual_dtype(residual_type),
        dtype(type),
        rows(row_number),
        inputs(width),
        residual(random_tensor(residual_type, static_cast<std::size_t>(rows * inputs), 11, 3.0f)),
        delta(random_tensor(type, static_cast<std::size_t>(rows * inputs), 12)),
        weight(random_tensor(FRT_DTYPE_F32, static_cast<std::size_t>(inputs), 13)),
        x(type, static_cast<std::size_t>(rows * inputs)) {}

  template <class Args>
  void fill(Args& args, bool with_delta) {
    args.residual_dtype = residual_dtype;
    args.dtype = dtype;
    args.rows = rows;
    args.epsilon = 1e-6f;
    args.residual = residual.data();
    args.delta = with_delta ? delta.data() : nullptr;
    args.norm_weight = weight.f32.data();
    args.x = x.data();
  }

  void run_norm(CpuDevice& device, bool with_delta) {
    frt_add_rms_norm_args args{};
    args.residual_dtype = residual_dtype;
    args.dtype = dtype;
    args.rows = rows;
    args.width = inputs;
    args.epsilon = 1e-6f;
    args.residual = residual.data();
    args.delta = with_delta ? delta.data() : nullptr;
    args.weight = weight.f32.data();
    args.y = x.data();
    device.run(FRT_OP_ADD_RMS_NORM, args);
  }
};

Tensor run_linear(CpuDevice& device, const Normed& from, const PackedWeight& weight) {
  Tensor y(from.dtype, static_cast<std::size_t>(from.rows * weight.rows()));
  device.run(FRT_OP_LINEAR,
             linear_args({from.rows, weight.rows(), from.inputs, from.dtype, from.dtype}, from.x,
                         weight, y));
  return y;
}

}  // namespace

TEST_CASE("norm_linears has the bits of its composition, also with parts of several formats") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      for (const frt_dtype residual_dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
        for (const int32_t rows : {1, 3, 16, 40}) {
          for (const bool with_delta : {false, true}) {
            CAPTURE(rows);
            CAPTURE(dtype);
            std::vector<PackedWeight> weights;
            for (std::size_t i = 0; i < FRT_LINEAR_GROUP_MAX; ++i) {
              weights.emplace_back(all_packings()[i == 7 ? 10 : i], 9 + 37 * static_cast<int>(i),
                                   160, i);
            }
            Normed composed(residual_dtype, dtype, rows, 160);
            Normed fused = composed;
            composed.run_norm(device, with_delta);
            std::vector<Tensor> outputs;
            std::vector<frt_linear_part> parts;
            for (const PackedWeight& weight : weights) {
              outputs.emplace_back(dtype, static_cast<std::size_t>(rows * weight.rows()));
              parts.push_back({weight.weight(), nullptr, weight.rows()});
            }
            for (std::size_t i = 0; i < parts.size(); ++i) parts[i].y = outputs[i].data();
            frt_norm_linears_args args{};
            fused.fill(args, with_delta);
            args.part_count = static_cast<int32_t>(parts.size());
            args.parts = parts.data();
            device.run(FRT_OP_NORM_LINEARS, args);
            CHECK(fused.residual == composed.residual);
            CHECK(fused.x == composed.x);
            for (std::size_t i = 0; i < parts.size(); ++i) {
              CHECK(outputs[i] == run_linear(device, composed, weights[i]));
            }
            // Without a norm, x is an input.
            args.residual = nullptr;
            args.delta = nullptr;
            device.run_captured(FRT_OP_NORM_LINEARS, args);
            CHECK(outputs[3] == run_linear(device, composed, weights[3]));
          }
        }
      }
    }
  }
}

TEST_CASE("norm_gate_up has the bits of its composition") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    for (const Packing& packing : all_packings()) {
      for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
        for (const int32_t rows : {1, 5, 40}) {
          for (const int32_t width : {7, 150}) {
            CAPTURE(packing.name);
            CAPTURE(rows);
            CAPTURE(width);
            const PackedWeight gate(packing, width, 112, 1);
            const PackedWeight up(packing, width, 112, 2);
            Normed composed(FRT_DTYPE_F32, dtype, rows, 112);
            Normed fused = composed;
            composed.run_norm(device, true);
            const Tensor a = run_linear(device, composed, gate);
            const Tensor b = run_linear(device, composed, up);
            Tensor expected(dtype, static_cast<std::size_t>(rows * width));
            frt_binary_args binary{};
            binary.dtype = dtype;
            binary.rows = rows;
            binary.width = width;
            binary.a = a.data();
            binary.b = b.data();
            binary.y = expected.data();
            binary.a_stride = binary.b_stride = binary.y_stride = width;
            device.run(FRT_OP_SILU_MUL, binary);

            Tensor working(dtype, expected.size());
            Tensor h(dtype, expected.size());
            frt_norm_gate_up_args args{};
            fused.fill(args, true);
            args.gate_weight = gate.weight();
            args.up_weight = up.weight();
            args.gate = working.data();
            args.h = h.data();
            device.run(FRT_OP_NORM_GATE_UP, args);
            CHECK(fused.residual == composed.residual);
            CHECK(fused.x == composed.x);
            CHECK(h == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("wrong arguments are refused with the operator and the argument") {
  CpuDevice device({.threads = 1});
  const PackedWeight bf16(all_packings()[1], 8, 32, 1);
  const PackedWeight fp8(all_packings()[2], 8, 32, 1);
  const PackedWeight fp4(all_packings()[10], 8, 32, 1);
  const PackedWeight u4(all_packings()[12], 8, 32, 1);
  const Tensor x(FRT_DTYPE_F32, 64);
  Tensor y(FRT_DTYPE_F32, 64);
  const auto refused = [&](const char* argument, auto&& change, const PackedWeight& weight) {
    frt_linear_args args = linear_args({2, 8, 32}, x, weight, y);
    change(args);
    std::string message;
    CHECK(device.refusal(FRT_OP_LINEAR, args, &message) == FRT_ERR_INVALID_ARGUMENT);
    CAPTURE(message);
    CHECK(message.find(std::string(FRT_OP_LINEAR) + ": " + argument + " ") == 0);
    args.struct_size = sizeof(args);
    frt_error error{};
    const frt_kernel kernel = device.kernel(FRT_OP_LINEAR).kernel;
    CHECK(kernel.supports(kernel.self, &args, &error) == FRT_ERR_INVALID_ARGUMENT);
    CHECK(message == error.message);
  };
  using Args = frt_linear_args;
  refused(
      "x_dtype", [](Args& a) { a.x_dtype = FRT_DTYPE_F16; }, bf16);
  refused(
      "y_dtype", [](Args& a) { a.y_dtype = FRT_DTYPE_I32; }, bf16);
  refused(
      "rows", [](Args& a) { a.rows = -1; }, bf16);
  refused(
      "accumulate", [](Args& a) { a.accumulate = 2; }, bf16);
  refused(
      "x", [](Args& a) { a.x = nullptr; }, bf16);
  refused(
      "y", [](Args& a) { a.y = nullptr; }, bf16);
  refused(
      "x_stride", [](Args& a) { a.x_stride = 31; }, bf16);
  refused(
      "y_stride", [](Args& a) { a.y_stride = 7; }, bf16);
  refused(
      "weight.format", [](Args& a) { a.weight.format.data = FRT_DTYPE_I64; }, bf16);
  refused(
      "weight.rows", [](Args& a) { a.weight.rows = 0; }, bf16);
  refused(
      "weight.cols", [](Args& a) { a.weight.cols = -4; }, bf16);
  refused(
      "weight.data", [](Args& a) { a.weight.data = nullptr; }, bf16);
  refused(
      "weight.data", [](Args& a) { a.weight.data = static_cast<const char*>(a.weight.data) + 2; },
      bf16);
  refused(
      "weight.format", [](Args& a) { a.weight.format.layout = 1; }, bf16);
  refused(
      "weight.scale", [](Args& a) { a.weight.scale = nullptr; }, fp8);
  refused(
      "weight.scale",
      [](Args& a) { a.weight.scale = static_cast<const char*>(a.weight.scale) + 1; }, fp8);
  refused(
      "weight.format", [](Args& a) { a.weight.format.scale = FRT_DTYPE_I32; }, fp8);
  refused(
      "weight.format", [](Args& a) { a.weight.format.flags = FRT_WEIGHT_MIDPOINT_ZERO; }, fp8);
  refused(
      "weight.zero", [](Args& a) { a.weight.zero = nullptr; }, u4);
  refused(
      "weight.scale",
      [](Args& a) { a.weight.scale = static_cast<const char*>(a.weight.scale) + 1; }, u4);
  refused(
      "weight.scale", [](Args& a) { a.weight.scale = nullptr; }, fp4);
  refused(
      "weight.format", [](Args& a) { a.weight.format.scale = FRT_DTYPE_F32; }, fp4);
  refused(
      "weight.cols", [](Args& a) { a.weight.cols = 24; }, fp4);

  frt_linear_part part{bf16.weight(), y.data(), 8};
  frt_norm_linears_args group{};
  group.dtype = FRT_DTYPE_F32;
  group.rows = 2;
  group.part_count = 1;
  group.x = const_cast<void*>(x.data());
  group.parts = &part;
  CHECK(device.refusal(FRT_OP_NORM_LINEARS, group) == FRT_OK);
  std::string message;
  frt_norm_linears_args bad = group;
  bad.part_count = 9;
  CHECK(device.refusal(FRT_OP_NORM_LINEARS, bad, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("part_count") != std::string::npos);
  bad = group;
  bad.residual = y.data();
  bad.residual_dtype = FRT_DTYPE_F32;
  CHECK(device.refusal(FRT_OP_NORM_LINEARS, bad, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("norm_weight") != std::string::npos);
  bad = group;
  bad.delta = y.data();
  CHECK(device.refusal(FRT_OP_NORM_LINEARS, bad, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("delta") != std::string::npos);
}
