// SPDX-License-Identifier: Apache-2.0
// ops/delta/causal_conv.cuh - the depthwise convolution before the delta rule, for the operator
// itself and for the block.
#pragma once

#include <frt/ops/gated_delta.h>

#include "../../kernel_list.hpp"

namespace frt::cuda {

// All sequences: c, then the windows. The arguments are checked.  [driver]
void launch_causal_conv(Stream& stream, const frt_causal_conv_args& args);

}  // namespace frt::cuda
