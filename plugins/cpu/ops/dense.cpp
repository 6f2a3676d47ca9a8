// SPDX-License-Identifier: Apache-2.0
// Products with a norm before and more after: frt.dense/1, frt.norm_dense/1, frt.norm_geglu/1. Here
// the arguments are checked; the work is that of one group node (products/group.hpp).
#include "dense.hpp"

#include <string>

#include "products/group.hpp"
#include "products/weight.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

// The rows and the norm of both fused operators.
template <class Args>
Group normed_group(const Checks& check, const Args& args, int64_t cols) {
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check_norm(check, args.norm);
  check.pointer("x", args.x);
  Group group;
  group.rows = args.rows;
  group.row_count = args.row_count;
  group.x_dtype = args.dtype;
  group.x_stride = cols;
  if (args.norm.kind == FRT_NORM_NONE) {
    check.require(args.x_dtype == args.dtype, "x_dtype",
                  "differs from dtype, and there is no norm");
    check.require(args.normed_scale == 0, "normed_scale", "is given, and there is no norm");
    group.x = args.x;
    return group;
  }
  check.pointer("normed", args.normed);
  group.x = args.normed;
  group.x_scale = args.normed_scale;
  if (args.normed_scale > 0) group.x_dtype = FRT_DTYPE_F8_E4M3;
  group.norm = args.norm;
  group.norm_dtype = args.x_dtype;
  group.norm_source = args.x;
  return group;
}

}  // namespace

std::unique_ptr<Node> make_dense(Device& device, const Checks& check, const frt_dense_args& args) {
  check.scale("x_scale", args.x_scale, "weight.format", args.weight);
  if (args.x_scale > 0) {
    check.dtype("x_dtype", args.x_dtype, {FRT_DTYPE_F8_E4M3});
  } else {
    check.dtype("x_dtype", args.x_dtype);
  }
  check.dtype("y_dtype", args.y_dtype);
  check.at_least("rows", args.rows, 0);
  check.range("activation", args.activation, FRT_ACTIVATION_NONE, FRT_ACTIVATION_SILU);
  check.require(args.accumulate <= 1, "accumulate", "is neither 0 nor 1");
  check_weight(check, "weight", args.weight);
  check.pointer("x", args.x);
  check.pointer("y", args.y);
  check.at_least("x_stride", args.x_stride, args.weight.cols);
  check.at_least("y_stride", args.y_stride, args.weight.rows);
  if (args.gate.rows) check_modulation(check, args.gate);
  if (args.addend) check.positive("addend_rows", args.addend_rows);

  Group group;
  group.rows = args.rows;
  group.row_count = args.row_count;
  group.x_dtype = args.x_dtype;
  group.x = args.x;
  group.x_stride = args.x_stride;
  group.x_scale = args.x_scale;
  GroupPart part{args.weight, args.y_dtype, args.accumulate == 1, args.y, args.y_stride, {}, 0};
  part.finish = {args.bias, args.activation, args.gate, args.addend, args.addend_rows};
  group.parts.push_back(part);
  return make_group_node(device, std::move(group));
}

std::unique_ptr<Node> make_norm_dense(Device& device, const Checks& check,
                                      const frt_norm_dense_args& args) {
  check.range("part_count", args.part_count, 1, FRT_DENSE_PARTS_MAX);
  check.pointer("parts", args.parts);
  const int32_t cols = args.parts[0].weight.cols;
  Group group = normed_group(check, args, cols);
  for (int32_t i = 0; i < args.part_count; ++i) {
    const frt_dense_part& part = args.parts[i];
    const std::string name = "parts[" + std::to_string(i) + "]";
    check_weight(check, (name + ".weight").c_str(), part.weight);
    check.require(part.weight.cols == cols, (name + ".weight.cols").c_str(),
                  "is " + std::to_string(part.weight.cols) + ", but the first part has " +
                      std::to_string(cols));
    check.range((name + ".activation").c_str(), part.activation, FRT_ACTIVATION_NONE,
                FRT_ACTIVATION_SILU);
    check.pointer((name + ".y").c_str(), part.y);
    check.at_least((name + ".y_stride").c_str(), part.y_stride, part.weight.rows);
    check.scale("normed_scale", args.normed_scale, (name + ".weight.format").c_str(), part.weight);
    check.result_scale((name + ".y_scale").c_str(), part.y_scale, args.normed_scale);
    const frt_dtype y_dtype = part.y_scale > 0 ? FRT_DTYPE_F8_E4M3 : args.dtype;
    GroupPart product{part.weight, y_dtype, false, part.y, part.y_stride, {}, part.y_scale};
    product.finish.bias = part.bias;
    product.finish.activation = part.activation;
    group.parts.push_back(product);
  }
  return make_group_node(device, std::move(group));
}

std::unique_ptr<Node> make_norm_geglu(Device& device, const Checks& check,
                                      const frt_norm_geglu_args& args) {
  check_weight(check, "gate_weight", args.gate_weight);
  check_weight(check, "up_weight", args.up_weight);
  check.require(args.gate_weight.rows == args.up_weight.rows, "up_weight.rows",
                "differs from gate_weight.rows");
  check.require(args.gate_weight.cols == args.up_weight.cols, "up_weight.cols",
                "differs from gate_weight.cols");
  check.pointer("h", args.h);
  check.scale("normed_scale", args.normed_scale, "gate_weight.format", args.gate_weight);
  check.scale("normed_scale", args.normed_scale, "up_weight.format", args.up_weight);
  check.result_scale("h_scale", args.h_scale, args.normed_scale);
  Group group = normed_group(check, args, args.gate_weight.cols);
  const frt_dtype h_dtype = args.h_scale > 0 ? FRT_DTYPE_F8_E4M3 : args.dtype;
  group.gated = true;
  group.gate = Binary::kGeluMul;
  group.parts.push_back(
      {args.gate_weight, h_dtype, false, args.h, args.gate_weight.rows, {}, args.h_scale});
  group.parts.push_back({args.up_weight, h_dtype, false, nullptr, 0, {}, args.h_scale});
  return make_group_node(device, std::move(group));
}

namespace {

std::unique_ptr<Node> prepare_dense(Device& device, const frt_dense_args& args) {
  return make_dense(device, Checks(FRT_OP_DENSE), args);
}

std::unique_ptr<Node> prepare_norm_dense(Device& device, const frt_norm_dense_args& args) {
  return make_norm_dense(device, Checks(FRT_OP_NORM_DENSE), args);
}

std::unique_ptr<Node> prepare_norm_geglu(Device& device, const frt_norm_geglu_args& args) {
  return make_norm_geglu(device, Checks(FRT_OP_NORM_GEGLU), args);
}

}  // namespace

void register_dense(KernelList& list) {
  const frt_dtype_set types = kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3);
  list.add<frt_dense_args>(FRT_OP_DENSE, {types, kFloatTypes}, kWeightFormats, prepare_dense);
  list.add<frt_norm_dense_args>(FRT_OP_NORM_DENSE, types, kWeightFormats, prepare_norm_dense);
  list.add<frt_norm_geglu_args>(FRT_OP_NORM_GEGLU, types, kWeightFormats, prepare_norm_geglu);
}

}  // namespace frt::cpu
