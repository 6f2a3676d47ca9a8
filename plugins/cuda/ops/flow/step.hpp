// SPDX-License-Identifier: Apache-2.0
// step.hpp - a step of flow matching where sizes are those of a network: bf16 rows of at most
// 1024 values under an adaptive norm, at most 32 of x.
#pragma once

#include <frt/ops/flow.h>

#include "../../stream.hpp"

namespace frt::cuda {

// Whether device, sizes and alignments suit.
bool flow_step_supports(const Device& device, const frt_flow_step_args& args);

// Checked arguments that are taken.  [driver]
void launch_flow_step(Stream& stream, const frt_flow_step_args& args);

}  // namespace frt::cuda
