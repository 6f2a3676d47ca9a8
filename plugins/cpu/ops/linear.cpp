// SPDX-License-Identifier: Apache-2.0
// Products with weights: frt.linear/1, frt.norm_linears/1, frt.norm_gate_up/1. Here the arguments
// are checked; the work is that of one group node (products/group.hpp).
#include <frt/ops/linear.h>

#include <string>

#include "checks.hpp"
#include "products/group.hpp"
#include "products/weight.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

// The activations and the norm before them, which both fused operators have alike.
template <class Args>
Group normed_group(const Checks& check, const Args& args, int64_t cols) {
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.pointer("x", args.x);
  if (args.residual) {
    check.dtype("residual_dtype", args.residual_dtype);
    check.pointer("norm_weight", args.norm_weight);
  } else {
    check.require(!args.delta, "delta", "is given without residual");
  }
  Group group;
  group.rows = args.rows;
  group.row_count = args.row_count;
  group.x_dtype = args.dtype;
  group.x = args.x;
  group.x_stride = cols;
  group.residual_dtype = args.residual_dtype;
  group.residual = args.residual;
  group.delta = args.delta;
  group.norm_weight = args.norm_weight;
  group.epsilon = args.epsilon;
  return group;
}

std::unique_ptr<Node> prepare_linear(Device& device, const frt_linear_args& args) {
  const Checks check(FRT_OP_LINEAR);
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("y_dtype", args.y_dtype);
  check.at_least("rows", args.rows, 0);
  check.require(args.accumulate <= 1, "accumulate", "is neither 0 nor 1");
  check_weight(check, "weight", args.weight);
  check.pointer("x", args.x);
  check.pointer("y", args.y);
  check.at_least("x_stride", args.x_stride, args.weight.cols);
  check.at_least("y_stride", args.y_stride, args.weight.rows);

  Group group;
  group.rows = args.rows;
  group.row_count = args.row_count;
  group.x_dtype = args.x_dtype;
  group.x = args.x;
  group.x_stride = args.x_stride;
  group.parts.push_back(
      {args.weight, args.y_dtype, args.accumulate == 1, args.y, args.y_stride, {}, 0});
  return make_group_node(device, std::move(group));
}

std::unique_ptr<Node> prepare_norm_linears(Device& device, const frt_norm_linears_args& args) {
  const Checks check(FRT_OP_NORM_LINEARS);
  check.range("part_count", args.part_count, 1, FRT_LINEAR_GROUP_MAX);
  check.pointer("parts", args.parts);
  const int32_t cols = args.parts[0].weight.cols;
  Group group = normed_group(check, args, cols);
  for (int32_t i = 0; i < args.part_count; ++i) {
    const frt_linear_part& part = args.parts[i];
    const std::string name = "parts[" + std::to_string(i) + "]";
    check_weight(check, (name + ".weight").c_str(), part.weight);
    check.require(part.weight.cols == cols, (name + ".weight.cols").c_str(),
                  "is " + std::to_string(part.weight.cols) + ", but the first part has " +
                      std::to_string(cols));
    check.pointer((name + ".y").c_str(), part.y);
    check.at_least((name + ".y_stride").c_str(), part.y_stride, part.weight.rows);
    group.parts.push_back({part.weight, args.dtype, false, part.y, part.y_stride, {}, 0});
  }
  return make_group_node(device, std::move(group));
}

std::unique_ptr<Node> prepare_norm_gate_up(Device& device, const frt_norm_gate_up_args& args) {
  const Checks check(FRT_OP_NORM_GATE_UP);
  check_weight(check, "gate_weight", args.gate_weight);
  check_weight(check, "up_weight", args.up_weight);
  check.require(args.gate_weight.rows == args.up_weight.rows, "up_weight.rows",
                "differs from gate_weight.rows");
  check.require(args.gate_weight.cols == args.up_weight.cols, "up_weight.cols",
                "differs from gate_weight.cols");
  check.pointer("h", args.h);
  Group group = normed_group(check, args, args.gate_weight.cols);
  const int64_t width = args.gate_weight.rows;
  group.gated = true;
  group.parts.push_back({args.gate_weight, args.dtype, false, args.h, width, {}, 0});
  group.parts.push_back({args.up_weight, args.dtype, false, nullptr, 0, {}, 0});
  return make_group_node(device, std::move(group));
}

}  // namespace

void register_linear(KernelList& list) {
  list.add<frt_linear_args>(FRT_OP_LINEAR, kFloatTypes, kWeightFormats, prepare_linear);
  list.add<frt_norm_linears_args>(FRT_OP_NORM_LINEARS, kFloatTypes, kWeightFormats,
                                  prepare_norm_linears);
  list.add<frt_norm_gate_up_args>(FRT_OP_NORM_GATE_UP, kFloatTypes, kWeightFormats,
                                  prepare_norm_gate_up);
}

}  // namespace frt::cpu
