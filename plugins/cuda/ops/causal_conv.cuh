// SPDX-License-Identifier: Apache-2.0
// ops/causal_conv.cuh - the depthwise convolution before the delta rule, for the operator itself
// and for the block.
#pragma once

#include <frt/ops/gated_delta.h>
#include <frt/checks.hpp>

#include "../kernel_list.hpp"

namespace frt::cuda {

// Throws for arguments that frt.causal_conv/1 refuses.  [setup]
void check_causal_conv(const Checks& check, const frt_causal_conv_args& args);

// All sequences: c, then the windows. The arguments are checked.  [driver]
void launch_causal_conv(Stream& stream, const frt_causal_conv_args& args);

}  // namespace frt::cuda
