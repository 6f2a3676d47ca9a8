// SPDX-License-Identifier: Apache-2.0
// The mixture-of-experts operators: their arguments are checked here and handed to the way that
// fits (moe.hpp).
#include <bit>
#include <frt/checks.hpp>
#include <string>

#include "launch.cuh"
#include "moe.hpp"
#include "registry.hpp"

namespace frt::cuda {
namespace {

constexpr int64_t kFp4Group = 16;

int64_t packed_bytes(frt_weight_format format, int64_t cols) {
  switch (format) {
    case FRT_WEIGHT_F32:
      return cols * 4;
    case FRT_WEIGHT_BF16:
      return cols * 2;
    case FRT_WEIGHT_NVFP4:
      return cols / 2;
    default:
      return cols;
  }
}

// ---- checks ----------------------------------------------------------------------------------

void check_aligned(const Checks& check, const std::string& argument, const void* pointer,
                   std::uintptr_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0) return;
  check.fail(argument, "is not aligned to " + std::to_string(alignment) + " bytes");
}

void check_matrix(const Checks& check, const std::string& name, const frt_weight& weight) {
  if (weight.format >= FRT_WEIGHT_FORMAT_COUNT) {
    check.fail(name + ".format", "is " + std::to_string(weight.format) + ", which is no format");
  }
  check.positive((name + ".rows").c_str(), weight.rows);
  check.positive((name + ".cols").c_str(), weight.cols);
  check.pointer((name + ".data").c_str(), weight.data);
  check_aligned(check, name + ".data", weight.data, 16);
  check.require(weight.layout == 0, (name + ".layout").c_str(),
                "is " + std::to_string(weight.layout) + ", expected 0 (row-major)");
  const std::string scale = name + ".scale";
  const std::string scale_dtype = name + ".scale_dtype";
  switch (weight.format) {
    case FRT_WEIGHT_FP8_BLOCK:
      check.positive((name + ".block_rows").c_str(), weight.block_rows);
      check.positive((name + ".block_cols").c_str(), weight.block_cols);
      [[fallthrough]];
    case FRT_WEIGHT_FP8_CHANNEL:
      check.dtype(scale_dtype.c_str(), weight.scale_dtype);
      check.pointer(scale.c_str(), weight.scale);
      check_aligned(check, scale, weight.scale, weight.scale_dtype == FRT_DTYPE_F32 ? 4 : 2);
      break;
    case FRT_WEIGHT_NVFP4:
      check.dtype(scale_dtype.c_str(), weight.scale_dtype, {FRT_DTYPE_F8_E4M3});
      check.pointer(scale.c_str(), weight.scale);
      check.require(weight.cols % kFp4Group == 0, (name + ".cols").c_str(),
                    "is " + std::to_string(weight.cols) + ", expected a multiple of 16 for NVFP4");
      break;
    default:
      break;
  }
}

void check_experts(const Checks& check, const std::string& name, const frt_expert_weight& weight) {
  check_matrix(check, name + ".expert", weight.expert);
  const int64_t bytes = packed_bytes(weight.expert.format, weight.expert.cols) * weight.expert.rows;
  check.at_least((name + ".data_stride").c_str(), weight.data_stride, bytes);
  const int64_t value = weight.expert.format == FRT_WEIGHT_F32    ? 4
                        : weight.expert.format == FRT_WEIGHT_BF16 ? 2
                                                                  : 1;
  check.require(weight.data_stride % value == 0, (name + ".data_stride").c_str(),
                "is not a multiple of the value's size");
  if (!weight.expert.scale) return;
  check.positive((name + ".scale_stride").c_str(), weight.scale_stride);
  const int64_t scale = weight.expert.scale_dtype == FRT_DTYPE_F32    ? 4
                        : weight.expert.scale_dtype == FRT_DTYPE_BF16 ? 2
                                                                      : 1;
  check.require(weight.scale_stride % scale == 0, (name + ".scale_stride").c_str(),
                "is not a multiple of the scale's size");
}

void check_size(const Checks& check, const std::string& argument, int32_t value, int32_t expected) {
  check.require(value == expected, argument.c_str(),
                "is " + std::to_string(value) + ", expected " + std::to_string(expected));
}

void check_route(const frt_moe_route_args& args) {
  const Checks check(FRT_OP_MOE_ROUTE);
  check.at_least("rows", args.rows, 0);
  check.positive("experts", args.experts);
  check.range("chosen", args.chosen, 1, args.experts);
  check.pointer("logits", args.logits);
  check.pointer("ids", args.ids);
  check.pointer("weights", args.weights);
}

void check_experts_args(const frt_moe_experts_args& args) {
  const Checks check(FRT_OP_MOE_EXPERTS);
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.positive("experts", args.experts);
  check.range("chosen", args.chosen, 1, args.experts);
  check.require(static_cast<int64_t>(args.rows) * args.chosen <= INT32_MAX, "rows",
                "times chosen is more than 2^31");
  check.pointer("x", args.x);
  check.pointer("ids", args.ids);
  check.pointer("weights", args.weights);
  check.pointer("y", args.y);
  check_experts(check, "gate", args.gate);
  check_experts(check, "up", args.up);
  check_experts(check, "down", args.down);
  check_size(check, "up.expert.rows", args.up.expert.rows, args.gate.expert.rows);
  check_size(check, "up.expert.cols", args.up.expert.cols, args.gate.expert.cols);
  check_size(check, "down.expert.rows", args.down.expert.rows, args.gate.expert.cols);
  check_size(check, "down.expert.cols", args.down.expert.cols, args.gate.expert.rows);
}

void check_combine(const frt_moe_combine_args& args) {
  const Checks check(FRT_OP_MOE_COMBINE);
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.positive("width", args.width);
  check.pointer("routed", args.routed);
  check.pointer("shared", args.shared);
  check.pointer("gate", args.gate);
  check.pointer("y", args.y);
}

void check_shared(const Checks& check, const frt_moe_block_args& args) {
  check_matrix(check, "shared_gate_weight", args.shared_gate_weight);
  check_matrix(check, "shared_up_weight", args.shared_up_weight);
  check_matrix(check, "shared_down_weight", args.shared_down_weight);
  check_matrix(check, "shared_expert_gate", args.shared_expert_gate);
  const int32_t inputs = args.router.cols, width = args.shared_gate_weight.rows;
  check_size(check, "shared_gate_weight.cols", args.shared_gate_weight.cols, inputs);
  check_size(check, "shared_up_weight.rows", args.shared_up_weight.rows, width);
  check_size(check, "shared_up_weight.cols", args.shared_up_weight.cols, inputs);
  check_size(check, "shared_down_weight.rows", args.shared_down_weight.rows, inputs);
  check_size(check, "shared_down_weight.cols", args.shared_down_weight.cols, width);
  check_size(check, "shared_expert_gate.rows", args.shared_expert_gate.rows, 1);
  check_size(check, "shared_expert_gate.cols", args.shared_expert_gate.cols, inputs);
  check.pointer("shared_hidden", args.shared_hidden);
  check.pointer("shared_y", args.shared_y);
  check.pointer("shared_scale", args.shared_scale);
}

frt_moe_route_args route_of(const frt_moe_block_args& args) {
  frt_moe_route_args route{};
  route.rows = args.rows;
  route.experts = args.experts;
  route.chosen = args.chosen;
  route.normalise = args.normalise;
  route.row_count = args.row_count;
  route.logits = args.logits;
  route.ids = args.ids;
  route.weights = args.weights;
  return route;
}

void check_block(const frt_moe_block_args& args) {
  const Checks check(FRT_OP_MOE_BLOCK);
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.pointer("x", args.x);
  if (args.residual) {
    check.dtype("residual_dtype", args.residual_dtype);
    check.pointer("norm_weight", args.norm_weight);
  } else {
    check.require(!args.delta, "delta", "is given without residual");
  }
  check_matrix(check, "router", args.router);
  check_size(check, "router.rows", args.router.rows, args.experts);
  check_size(check, "gate.expert.cols", args.gate.expert.cols, args.router.cols);
  check.pointer("logits", args.logits);
  check.at_least("shared_gate_weight.rows", args.shared_gate_weight.rows, 0);
  if (args.shared_gate_weight.rows > 0) check_shared(check, args);
  check_route(route_of(args));

  frt_moe_experts_args experts{};
  experts.dtype = args.dtype;
  experts.rows = args.rows;
  experts.experts = args.experts;
  experts.chosen = args.chosen;
  experts.x = args.x;
  experts.ids = args.ids;
  experts.weights = args.weights;
  experts.gate = args.gate;
  experts.up = args.up;
  experts.down = args.down;
  experts.y = args.y;
  check_experts_args(experts);
}

// ---- the operators ---------------------------------------------------------------------------

void run_block(Stream& stream, MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  if (args.rows == 0) return;
  block.inputs = args.gate.expert.cols;
  block.width = args.gate.expert.rows;
  block.shared = args.shared_gate_weight.rows > 0;
  block.shared_width = args.shared_gate_weight.rows;
  block.gate = make_moe_matrix(args.gate);
  block.up = make_moe_matrix(args.up);
  block.down = make_moe_matrix(args.down);
  if (!block.routed) block.router = make_moe_matrix(args.router);
  if (block.shared) {
    block.shared_gate = make_moe_matrix(args.shared_gate_weight);
    block.shared_up = make_moe_matrix(args.shared_up_weight);
    block.shared_down = make_moe_matrix(args.shared_down_weight);
    block.shared_scale = make_moe_matrix(args.shared_expert_gate);
  }
  if (moe_single(stream, block) || moe_fused(stream, block) || moe_decode(stream, block) ||
      moe_grouped(stream, block)) {
    return;
  }
  moe_general(stream, block);
}

void moe_route(Stream& stream, const frt_moe_route_args& args) {
  check_route(args);
  launch_moe_route(stream, args);
}

void moe_experts(Stream& stream, const frt_moe_experts_args& args) {
  check_experts_args(args);
  MoeBlock block{};
  block.routed = true;
  frt_moe_block_args& made = block.args;
  made.dtype = args.dtype;
  made.rows = args.rows;
  made.experts = args.experts;
  made.chosen = args.chosen;
  made.row_count = args.row_count;
  made.x = const_cast<void*>(args.x);
  made.ids = const_cast<int32_t*>(args.ids);
  made.weights = const_cast<float*>(args.weights);
  made.gate = args.gate;
  made.up = args.up;
  made.down = args.down;
  made.y = args.y;
  run_block(stream, block);
}

void moe_combine(Stream& stream, const frt_moe_combine_args& args) {
  check_combine(args);
  launch_moe_combine(stream, args);
}

void moe_block(Stream& stream, const frt_moe_block_args& args) {
  check_block(args);
  MoeBlock block{};
  block.args = args;
  run_block(stream, block);
}

}  // namespace

