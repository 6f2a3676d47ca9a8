// SPDX-License-Identifier: Apache-2.0
// realtime.hpp - a steady clock, and what the operating system can do for it.
#pragma once

#include <cstdint>
#include <string>

namespace frt::host {

struct RealtimeOptions {
  bool lock_memory =
      false;              // mlockall: no page of the process is ever paged out or faulted in late
  int fifo_priority = 0;  // SCHED_FIFO of the calling thread; 0: leave it
  int cpu = -1;           // core of the calling thread; -1: any
};

// Applies the options to this process and the calling thread, whose sleeps end when they are due
// from now on (no timer slack); one line for people. What the system refuses is an error with the
// way to allow it, never silently left out: FRT_ERR_UNSUPPORTED.  [setup]
std::string apply_realtime(const RealtimeOptions& options);

// Nanoseconds of CLOCK_MONOTONIC.  [any]
int64_t monotonic_ns() noexcept;
inline double ms_between(int64_t from_ns, int64_t to_ns) noexcept {
  return static_cast<double>(to_ns - from_ns) * 1e-6;
}
// How long a loop that waits for a device sleeps before it asks again.
inline constexpr int64_t kPollNs = 50000;
// Sleeps until then; returns at once if it is past.  [hot]
void sleep_until_ns(int64_t when) noexcept;

// Equal periods from a start: tick n is at start + n * period, however late the ones before were.
// It sleeps until `spin_us` before a tick is due and waits busily then: steadier where SCHED_FIFO
// is not allowed, and it costs that share of a core.
class Ticker {
 public:
  explicit Ticker(double hz, double spin_us = 0) noexcept
      : period_ns_(static_cast<int64_t>(1e9 / hz)), spin_ns_(static_cast<int64_t>(spin_us * 1e3)) {}

  int64_t period_ns() const noexcept { return period_ns_; }
  void start() noexcept { next_ = monotonic_ns() + period_ns_; }
  // When the tick that wait() will return at is due.
  int64_t due_ns() const noexcept { return next_; }
  // Until when something else can be done before wait().
  int64_t wake_ns() const noexcept { return next_ - spin_ns_; }
  // Sleeps until the next tick; how late this thread woke up, in nanoseconds. Ticks that are over
  // by more than a period are not made up for: `skipped` counts them.  [hot]
  int64_t wait() noexcept;
  uint64_t skipped() const noexcept { return skipped_; }

 private:
  int64_t period_ns_, spin_ns_;
  int64_t next_ = 0;
  uint64_t skipped_ = 0;
};

}  // namespace frt::host
