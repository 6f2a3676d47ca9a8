// SPDX-License-Identifier: Apache-2.0
// gemv.hpp - the kernels of GEMVs.
#pragma once

#include "gemv_plan.hpp"

namespace frt::cuda {

using GemvKernel = void (*)(const GemvArgs);

// What the variants are given: parts of one x, planned for all rows of it.
struct GemvCall {
  const Product* product = nullptr;  // x and its rows
  GemvArgs args;
  GemvPlan plan;  // rows 0: the weight of `product` has no part
};

// y = silu(x Wg^T) * (x Wu^T), both rounded to y's type before; `gate` holds Wg and y, `up` is of
// the same shape; rows <= kGemvRows. False where the two do not go together in one kernel: then
// compose it.  [driver]
bool plan_gemv_gate_up(Device& device, const Product& gate, const Weight& up, GemvAhead ahead,
                       GemvCall& call);
// Submits what plan_gemv_gate_up() made.  [driver]
void gemv_planned(Stream& stream, GemvCall& call);
inline GemvAhead gemv_ahead(const Stream& stream) {
  return stream.early_reads_safe() ? GemvAhead::kProduct : GemvAhead::kOther;
}

// Of the streaming kernel those for up to eight rows and parts of one kind, or of that and BF16;
// FP8: with scales of blocks.
GemvKernel gemv_bf16_kernel(const GemvPlan& plan, bool several);
GemvKernel gemv_fp8_kernel(const GemvPlan& plan, bool several);
GemvKernel gemv_fp4_kernel(const GemvPlan& plan, bool several);

// The streaming kernel (gemv_stream.cuh).  [driver]
void launch_gemv_stream(Stream& stream, const GemvPlan& plan, const GemvArgs& args);

// BF16 weights and all rows (up to 16) in one launch, with the same bits; of `args` what
// plan_gemv() gives, rows and x (gemv_streamed_x_bf16.cu).  [driver]
void launch_gemv_streamed_x_bf16(Stream& stream, const GemvArgs& args);

// FP8 or NVFP4 weights and all rows (up to 16) in one launch, with the same bits, where x does not
// fit beside the ring; `args` as family_parts() gives them (gemv_streamed_x_quantised.cu). [driver]
void launch_gemv_streamed_x_quantised(Stream& stream, const GemvPlan& plan, const GemvArgs& args);

// Every format, type, size and alignment, one value at a time; any number of rows.  [driver]
void launch_gemv_general(Stream& stream, const Product& product);

}  // namespace frt::cuda
