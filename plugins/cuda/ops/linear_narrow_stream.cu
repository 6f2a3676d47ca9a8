// SPDX-License-Identifier: Apache-2.0
#include "linear_narrow_stream.cuh"

#include "linear_narrow.hpp"

namespace frt::cuda {

void launch_narrow_stream(Stream& stream, const NarrowPlan& plan, const NarrowArgs& args) {
  const Grid grid{dim3(static_cast<unsigned>(plan.blocks)),
                  dim3(static_cast<unsigned>(plan.warps * 32)), plan.shared_bytes};
  launch(stream, grid, args.rows > 8 ? narrow::narrow_stream<2> : narrow::narrow_stream<1>, args);
}

}  // namespace frt::cuda
