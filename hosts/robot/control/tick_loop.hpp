// SPDX-License-Identifier: Apache-2.0
// tick_loop.hpp - from chunks to one action per tick: what is sent when a chunk comes late, is old,
// or jumps.
//
// A chunk answers an observation. By the time it is there, `lead` ticks have passed, so its first
// rows are over and are dropped. When no row is left at a tick, the declared safe action is sent
// and counted. Nothing here is a certified safety function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace frt::host {

// What is sent when there is no action.
enum class SafeAction {
  kHold,  // the last action again: right for positions
  kRamp,  // the last action, scaled down to zero in ramp_ticks: right for velocities
  kStop   // zeros at once
};

struct TickOptions {
  double hz = 50;
  double spin_us = 0;     // of the clock, see Ticker
  uint32_t execute = 0;   // rows of a chunk that are used; 0: all
  uint32_t lead = 0;      // rows left when the next chunk is asked for
  double stale_ms = 0;    // a chunk of an older observation is dropped; 0: any age
  double max_change = 0;  // largest change of a value from tick to tick; 0: any
  SafeAction safe = SafeAction::kHold;
  uint32_t ramp_ticks = 10;

  // Throws FRT_ERR_INVALID_ARGUMENT if chunks of `horizon` actions cannot be used so.  [setup]
  void check(uint32_t horizon) const;
};

struct TickCounters {
  uint64_t ticks = 0;
  uint64_t deadline_misses = 0;  // ticks without an action in time
  uint64_t safe_actions = 0;     // of those and others, ticks that sent the safe action
  uint64_t stale_drops = 0;      // chunks that were too old
  uint64_t refused = 0;          // observations and chunks that the model refused: NaN, infinity
  uint64_t clamped = 0;          // ticks with a value that max_change cut
};

// One thread at a time; nothing allocates after the constructor.
class ActionQueue {
 public:
  // Throws what TickOptions::check() does.  [setup]
  ActionQueue(const TickOptions& options, uint32_t horizon, uint32_t width);

  // Empty, as at the start of an episode; the last action is zeros. Counters go on.  [hot]
  void reset() noexcept;
  // Takes a chunk (horizon, width) whose observation is `ticks_ago` ticks and `age_ms` old: rows
  // from `ticks_ago` on replace what is left. False: it was too old or has no such row, and what is
  // left stays.  [hot]
  bool accept(std::span<const double> chunk, uint32_t ticks_ago, double age_ms) noexcept;
  // Nothing of what is left is sent any more.  [hot]
  void drop() noexcept { at_ = end_; }
  // Rows that can still be sent.
  uint32_t left() const noexcept { return end_ - at_; }
  // The next chunk should be on its way.
  bool wants_chunk() const noexcept { return left() <= options_.lead; }
  // The action of this tick; false: it is the safe action. `intended`: there was no chunk yet
  // because none was asked for, so it is no missed deadline.  [hot]
  bool next(std::span<double> out, bool intended = false) noexcept;
  // What was sent by somebody else (an operator who took over) counts as the last action.  [hot]
  void note_sent(std::span<const double> action) noexcept;

  // There will be no chunk for the observation: it, or the chunk, was refused.  [hot]
  void note_refused() noexcept { ++counters_.refused; }
  // What was sent last.
  std::span<const double> last() const noexcept { return last_; }
  const TickCounters& counters() const noexcept { return counters_; }
  uint32_t width() const noexcept { return width_; }

 private:
  TickOptions options_;
  uint32_t horizon_, width_, execute_;
  uint32_t at_ = 0, end_ = 0;  // rows of chunk_
  uint32_t ramped_ = 0;        // ticks since the last action of a chunk
  std::vector<double> chunk_, last_, base_;
  TickCounters counters_;
};

}  // namespace frt::host
