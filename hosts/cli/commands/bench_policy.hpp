// SPDX-License-Identifier: Apache-2.0
// bench_policy.hpp - `frt-host bench policy`.
#pragma once

#include <functional>

#include "cli/app.hpp"

namespace frt::host {

// Adds its options to `command`; returns what it does.
std::function<ExitCode()> add_bench_policy(App& app, Command command);

}  // namespace frt::host
