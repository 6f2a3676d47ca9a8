// SPDX-License-Identifier: Apache-2.0
// Products with a norm before and more after: frt.dense/1, frt.norm_dense/1, frt.norm_geglu/1. The
// work is that of one group node (products/group.hpp).
#include "dense.hpp"

#include <frt/ops/checks/dense.hpp>

#include "products/group.hpp"
#include "products/weight.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

// The rows and the norm of both fused operators.
template <class Args>
Group normed_group(const Args& args, int64_t cols) {
  Group group;
  group.rows = args.rows;
  group.row_count = args.row_count;
  group.x_dtype = args.dtype;
  group.x_stride = cols;
  if (args.norm.kind == FRT_NORM_NONE) {
    group.x = args.x;
    return group;
  }
  group.x = args.normed;
  group.x_scale = args.normed_scale;
  if (args.normed_scale > 0) group.x_dtype = FRT_DTYPE_F8_E4M3;
  group.norm = args.norm;
  group.norm_dtype = args.x_dtype;
  group.norm_source = args.x;
  return group;
}

}  // namespace

std::unique_ptr<Node> make_dense(Device& device, const frt_dense_args& args) {
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

std::unique_ptr<Node> make_norm_dense(Device& device, const frt_norm_dense_args& args) {
  const int32_t cols = args.parts[0].weight.cols;
  Group group = normed_group(args, cols);
  for (int32_t i = 0; i < args.part_count; ++i) {
    const frt_dense_part& part = args.parts[i];
    const frt_dtype y_dtype = part.y_scale > 0 ? FRT_DTYPE_F8_E4M3 : args.dtype;
    GroupPart product{part.weight, y_dtype, false, part.y, part.y_stride, {}, part.y_scale};
    product.finish.bias = part.bias;
    product.finish.activation = part.activation;
    group.parts.push_back(product);
  }
  return make_group_node(device, std::move(group));
}

std::unique_ptr<Node> make_norm_geglu(Device& device, const frt_norm_geglu_args& args) {
  Group group = normed_group(args, args.gate_weight.cols);
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
  check_dense(Checks(FRT_OP_DENSE), args, kWeightFormats);
  return make_dense(device, args);
}

std::unique_ptr<Node> prepare_norm_dense(Device& device, const frt_norm_dense_args& args) {
  check_norm_dense(Checks(FRT_OP_NORM_DENSE), args, kWeightFormats);
  return make_norm_dense(device, args);
}

std::unique_ptr<Node> prepare_norm_geglu(Device& device, const frt_norm_geglu_args& args) {
  check_norm_geglu(Checks(FRT_OP_NORM_GEGLU), args, kWeightFormats);
  return make_norm_geglu(device, args);
}

}  // namespace

void register_dense(KernelList& list) {
  const frt_dtype_set types = kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3);
  list.add<frt_dense_args>(FRT_OP_DENSE, {types, kFloatTypes}, kWeightFormats, prepare_dense);
  list.add<frt_norm_dense_args>(FRT_OP_NORM_DENSE, types, kWeightFormats, prepare_norm_dense);
  list.add<frt_norm_geglu_args>(FRT_OP_NORM_GEGLU, types, kWeightFormats, prepare_norm_geglu);
}

}  // namespace frt::cpu
