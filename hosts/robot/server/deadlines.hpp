// SPDX-License-Identifier: Apache-2.0
// deadlines.hpp - when a connection has waited long enough, for each thing that it can wait for. No
// timers: who holds it asks for due() and takes what has expired. Allocates nothing; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "robot/server/context.hpp"

namespace frt::host {

class Deadlines {
 public:
  using Time = ServerClock::time_point;
  enum Which {
    kHandshake,  // from the accept until the websocket is open
    kReceive,    // from a message's first byte to its last
    kReply,      // from a request's last byte until the answer is there
    kWrite,      // while something is written or the close is under way
    kSilence,    // since the client's last sign of life
    kRetry,      // until memory is asked for again
    kCount
  };

  Deadlines() { until_.fill(Time::max()); }

  void set(Which which, Time until) noexcept { until_[which] = until; }
  void clear(Which which) noexcept { until_[which] = Time::max(); }
  // The earliest; Time::max(): none is set.
  Time due() const noexcept { return *std::min_element(until_.begin(), until_.end()); }
  // One that has expired at `now`; it is cleared.
  std::optional<Which> take_expired(Time now) noexcept {
    for (int which = 0; which < kCount; ++which) {
      if (until_[static_cast<std::size_t>(which)] > now) continue;
      clear(static_cast<Which>(which));
      return static_cast<Which>(which);
    }
    return std::nullopt;
  }

 private:
  std::array<Time, kCount> until_;
};

}  // namespace frt::host
