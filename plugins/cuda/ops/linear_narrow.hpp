// SPDX-License-Identifier: Apache-2.0
// linear_narrow.hpp - the two kernels of narrow products.
#pragma once

#include "linear_narrow_plan.hpp"

namespace frt::cuda {

// The streaming kernel (linear_narrow_stream.cuh).  [driver]
void launch_narrow_stream(Stream& stream, const NarrowPlan& plan, const NarrowArgs& args);

// Every format, type, size and alignment, one value at a time; any number of rows.  [driver]
void launch_narrow_general(Stream& stream, const Product& product);

}  // namespace frt::cuda
