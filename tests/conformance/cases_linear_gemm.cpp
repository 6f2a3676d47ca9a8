// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/linear.h with many rows: sizes around those of tiles, odd ones, every weight
// format, rows that are not aligned, adding to y.
#include <frt/ops/linear.h>

#include <algorithm>

#include "check.hpp"

namespace frt::conformance {
namespace {

struct Shape {
  int32_t rows, outputs, inputs;
  int32_t x_gap = 0, y_gap = 0;  // elements between rows
};

std::string text(const Shape& shape) {
  std::string name = std::to_string(shape.rows) + "x" + std::to_string(shape.outputs) + "x" +
                     std::to_string(shape.inputs);
  if (shape.x_gap || shape.y_gap) {
    name += " gaps " + std::to_string(shape.x_gap) + ", " + std::to_string(shape.y_gap);
  }
  return name;
}

struct Options {
  bool accumulate = false;
  int32_t row_count = -1;  // none
};

void linear(Case& c, const Shape& shape, frt_dtype x_dtype, frt_dtype y_dtype,
            const Packing& packing, const Options& options = {}) {
  const int64_t x_stride = shape.inputs + shape.x_gap, y_stride = shape.outputs + shape.y_gap;
  Tensor& x = c.normal("x", x_dtype, shape.rows * x_stride);
  Tensor& y = options.accumulate ? c.normal("y", y_dtype, shape.rows * y_stride)
                                 : c.output("y", y_dtype, shape.rows * y_stride);
  const Tensor* count =
      options.row_count < 0 ? nullptr : &c.integers("row_count", {options.row_count});
  const Weight weight = c.weight("weight", packing, shape.outputs, shape.inputs);
  c.run<frt_linear_args>(FRT_OP_LINEAR, types_of(x_dtype, y_dtype), packing.format,
                         [&](frt_linear_args& args, const At& at) {
                           args.x_dtype = x_dtype;
                           args.y_dtype = y_dtype;
                           args.rows = shape.rows;
                           args.accumulate = options.accumulate ? 1 : 0;
                           args.row_count = count ? at.operator()<int32_t>(*count) : nullptr;
                           args.x = at(x);
                           args.x_stride = x_stride;
                           args.weight = Case::at(weight, at);
                           args.y = at(y);
                           args.y_stride = y_stride;
                         });
  // A bf16 product in f32 is no more exact than its weights and activations in the fast paths.
  const Rounding rounding = c.may_round(x, weight);
  const Tolerance tolerance = rounding == Rounding::kFp8   ? kFp8
                              : rounding == Rounding::kFp4 ? kFp4
                              : x_dtype == FRT_DTYPE_F32   ? tolerance_of(y_dtype)
                                                           : kBf16;
  c.compare(y, tolerance, count ? Untouched::kIgnore : Untouched::kLeave);
  const int32_t active = count ? std::min(shape.rows, options.row_count) : shape.rows;
  c.require_product(x, weight, y, {active, shape.rows, x_stride, y_stride, options.accumulate});
}

void norm_linears(Case& c, frt_dtype dtype, int32_t rows, int32_t inputs,
                  const std::vector<std::pair<Packing, int32_t>>& parts) {
  Tensor& residual = c.normal("residual", FRT_DTYPE_F32, int64_t{rows} * inputs);
  Tensor& delta = c.normal("delta", dtype, int64_t{rows} * inputs);
  Tensor& factor = c.normal("norm_weight", FRT_DTYPE_F32, inputs, 0.1f, 1.0f);
  Tensor& x = c.output("x", dtype, int64_t{rows} * inputs);
  std::vector<Weight> weights;
  std::vector<const Tensor*> outputs;
  WeightFormats formats;
  for (const auto& [packing, height] : parts) {
    const std::string number = std::to_string(weights.size());
    weights.push_back(c.weight("weight " + number, packing, height, inputs));
    outputs.push_back(&c.output("y " + number, dtype, int64_t{rows} * height));
    formats.add(packing.format);
  }
  std::vector<frt_linear_part> described(parts.size());
  c.run<frt_norm_linears_args>(FRT_OP_NORM_LINEARS, KernelTypes(dtype), formats,
                               [&](frt_norm_linears_args& args, const At& at) {
                                 for (std::size_t i = 0; i < parts.size(); ++i) {
                                   described[i].weight = Case::at(weights[i], at);
                                   described[i].y = at(*outputs[i]);
                                   described[i].y_stride = parts[i].second;
                                 }
                                 args.residual_dtype = FRT_DTYPE_F32;
                                 args.dtype = dtype;
                                 args.rows = rows;
                                 args.part_count = static_cast<int32_t>(parts.size());
                                 args.epsilon = 1e-6f;
                                 args.residual = at(residual);
                                 args.delta = at(delta);
                                 args.norm_weight = at.operator()<float>(factor);
                                 args.x = at(x);
                                 args.parts = described.data();
                               });
  c.compare(residual, tolerance_of(dtype));
  c.compare(x, tolerance_of(dtype));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Rounding rounding = c.may_round(x, weights[i]);
    c.compare_rounded(*outputs[i], parts[i].second, tolerance_of(dtype), rounding,
                      rounding == Rounding::kFp8 ? kFp8 : kFp4);
  }
}

void norm_gate_up(Case& c, frt_dtype dtype, int32_t rows, int32_t inputs, int32_t width,
                  const Packing& packing) {
  Tensor& x = c.normal("x", dtype, int64_t{rows} * inputs);
  Tensor& gate = c.output("gate", dtype, int64_t{rows} * width);
  Tensor& h = c.output("h", dtype, int64_t{rows} * width);
  const Weight gate_weight = c.weight("gate_weight", packing, width, inputs);
  const Weight up_weight = c.weight("up_weight", packing, width, inputs);
  c.run<frt_norm_gate_up_args>(FRT_OP_NORM_GATE_UP, KernelTypes(dtype), packing.format,
                               [&](frt_norm_gate_up_args& args, const At& at) {
                                 args.dtype = dtype;
                                 args.rows = rows;
                                 args.x = at(x);
                                 args.gate_weight = Case::at(gate_weight, at);
                                 args.up_weight = Case::at(up_weight, at);
                                 args.gate = at(gate);
                                 args.h = at(h);
                               });
  const Rounding rounding = c.may_round(x, gate_weight);
  c.compare_rounded(h, width, tolerance_of(dtype), rounding,
                    rounding == Rounding::kFp8 ? kFp8Gated : kFp4Gated);
}

std::string types(frt_dtype x, frt_dtype y) {
  return std::string(dtype_name(x)) + " to " + dtype_name(y) + " ";
}

}  // namespace

