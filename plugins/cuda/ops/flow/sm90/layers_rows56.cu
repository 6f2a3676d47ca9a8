// SPDX-License-Identifier: Apache-2.0
// The layers of an expert as one kernel, for up to 56 rows: a chunk of fifty actions.
#include "layers_kernel.cuh"

namespace frt::cuda {

FlowKernel flow_kernel_56(bool fp8) {
  return fp8 ? flow_kernel_of<56, true>() : flow_kernel_of<56, false>();
}

}  // namespace frt::cuda
