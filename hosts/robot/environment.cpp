// SPDX-License-Identifier: Apache-2.0
#include "robot/environment.hpp"

#include <frt/error.hpp>

namespace frt::host {

void require_action_width(const Environment& environment, uint32_t width,
                          const std::string& policy) {
  if (width >= environment.action_dim()) return;
  throw Error(FRT_ERR_MISMATCH, "the environment takes actions of " +
                                    std::to_string(environment.action_dim()) + " values, model '" +
                                    policy + "' gives " + std::to_string(width));
}

}  // namespace frt::host
