// SPDX-License-Identifier: Apache-2.0
// The mixture-of-experts operators: arguments are given to the first variant that supports them
// (moe.hpp).
#include <frt/ops/checks/moe.hpp>

#include <bit>

#include "../common/launch.cuh"
#include "../common/weight.hpp"
#include "../registry.hpp"
#include "moe.hpp"

namespace frt::cuda {
namespace {

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
  check_moe_route(Checks(FRT_OP_MOE_ROUTE), args);
  launch_moe_route(stream, args);
}

void moe_experts(Stream& stream, const frt_moe_experts_args& args) {
  check_moe_experts(Checks(FRT_OP_MOE_EXPERTS), args, kWeightFormats);
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
  check_moe_combine(Checks(FRT_OP_MOE_COMBINE), args);
  launch_moe_combine(stream, args);
}

void moe_block(Stream& stream, const frt_moe_block_args& args) {
  check_moe_block(Checks(FRT_OP_MOE_BLOCK), args, kWeightFormats);
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
