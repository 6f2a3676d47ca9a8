// SPDX-License-Identifier: Apache-2.0
// frt.gated_delta/1 and frt.gated_delta_block/1: the tables of their variants.
//
// Heads of 128 in bf16, the shape of the models: a few rows per sequence go through one kernel that
// does everything (step.cu), many rows through chunks on tensor cores (chunk.cu).
// Everything else is composed of the convolution, the recurrence and the norm.
#include "gated_delta.cuh"

#include <frt/ops/checks/gated_delta.hpp>

#include "../registry.hpp"
#include "causal_conv.cuh"

namespace frt::cuda {
namespace {

void launch_composed(Stream& stream, DeltaCall& work) {
  if (work.block) launch_causal_conv(stream, work.block->conv);
  launch_delta_recurrent(stream, work.delta);
  if (work.block) launch_gated_norm(stream, *work.block);
}

constexpr Variant<DeltaCall> kDeltaVariants[] = {
    {"step", {}, supports_delta_step, launch_delta_step},
    {"chunk", {}, supports_delta_chunk, launch_delta_chunk},
    {"recurrent", {}, nullptr, launch_composed},
};
constexpr Variants<DeltaCall> kDeltaTable{FRT_OP_GATED_DELTA, kDeltaVariants};

constexpr Variant<DeltaCall> kBlockVariants[] = {
    {"step-conv", {feature::kClusters}, supports_delta_step_conv, launch_delta_step_conv},
    {"step", {}, supports_delta_step, launch_delta_step},
    {"chunk", {}, supports_delta_chunk, launch_delta_chunk},
    {"composed", {}, nullptr, launch_composed},
};
constexpr Variants<DeltaCall> kBlockTable{FRT_OP_GATED_DELTA_BLOCK, kBlockVariants};

void gated_delta(Stream& stream, const frt_gated_delta_args& args) {
  check_gated_delta(Checks(FRT_OP_GATED_DELTA), args);
  const DeltaWork work{args};
  run_variant(stream, kDeltaTable, work);
}

void gated_delta_block(Stream& stream, const frt_gated_delta_block_args& args) {
  check_gated_delta_block(Checks(FRT_OP_GATED_DELTA_BLOCK), args);
  const DeltaWork work{args.delta, &args};
  run_variant(stream, kBlockTable, work);
}

}  // namespace

void register_gated_delta(KernelList& list) {
  list.add<frt_gated_delta_args>(FRT_OP_GATED_DELTA, kFloatTypes, {}, gated_delta);
  list.add<frt_gated_delta_block_args>(FRT_OP_GATED_DELTA_BLOCK, kFloatTypes, {},
                                       gated_delta_block);
  list.add_variants(kDeltaTable);
  list.add_variants(kBlockTable);
  register_delta_chunk(list);
}

}  // namespace frt::cuda
