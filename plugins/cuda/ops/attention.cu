// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

namespace frt::cuda {

void register_attention(KernelList&) {}

}  // namespace frt::cuda
