// SPDX-License-Identifier: Apache-2.0
// layers.hpp - the layers of a flow expert as one kernel.
#pragma once

#include <frt/ops/flow_layers.h>

#include "../../stream.hpp"

namespace frt::cuda {

// Checked arguments. False, and nothing is submitted: this device or these shapes, types and
// formats are not for it (flow/sm90/layers_fused.cu).  [driver]
bool flow_layers_fused(Stream& stream, const frt_flow_layers_args& args);

}  // namespace frt::cuda
