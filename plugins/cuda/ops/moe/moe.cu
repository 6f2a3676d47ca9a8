// SPDX-License-Identifier: Apache-2.0
// The mixture-of-experts operators: their arguments are checked here and given to the first
// variant that supports them (moe.hpp).
#include <bit>
#include <frt/checks.hpp>
#include <string>

#include "../common/launch.cuh"
#include "../common/weight.hpp"
#include "../registry.hpp"
#include "moe.hpp"

namespace frt::cuda {
namespace {

// ---- checks ----------------------------------------------------------------------------------

void check_size(const Checks& check, const std::string& argument, int32_t value, int32_t expected) {
  check.require(value == expected, argument.c_str(),
                "is " + std::to_string(value) + ", expected " + std::to_string(expected));
}

void check_route(const frt_moe_route_args& args) {
  const Checks check(FRT_OP_MOE_ROUTE);
  check.at_least("rows", args.rows, 0);
  check.positive("experts", args.experts);
  check.range("experts_per_token", args.experts_per_token, 1, args.experts);
  check.pointer("logits", args.logits);
  check.pointer("ids", args.ids);
  check.pointer("weights", args.weights);
}

void check_experts_args(const frt_moe_experts_args& args) {
  const Checks check(FRT_OP_MOE_EXPERTS);
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.positive("experts", args.experts);
  check.range("experts_per_token", args.experts_per_token, 1, args.experts);
  check.require(static_cast<int64_t>(args.rows) * args.experts_per_token <= INT32_MAX, "rows",
                "times experts_per_token is more than 2^31");
  check.pointer("x", args.x);
  check.pointer("ids", args.ids);
  check.pointer("weights", args.weights);
  check.pointer("y", args.y);
  check_expert_weight(check, "gate", args.gate);
  check_expert_weight(check, "up", args.up);
  check_expert_weight(check, "down", args.down);
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
  check_weight(check, "shared_gate_weight", args.shared_gate_weight);
  check_weight(check, "shared_up_weight", args.shared_up_weight);
  check_weight(check, "shared_down_weight", args.shared_down_weight);
  check_weight(check, "shared_expert_gate", args.shared_expert_gate);
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
  route.experts_per_token = args.experts_per_token;
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
  check_weight(check, "router", args.router);
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
  experts.experts_per_token = args.experts_per_token;
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

constexpr FeatureSet kExchanges =
    feature::kPdl | feature::kClusters | feature::kBulkCopies | feature::kCoResident;
constexpr Variant<MoeBlock> kBlockVariants[] = {
    {"single-row", {kExchanges}, supports_moe_single, launch_moe_single},
    {"few-rows", {kExchanges}, supports_moe_few, launch_moe_few},
    {"fused", {kExchanges}, supports_moe_fused, launch_moe_fused},
    {"decode", {}, supports_moe_decode, launch_moe_decode},
    {"grouped", {}, supports_moe_grouped, launch_moe_grouped},
    {"general", {}, nullptr, launch_moe_general},
};
constexpr Variants<MoeBlock> kBlockTable{FRT_OP_MOE_BLOCK, kBlockVariants};

// A block whose ids are given has no part that blocks could exchange.
constexpr Variant<MoeBlock> kExpertsVariants[] = {
    {"decode", {}, supports_moe_decode, launch_moe_decode},
    {"grouped", {}, supports_moe_grouped, launch_moe_grouped},
    {"general", {}, nullptr, launch_moe_general},
};
constexpr Variants<MoeBlock> kExpertsTable{FRT_OP_MOE_EXPERTS, kExpertsVariants};

void run_block(Stream& stream, const Variants<MoeBlock>& table, MoeBlock& block) {
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
  run_variant(stream, table, block);
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
  made.experts_per_token = args.experts_per_token;
  made.row_count = args.row_count;
  made.x = const_cast<void*>(args.x);
  made.ids = const_cast<int32_t*>(args.ids);
  made.weights = const_cast<float*>(args.weights);
  made.gate = args.gate;
  made.up = args.up;
  made.down = args.down;
  made.y = args.y;
  run_block(stream, kExpertsTable, block);
}

void moe_combine(Stream& stream, const frt_moe_combine_args& args) {
  check_combine(args);
  launch_moe_combine(stream, args);
}

void moe_block(Stream& stream, const frt_moe_block_args& args) {
  check_block(args);
  MoeBlock block{};
  block.args = args;
  run_block(stream, kBlockTable, block);
}

}  // namespace

MoeMatrix make_moe_matrix(const Weight& weight) {
  const int64_t bits = weight.type == WeightType::kF32     ? 32
                       : weight.type == WeightType::kBf16  ? 16
                       : weight.type == WeightType::kNvfp4 ? 4
                                                           : 8;
  MoeMatrix made;
  made.data = static_cast<const uint8_t*>(weight.data);
  made.scale = static_cast<const uint8_t*>(weight.scale);
  made.row_bytes = weight.cols * bits / 8;
  made.rows = weight.rows;
  made.cols = weight.cols;
  made.type = weight.type;
  made.scale_bf16 = weight.scale_dtype == FRT_DTYPE_BF16;
  made.global_scale = weight.global_scale;
  if (weight.type == WeightType::kFp8Block) {
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
  made.global_scales =
      weight.expert.format.flags & FRT_WEIGHT_GLOBAL_SCALE ? weight.global_scales : nullptr;
  return made;
}

bool reads_in_portions(const MoeMatrix& matrix) {
  if (matrix.row_bytes % 16 != 0 || matrix.data_stride % 16 != 0 || matrix.cols % 8 != 0) {
    return false;
  }
  switch (matrix.type) {
    case WeightType::kFp8Block:  // sixteen values share a scale
      return matrix.block_shift >= 4;
    case WeightType::kNvfp4:  // the scales of thirty-two values are one access
      return reinterpret_cast<std::uintptr_t>(matrix.scale) % 2 == 0 &&
             matrix.scale_stride % 2 == 0;
    default:
      return true;
  }
}

void register_moe(KernelList& list) {
  list.add<frt_moe_route_args>(FRT_OP_MOE_ROUTE, 0, {}, moe_route);
  list.add<frt_moe_experts_args>(FRT_OP_MOE_EXPERTS, kFloatTypes, kWeightFormats, moe_experts);
  list.add<frt_moe_combine_args>(FRT_OP_MOE_COMBINE, kFloatTypes, {}, moe_combine);
  list.add<frt_moe_block_args>(FRT_OP_MOE_BLOCK, kFloatTypes, kWeightFormats, moe_block);
  list.add_variants(kBlockTable);
  list.add_variants(kExpertsTable);
  register_moe_grouped(list);
}

}  // namespace frt::cuda
