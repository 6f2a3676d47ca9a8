// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

namespace frt::cuda {

void register_gated_delta(KernelList&) {}

}  // namespace frt::cuda