MoeMatrix make_moe_matrix(const frt_weight& weight) {
  MoeMatrix made;
  made.data = static_cast<const uint8_t*>(weight.data);
  made.scale = static_cast<const uint8_t*>(weight.scale);
  made.row_bytes = packed_bytes(weight.format, weight.cols);
  made.rows = weight.rows;
  made.cols = weight.cols;
  made.format = weight.format;
  made.scale_bf16 = weight.scale_dtype == FRT_DTYPE_BF16;
  made.global_scale = weight.global_scale;
  if (weight.format == FRT_WEIGHT_FP8_BLOCK) {
    made.block_rows = weight.block_rows;
    made.block_cols = weight.block_cols;
    made.scale_columns = static_cast<int32_t>(ceil_div(weight.cols, weight.block_cols));
    const auto block = static_cast<uint32_t>(weight.block_cols);
    made.block_shift = std::has_single_bit(block) ? std::countr_zero(block) : 0;
  }
  return made;
}

MoeMatrix make_moe_matrix(const frt_expert_weight& weight) {
  MoeMatrix made = make_moe_matrix(weight.expert);
  made.data_stride = weight.data_stride;
  made.scale_stride = weight.expert.scale ? weight.scale_stride : 0;
  made.global_scales = weight.global_scales;
  return made;
}

bool reads_in_portions(const MoeMatrix& matrix) {
  if (matrix.row_bytes % 16 != 0 || matrix.data_stride % 16 != 0 || matrix.cols % 8 != 0) {
    return false;
  }
  switch (matrix.format) {
    case FRT_WEIGHT_FP8_BLOCK:  // sixteen values share a scale
      return matrix.block_shift >= 4;
    case FRT_WEIGHT_NVFP4:  // the scales of thirty-two values are one access
      return reinterpret_cast<std::uintptr_t>(matrix.scale) % 2 == 0 &&
             matrix.scale_stride % 2 == 0;
    default:
      return true;
  }
}

void register_moe(KernelList& list) {
  list.add<frt_moe_route_args>(FRT_OP_MOE_ROUTE, 0, 0, moe_route);
  list.add<frt_moe_experts_args>(FRT_OP_MOE_EXPERTS, kFloatTypes, FRT_WEIGHT_ALL, moe_experts);
  list.add<frt_moe_combine_args>(FRT_OP_MOE_COMBINE, kFloatTypes, 0, moe_combine);
  list.add<frt_moe_block_args>(FRT_OP_MOE_BLOCK, kFloatTypes, FRT_WEIGHT_ALL, moe_block);
}

}  // namespace frt::cuda
