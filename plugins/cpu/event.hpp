// SPDX-License-Identifier: Apache-2.0
// event.hpp - a point in a stream's order that streams and hosts can wait for.
//
// An event stores no state of its own: it remembers the stream position of its last record, and
// the stream's progress counter says whether that is reached. Timing events also keep the time at
// which the stream's thread passed the record.
#pragma once

#include <frt/backend.h>

#include <atomic>
#include <cstdint>

#include "stream.hpp"

namespace frt::cpu {

class Event {
 public:
  Event(Device& device, uint32_t flags) : device_(device), timing_(flags & FRT_EVENT_TIMING) {}

  Device& device() const noexcept { return device_; }
  bool timing() const noexcept { return timing_; }

  frt_status query() const noexcept;  // [hot]
  frt_status sync() const noexcept;   // [driver]
  // Milliseconds from the last record of `start` to that of `end`; both must be finished. [driver]
  static frt_status elapsed(const Event& start, const Event& end, double& ms) noexcept;

  // ---- for Stream ----
  // The position of the last record; no progress counter: never recorded.  [driver]
  const StreamMark& mark() const noexcept { return mark_; }
  void set_mark(const StreamMark& mark) noexcept { mark_ = mark; }

  // Numbers the records of a timing event, so that a late one cannot overwrite the last one's
  // time.  [driver]
  uint64_t next_record() noexcept { return records_.fetch_add(1, std::memory_order_relaxed) + 1; }
  // Takes the time, on the stream's thread.  [any]
  void stamp(uint64_t record) noexcept;

 private:
  Device& device_;
  const bool timing_;
  StreamMark mark_;
  std::atomic<uint64_t> records_{0};
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace frt::cpu
