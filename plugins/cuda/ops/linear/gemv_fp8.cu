// SPDX-License-Identifier: Apache-2.0
// Of the streaming kernel: FP8 weights with a scale for each block, or those and BF16, up to eight
// rows of x.
#include "gemv_stream_kernels.cuh"

namespace frt::cuda {

GemvKernel gemv_fp8_kernel(const GemvPlan& plan, bool several) {
  return gemv::kernel_of_kind<GemvKind::kFp8Block>(plan, several);
}

}  // namespace frt::cuda
