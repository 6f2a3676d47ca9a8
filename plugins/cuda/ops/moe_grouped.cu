// SPDX-License-Identifier: Apache-2.0
#include "moe.hpp"

namespace frt::cuda {
bool moe_grouped(Stream&, const MoeBlock&) {
  return false;
}
}  // namespace frt::cuda
