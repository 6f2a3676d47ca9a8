// SPDX-License-Identifier: Apache-2.0
// deadlines.hpp - when a connection has waited long enough, for each thing that it can wait for. No
// timers: who holds it asks for due() and takes what has expired. Allocates nothing; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "net/clock.hpp"

namespace frt::host {

// `Which` is an enum of what can be waited for, from 0 to its member kCount.
template <class Which>
class Deadlines {
 public:
  using Time = ServerClock::time_point;

  Deadlines() { until_.fill(Time::max()); }

  void set(Which which, Time until) noexcept { until_[index(which)] = until; }
  void clear(Which which) noexcept { until_[index(which)] = Time::max(); }
  // The earliest; Time::max(): none is set.
  Time due() const noexcept { return *std::min_element(until_.begin(), until_.end()); }
  // One that has expired at `now`; it is cleared.
  std::optional<Which> take_expired(Time now) noexcept {
    for (std::size_t i = 0; i < until_.size(); ++i) {
      if (until_[i] > now) continue;
      until_[i] = Time::max();
      return static_cast<Which>(i);
    }
    return std::nullopt;
  }

 private:
  static std::size_t index(Which which) noexcept { return static_cast<std::size_t>(which); }

  std::array<Time, static_cast<std::size_t>(Which::kCount)> until_;
};

}  // namespace frt::host
