// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

namespace frt::cpu {

void register_operators(KernelList& list) {
  register_rows(list);
}

}  // namespace frt::cpu
