// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

namespace frt::cuda {

void register_moe(KernelList&) {}

}  // namespace frt::cuda
