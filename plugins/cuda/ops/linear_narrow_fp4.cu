// SPDX-License-Identifier: Apache-2.0
// Of the streaming kernel: NVFP4 weights, or those and BF16, up to eight rows of x.
#include "linear_narrow_forms.cuh"

namespace frt::cuda {

NarrowKernel narrow_fp4_kernel(const NarrowPlan& plan, bool several) {
  return narrow::kernel_of_kind<NarrowKind::kNvfp4>(plan, several);
}

}  // namespace frt::cuda
