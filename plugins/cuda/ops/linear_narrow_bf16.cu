// SPDX-License-Identifier: Apache-2.0
// Of the streaming kernel: BF16 weights, up to eight rows of x.
#include "linear_narrow_forms.cuh"

namespace frt::cuda {

NarrowKernel narrow_bf16_kernel(const NarrowPlan& plan, bool several) {
  return narrow::kernel_of_kind<NarrowKind::kBf16>(plan, several);
}

}  // namespace frt::cuda
