// SPDX-License-Identifier: Apache-2.0
// Of the streaming kernel: NVFP4 weights, or those and BF16, up to eight rows of x.
#include "gemv_stream_kernels.cuh"

namespace frt::cuda {

GemvKernel gemv_fp4_kernel(const GemvPlan& plan, bool several) {
  return gemv::kernel_of_kind<GemvKind::kNvfp4>(plan, several);
}

}  // namespace frt::cuda
