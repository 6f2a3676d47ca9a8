// SPDX-License-Identifier: Apache-2.0
// Of the streaming kernel: FP8 weights with a scale for each block, or those and BF16, up to eight
// rows of x.
#include "linear_narrow_forms.cuh"

namespace frt::cuda {

NarrowKernel narrow_fp8_kernel(const NarrowPlan& plan, bool several) {
  return narrow::kernel_of_kind<NarrowKind::kFp8Block>(plan, several);
}

}  // namespace frt::cuda
