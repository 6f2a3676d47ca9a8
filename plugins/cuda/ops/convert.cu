// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

namespace frt::cuda {

void register_convert(KernelList&) {}

}  // namespace frt::cuda
