// SPDX-License-Identifier: Apache-2.0
// Cases of weights in the general form of frt/kernels.h: integers and powers of two in groups. The
// formats that backends have fast paths for are in the cases of each operator.
#include <frt/ops/embed.h>
#include <frt/ops/linear.h>
#include <frt/ops/moe.h>

#include <cmath>

#include "check.hpp"
#include "expected.hpp"

namespace frt::conformance {
namespace {

void linear(Case& c, const Packing& packing, frt_dtype dtype, int32_t rows, int32_t outputs,
            int32_t inputs) {
  Tensor& x = c.normal("x", dtype, int64_t{rows} * inputs);
  Tensor& y = c.output("y", FRT_DTYPE_F32, int64_t{rows} * outputs);
  const Weight weight = c.weight("weight", packing, outputs, inputs);
  c.run<frt_linear_args>(FRT_OP_LINEAR, KernelTypes(dtype), packing.format,
                         [&](frt_linear_args& args, const At& at) {
                           args.x_dtype = dtype;
                           args.y_dtype = FRT_DTYPE_F32;
                           args.rows = rows;
                           args.x = at(x);
                           args.x_stride = inputs;
                           args.weight = Case::at(weight, at);
                           args.y = at(y);
                           args.y_stride = outputs;
                         });
  c.require_product(x, weight, y, {rows, rows, inputs, outputs});
}

// A value is one product and, with a float zero point, one difference, each rounded in f32; then it
// is rounded to y's type.
void embed(Case& c, const Packing& packing, frt_dtype dtype, int32_t vocabulary, int32_t width) {
  const std::vector<int32_t> ids = {vocabulary - 1, 0, -1, vocabulary, 5, 5, vocabulary / 2};
  const auto rows = static_cast<int32_t>(ids.size());
  const Weight table = c.weight("table", packing, vocabulary, width);
  const Tensor& chosen = c.integers("ids", ids);
  Tensor& y = c.output("y", dtype, int64_t{rows} * width);
  c.run<frt_embed_args>(FRT_OP_EMBED, types_of(FRT_DTYPE_NONE, dtype), packing.format,
                        [&](frt_embed_args& args, const At& at) {
                          args.y_dtype = dtype;
                          args.rows = rows;
                          args.ids = at.operator()<int32_t>(chosen);
                          args.table = Case::at(table, at);
                          args.y = at(y);
                          args.y_stride = width;
                        });
  Expected expected(dtype, y.count);
  for (int32_t row = 0; row < rows; ++row) {
    const int32_t id = ids[static_cast<std::size_t>(row)];
    const bool known = id >= 0 && id < vocabulary;
    const std::vector<double> values =
        known ? Case::values(table, id, 1) : std::vector<double>(static_cast<std::size_t>(width));
    for (int32_t i = 0; i < width; ++i) {
      const double value = values[static_cast<std::size_t>(i)];
      const double bound = std::ldexp(std::fabs(value) + 256 * 0.25 / std::sqrt(width), -22);
      expected.value(int64_t{row} * width + i, value,
                     known ? bound + half_step(dtype, value) : 0.0);
    }
  }
  c.require(y, expected);
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

// f32 throughout: sums of `inputs` and `width` terms.
void experts(Case& c, const Packing& packing, int32_t rows, int32_t inputs, int32_t width) {
  constexpr int32_t kExperts = 4, kChosen = 2;
  Tensor& x = c.normal("x", FRT_DTYPE_F32, int64_t{rows} * inputs);
  const ExpertWeight gate = c.experts("gate", packing, kExperts, width, inputs);
  const ExpertWeight up = c.experts("up", packing, kExperts, width, inputs);
  const ExpertWeight down = c.experts("down", packing, kExperts, inputs, width);
  std::vector<int32_t> chosen;
  for (int32_t row = 0; row < rows; ++row) {
    chosen.insert(chosen.end(), {row % kExperts, (row + 1 + row % 3) % kExperts});
  }
  Tensor& ids = c.integers("ids", chosen);
  Tensor& shares = c.uniform("weights", FRT_DTYPE_F32, int64_t{rows} * kChosen, 0.05f, 0.5f);
  Tensor& y = c.output("y", FRT_DTYPE_F32, int64_t{rows} * inputs);
  c.run<frt_moe_experts_args>(FRT_OP_MOE_EXPERTS, KernelTypes(FRT_DTYPE_F32), packing.format,
                              [&](frt_moe_experts_args& args, const At& at) {
                                args.dtype = FRT_DTYPE_F32;
                                args.rows = rows;
                                args.experts = kExperts;
                                args.experts_per_token = kChosen;
                                args.x = at(x);
                                args.ids = at.operator()<int32_t>(ids);
                                args.weights = at.operator()<float>(shares);
                                args.gate = Case::at(gate, at);
                                args.up = Case::at(up, at);
                                args.down = Case::at(down, at);
                                args.y = at(y);
                              });
  const std::vector<double> x_values = Case::values(x), share_values = Case::values(shares);
  Expected expected(FRT_DTYPE_F32, y.count);
  for (int32_t row = 0; row < rows; ++row) {
    std::vector<double> sums(static_cast<std::size_t>(inputs)), sizes(sums.size());
    for (int32_t j = 0; j < kChosen; ++j) {
      const auto at = static_cast<std::size_t>(row * kChosen + j);
      const auto dot = [&](const ExpertWeight& weight, int32_t n, const double* values) {
        const std::vector<double> line = Case::values(weight, chosen[at], n);
        double sum = 0;
        for (std::size_t k = 0; k < line.size(); ++k) sum += line[k] * values[k];
        return sum;
      };
      std::vector<double> hidden;
      for (int32_t n = 0; n < width; ++n) {
        const double* from = x_values.data() + static_cast<std::ptrdiff_t>(row) * inputs;
        hidden.push_back(silu(dot(gate, n, from)) * dot(up, n, from));
      }
      double size = 0;
      for (const double value : hidden) size += value * value;
      for (int32_t n = 0; n < inputs; ++n) {
        sums[static_cast<std::size_t>(n)] += share_values[at] * dot(down, n, hidden.data());
        sizes[static_cast<std::size_t>(n)] += share_values[at] * std::sqrt(size);
      }
    }
    for (int32_t n = 0; n < inputs; ++n) {
      const auto i = static_cast<std::size_t>(n);
      expected.value(int64_t{row} * inputs + n, sums[i], 1e-4 * (std::fabs(sums[i]) + sizes[i]));
    }
  }
  c.require(y, expected);
}

}  // namespace

void add_weight_cases(Suite& suite) {
  const auto name = [](const char* operator_name, const Packing& packing, frt_dtype dtype) {
    return std::string(operator_name) + " general " + packing.name + " " + dtype_name(dtype);
  };
  for (const Packing& packing : general_packings()) {
    for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      for (const int32_t rows : {1, 5, 17}) {
        suite.add(name(FRT_OP_LINEAR, packing, dtype) + " " + std::to_string(rows) + " rows",
                  [=](Case& c) { linear(c, packing, dtype, rows, 37, 331); });
      }
      suite.add(name(FRT_OP_EMBED, packing, dtype),
                [=](Case& c) { embed(c, packing, dtype, 33, 201); });
    }
    suite.add(name(FRT_OP_MOE_EXPERTS, packing, FRT_DTYPE_F32),
              [=](Case& c) { experts(c, packing, 6, 75, 43); });
  }
}

}  // namespace frt::conformance
