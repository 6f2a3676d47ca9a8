// SPDX-License-Identifier: Apache-2.0
// causal_conv.hpp - the depthwise convolution before the delta rule, for the operator itself and
// for the fused block.
#pragma once

#include <frt/ops/gated_delta.h>

#include <cstdint>

#include "../pool.hpp"

namespace frt::cpu {

// All sequences, in parallel over blocks of channels.  [hot]
void run_causal_conv(bool reference, const frt_causal_conv_args& args, Pool& pool) noexcept;

// Channels [first, end) of sequence `b`: all its rows and the window.  [hot]
void causal_conv_channels(bool reference, const frt_causal_conv_args& args, int64_t b,
                          int32_t first, int32_t end) noexcept;

}  // namespace frt::cpu
