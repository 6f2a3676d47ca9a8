// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

namespace frt::cuda {

void register_rows(KernelList&) {}

}  // namespace frt::cuda
