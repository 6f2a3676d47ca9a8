// SPDX-License-Identifier: Apache-2.0
// moe.hpp - the parts of the mixture-of-experts operators. moe.cu has the table of the variants.
//
// frt.moe_experts/1 is a block without norm, router and shared expert, whose ids are given.
#pragma once

#include <frt/ops/moe.h>

#include "../../stream.hpp"
#include "../common/weight.hpp"
#include "../variants.hpp"
#include "weights.cuh"

namespace frt::cuda {

class KernelList;

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

// ---- variants of the block ------------------------------------------------------------------
//
// Up to 16 rows a row has the same bits alone and among others (ops/linear.h says why). Two
// variants do not sum alike unless they say so: which one runs must not depend on the rows then.

// One row of one published shape, bf16, weights in bf16 or FP8: one kernel.
bool supports_moe_single(Device& device, MoeBlock& block);
void launch_moe_single(Stream& stream, MoeBlock& block);
// Up to 16 rows, with weights in FP8 up to 32, of the same shape: a kernel for eight of them, with
// the bits of the one for a single row.
bool supports_moe_few(Device& device, MoeBlock& block);
void launch_moe_few(Stream& stream, MoeBlock& block);
// Up to 16 rows, bf16, weights in bf16 or FP8: a kernel for eight of them, or for as many as fit.
bool supports_moe_fused(Device& device, MoeBlock& block);
void launch_moe_fused(Stream& stream, MoeBlock& block);
// Up to 16 rows, bf16: three kernels, weights streamed once for each selected expert.
bool supports_moe_decode(Device& device, MoeBlock& block);
void launch_moe_decode(Stream& stream, MoeBlock& block);
// More rows, bf16: rows sorted by expert, products on tensor cores, each by the first of four
// variants (grouped.cu): FP4 by FP4, wgmma, dequantised in memory before, mma.sync.
bool supports_moe_grouped(Device& device, MoeBlock& block);
void launch_moe_grouped(Stream& stream, MoeBlock& block);
void register_moe_grouped(KernelList& list);
// Every type and shape, one value at a time.
void launch_moe_general(Stream& stream, MoeBlock& block);

// ---- the small operators (route.cu)  [driver] ------------------------------------------------

void launch_moe_route(Stream& stream, const frt_moe_route_args& args);
void launch_moe_combine(Stream& stream, const frt_moe_combine_args& args);
// residual += delta; x = norm(residual); with a shared expert, its scale = x . shared_scale.
// Without residual only the last.
void launch_moe_norm(Stream& stream, const MoeBlock& block, bool with_scale);

}  // namespace frt::cuda
