// SPDX-License-Identifier: Apache-2.0
// warm_up.hpp - the first inference of every variant, before somebody waits for it. A first replay
// is late: memory is touched for the first time, a device loads code, caches are cold.
#pragma once

#include <cstdint>
#include <functional>

#include "robot/control/episode_boundary.hpp"
#include "robot/policy_runner.hpp"

namespace frt::host {

// Replays each variant of one sample once, on inputs of its own, and returns how many there were.
// Afterwards `boundary` brings back the state and the inputs of before: what the next observation
// gets is the same to the bit as without a warm-up. Asks `cancelled` between replays and stops
// there.  [driver]
uint32_t warm_up(const PolicyRunner& runner, EpisodeBoundary& boundary,
                 const std::function<bool()>& cancelled);

}  // namespace frt::host
