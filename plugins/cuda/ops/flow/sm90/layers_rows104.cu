// SPDX-License-Identifier: Apache-2.0
// The layers of an expert as one kernel, for up to 104 rows: two chunks of fifty actions, or one of
// a hundred.
#include "layers_kernel.cuh"

namespace frt::cuda {

FlowKernel flow_kernel_104() {
  return flow_kernel_of<104, false>();
}

}  // namespace frt::cuda
