// SPDX-License-Identifier: Apache-2.0
// clock.hpp - the clock of servers: deadlines and ages.
#pragma once

#include <chrono>

namespace frt::host {

using ServerClock = std::chrono::steady_clock;

inline double milliseconds_since(ServerClock::time_point start) noexcept {
  return std::chrono::duration<double, std::milli>(ServerClock::now() - start).count();
}

}  // namespace frt::host