void add_linear_gemm_cases(Suite& suite) {
  const std::string linear_name = std::string(FRT_OP_LINEAR) + " gemm ";
  const auto add = [&](const Shape& shape, frt_dtype x, frt_dtype y, const Packing& packing,
                       const Options& options = {}, const std::string& remark = "") {
    suite.add(linear_name + types(x, y) + packing.name + " " + text(shape) + remark,
              [=](Case& c) { linear(c, shape, x, y, packing, options); });
  };
  const Shape even[] = {{17, 96, 256},  {32, 64, 512},       {63, 48, 128},
                        {64, 144, 320}, {65, 32, 160, 8, 8}, {130, 272, 256}};
  for (const Packing& packing : all_packings()) {
    for (const Shape& shape : even) {
      add(shape, FRT_DTYPE_BF16, FRT_DTYPE_BF16, packing);
    }
    add({65, 80, 288}, FRT_DTYPE_BF16, FRT_DTYPE_F32, packing);
    add({65, 80, 288}, FRT_DTYPE_F32, FRT_DTYPE_F32, packing);
    add({17, 33, 160, 0, 3}, FRT_DTYPE_F32, FRT_DTYPE_F32, packing);
    add({130, 129, 144, 3, 5}, FRT_DTYPE_F32, FRT_DTYPE_BF16, packing);
    add({66, 37, 208, 5, 1}, FRT_DTYPE_BF16, FRT_DTYPE_BF16, packing);
    add({80, 64, 256}, FRT_DTYPE_BF16, FRT_DTYPE_BF16, packing, {true}, " added");
    add({70, 48, 128}, FRT_DTYPE_BF16, FRT_DTYPE_F32, packing, {true}, " added");
    add({67, 30, 96}, FRT_DTYPE_F32, FRT_DTYPE_F32, packing, {true}, " added");
    add({96, 64, 256}, FRT_DTYPE_BF16, FRT_DTYPE_BF16, packing, {false, 40}, " row_count 40");
    if (packing.format != kWeightNvfp4) {  // whose inputs come in sixteens
      for (const frt_dtype dtype : {FRT_DTYPE_BF16, FRT_DTYPE_F32}) {
        add({70, 19, 131}, dtype, dtype, packing);
        add({17, 65, 77, 1, 2}, dtype, dtype, packing);
      }
    }
  }
  // Long sums and several tiles: work is cut in the middle of both.
  for (const Packing& packing : all_packings()) {
    if (packing.format == kWeightBf16 || packing.format == kWeightF32) continue;
    add({40, 520, 8192}, FRT_DTYPE_BF16, FRT_DTYPE_BF16, packing);
  }
  // Tiles of 128 in all directions, and inputs that end within them.
  for (const Packing& packing : all_packings()) {
    if (packing.format != kWeightNvfp4) continue;
    add({129, 264, 2112}, FRT_DTYPE_BF16, FRT_DTYPE_BF16, packing);
    add({300, 131, 640, 8, 1}, FRT_DTYPE_BF16, FRT_DTYPE_F32, packing);
    add({128, 128, 128}, FRT_DTYPE_F32, FRT_DTYPE_BF16, packing);
  }
  const Packing& bf16 = all_packings().front();
  for (const int32_t row_count : {0, 1, 129, 300}) {
    add({300, 384, 640}, FRT_DTYPE_BF16, FRT_DTYPE_BF16, bf16, {false, row_count},
        " row_count " + std::to_string(row_count));
  }
  for (const frt_dtype y : {FRT_DTYPE_BF16, FRT_DTYPE_F32}) {
    add({300, 1, 512}, FRT_DTYPE_BF16, y, bf16);
    add({300, 3, 136, 0, 1}, FRT_DTYPE_BF16, y, bf16);
    add({33, 520, 1}, FRT_DTYPE_BF16, y, bf16);
    add({300, 48, 1024}, FRT_DTYPE_BF16, y, bf16);
  }
  for (const frt_dtype dtype : {FRT_DTYPE_BF16, FRT_DTYPE_F32}) {
    suite.add(std::string(FRT_OP_NORM_LINEARS) + " gemm " + dtype_name(dtype) + " mixed formats",
              [=](Case& c) {
                const std::vector<Packing>& all = all_packings();
                norm_linears(c, dtype, 130, 256,
                             {{all[0], 96}, {all[2], 160}, {all[9], 48}, {all[6], 33}});
              });
    // Several products of one x that may be rounded, beside one that may not.
    for (const Packing& packing : all_packings()) {
      if (packing.format == kWeightBf16 || packing.format == kWeightF32) continue;
      suite.add(std::string(FRT_OP_NORM_LINEARS) + " gemm " + dtype_name(dtype) + " several " +
                    packing.name,
                [=](Case& c) {
                  norm_linears(c, dtype, 130, 256,
                               {{packing, 256}, {bf16, 48}, {packing, 131}, {packing, 48}});
                });
    }
    for (const Packing& packing : all_packings()) {
      for (const auto& [rows, inputs] : {std::pair{70, 160}, {130, 256}}) {
        suite.add(std::string(FRT_OP_NORM_GATE_UP) + " gemm " + dtype_name(dtype) + " " +
                      packing.name + " " + std::to_string(rows) + "x96x" + std::to_string(inputs),
                  [=, rows = rows, inputs = inputs](Case& c) {
                    norm_gate_up(c, dtype, rows, inputs, 96, packing);
                  });
      }
    }
  }
}

}  // namespace frt::conformance
