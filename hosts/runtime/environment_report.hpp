// SPDX-License-Identifier: Apache-2.0
// environment_report.hpp - what an environment gives and takes, for people and programs.
#pragma once

#include <nlohmann/json.hpp>
#include "runtime/plugin_environment.hpp"

namespace frt::host {

// Its ports, action, tasks, limits, and what else it can do.  [any]
nlohmann::ordered_json environment_json(const PluginEnvironment& environment);

}  // namespace frt::host
