// SPDX-License-Identifier: Apache-2.0
// step.hpp - a step of flow matching where sizes are those of a network: bf16 rows of at most
// 1024 values under an adaptive norm, at most 32 of x.
#pragma once

#include <frt/ops/flow.h>

#include "../variants.hpp"

namespace frt::cuda {

using FlowStepCall = const frt_flow_step_args;

// Whether sizes and alignments suit.
bool flow_step_supports(Device& device, FlowStepCall& args);
void launch_flow_step(Stream& stream, FlowStepCall& args);  // [driver]

}  // namespace frt::cuda
