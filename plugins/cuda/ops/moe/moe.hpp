// SPDX-License-Identifier: Apache-2.0
// moe.hpp - the parts of the mixture-of-experts operators, and what selects between them.
//
//   single    one row of one published shape, bf16, sm_90, weights in bf16 or FP8: one kernel
//             (moe_single)
//   few       rows <= 16, FP8 <= 32, of the same shape: a kernel for eight of them, with the bits
//             of single (moe_few)
//   fused     rows <= 8, bf16, sm_90, weights in bf16 or FP8: one kernel (moe_fused)
//   decode    rows <= 16, bf16: three kernels, weights streamed once per selected expert
//   (moe_decode) grouped   more rows, bf16: rows sorted by expert, products on tensor cores
//   (grouped*) general   every type and shape, one value at a time (moe_general)
//
// frt.moe_experts/1 is a block without norm, router and shared expert, whose ids are given.
#pragma once

#include <frt/ops/moe.h>

#include "../../stream.hpp"
#include "../common/weight.hpp"
#include "weights.cuh"

namespace frt::cuda {

// The argument struct of a block, checked, with its matrices as the device code wants them.
struct MoeBlock {
  frt_moe_block_args args;
  bool routed;  // ids and weights are given; there is no router
  bool shared;  // there is a shared expert
  int32_t inputs, width, shared_width;
  MoeMatrix router, gate, up, down;
  MoeMatrix shared_gate, shared_up, shared_down, shared_scale;
};

MoeMatrix make_moe_matrix(const Weight& weight);
MoeMatrix make_moe_matrix(const frt_expert_weight& weight);

// Whether rows of the matrix can be read in 16-byte portions, with one local scale per eight.
bool reads_in_portions(const MoeMatrix& matrix);

// The six variants. The first five return false, having done nothing, where they do not fit.
// [driver]
bool moe_single(Stream& stream, const MoeBlock& block);
bool moe_few(Stream& stream, const MoeBlock& block);
bool moe_fused(Stream& stream, const MoeBlock& block);
bool moe_decode(Stream& stream, const MoeBlock& block);
bool moe_grouped(Stream& stream, const MoeBlock& block);
void moe_general(Stream& stream, const MoeBlock& block);

// ---- the small operators (route.cu)  [driver]
// ------------------------------------------------

void launch_moe_route(Stream& stream, const frt_moe_route_args& args);
void launch_moe_combine(Stream& stream, const frt_moe_combine_args& args);
// residual += delta; x = norm(residual); with a shared expert, its scale = x . shared_scale.
// Without residual only the last.
void launch_moe_norm(Stream& stream, const MoeBlock& block, bool with_scale);

}  // namespace frt::cuda
