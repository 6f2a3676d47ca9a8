// SPDX-License-Identifier: Apache-2.0
// Of the streaming kernel: BF16 weights, up to eight rows of x.
#include "gemv_stream_kernels.cuh"

namespace frt::cuda {

GemvKernel gemv_bf16_kernel(const GemvPlan& plan, bool several) {
  return gemv::kernel_of_kind<GemvKind::kBf16>(plan, several);
}

}  // namespace frt::cuda
