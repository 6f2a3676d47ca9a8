// SPDX-License-Identifier: Apache-2.0
// layers.hpp - the layers of a flow expert as one kernel.
#pragma once

#include <frt/ops/flow_layers.h>

#include "../variants.hpp"

namespace frt::cuda {

using FlowLayersCall = const frt_flow_layers_args;

// The one kernel (sm90/layers_fused.cu): which shapes, types and formats it supports, and its
// launch. [driver]
bool supports_flow_layers_fused(Device& device, FlowLayersCall& args);
void launch_flow_layers_fused(Stream& stream, FlowLayersCall& args);

}  // namespace frt::cuda
