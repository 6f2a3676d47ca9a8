// SPDX-License-Identifier: Apache-2.0
// Products with weights: frt.linear/1, frt.norm_linears/1, frt.norm_gate_up/1. The work is that of
// one group node (products/group.hpp).
#include <frt/ops/checks/linear.hpp>

#include "products/group.hpp"
#include "products/weight.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

// The activations and the norm before them, which both fused operators have alike.
template <class Args>
Group normed_group(const Args& args, int64_t cols) {
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
  check_linear(Checks(FRT_OP_LINEAR), args, kWeightFormats);
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
  check_norm_linears(Checks(FRT_OP_NORM_LINEARS), args, kWeightFormats);
  Group group = normed_group(args, args.parts[0].weight.cols);
  for (int32_t i = 0; i < args.part_count; ++i) {
    const frt_linear_part& part = args.parts[i];
    group.parts.push_back({part.weight, args.dtype, false, part.y, part.y_stride, {}, 0});
  }
  return make_group_node(device, std::move(group));
}

std::unique_ptr<Node> prepare_norm_gate_up(Device& device, const frt_norm_gate_up_args& args) {
  check_norm_gate_up(Checks(FRT_OP_NORM_GATE_UP), args, kWeightFormats);
  Group group = normed_group(args, args.gate_weight.cols);
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
