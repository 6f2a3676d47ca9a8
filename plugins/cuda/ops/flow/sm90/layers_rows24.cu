// SPDX-License-Identifier: Apache-2.0
// The layers of an expert as one kernel, for up to 24 rows: a chunk of ten actions.
#include "layers_kernel.cuh"

namespace frt::cuda {

FlowKernel flow_kernel_24(bool fp8) {
  return fp8 ? flow_kernel_of<24, true>() : flow_kernel_of<24, false>();
}

}  // namespace frt::cuda
