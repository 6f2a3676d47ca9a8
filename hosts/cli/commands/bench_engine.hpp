// SPDX-License-Identifier: Apache-2.0
// bench_engine.hpp - `frt-host bench engine`.
#pragma once

#include <functional>

#include "cli/app.hpp"

namespace frt::host {

// Adds its options to `command`; returns what it does.
std::function<ExitCode()> add_bench_engine(App& app, Command command);

}  // namespace frt::host
