// SPDX-License-Identifier: Apache-2.0
// environment.hpp - the reaching task under its name, "reach".
#pragma once

#include "robot/environment_registry.hpp"

namespace frt::host {

// The world reads image and state under the first such names of the policy.  [setup]
void add_reach_environment(EnvironmentRegistry& environments);

}  // namespace frt::host
