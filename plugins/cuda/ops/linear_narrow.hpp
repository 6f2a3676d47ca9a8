// SPDX-License-Identifier: Apache-2.0
// linear_narrow.hpp - the kernels of narrow products.
#pragma once

#include "linear_narrow_plan.hpp"

namespace frt::cuda {

using NarrowKernel = void (*)(const NarrowArgs);

// Of the streaming kernel those for up to eight rows and parts of one kind, or of that and BF16;
// FP8: with scales of blocks.
NarrowKernel narrow_bf16_kernel(const NarrowPlan& plan, bool several);
NarrowKernel narrow_fp8_kernel(const NarrowPlan& plan, bool several);
NarrowKernel narrow_fp4_kernel(const NarrowPlan& plan, bool several);

// The streaming kernel (linear_narrow_stream.cuh).  [driver]
void launch_narrow_stream(Stream& stream, const NarrowPlan& plan, const NarrowArgs& args);

// BF16 weights and all rows (up to 16) in one launch, with the same bits; of `args` what
// plan_narrow() gives, rows and x (linear_narrow_more.cu).  [driver]
void launch_narrow_more(Stream& stream, const NarrowArgs& args);

// FP8 or NVFP4 weights and all rows (up to 16) in one launch, with the same bits, where x does not
// fit beside the ring; `args` as family_parts() gives them (linear_narrow_streamed_x.cu).  [driver]
void launch_narrow_streamed_x(Stream& stream, const NarrowPlan& plan, const NarrowArgs& args);

// Every format, type, size and alignment, one value at a time; any number of rows.  [driver]
void launch_narrow_general(Stream& stream, const Product& product);

}  // namespace frt::cuda
