// SPDX-License-Identifier: Apache-2.0
// handoff.hpp - a planner that says what to do, seldom; an actor that does it, often.
//
// The planner runs on a thread and a context of its own, and writes subgoals (instructions) into a
// mailbox. The actor keeps its tick rate. At the next chunk it takes a new subgoal up by itself; an
// interrupt it takes up at once:
//
//   what is left of the old chunk is dropped                  at once
//   a replay that is in flight ends, its chunk is dropped     at most one replay
//   the prompt's buffer is overwritten, in stream order       well under a millisecond
//   one replay with the observation that is there             one replay
//   its first action is sent, without waiting for a tick
//
// and so it takes effect within one replay of the moment that the device is free. Nothing is
// captured. Ticks that are due meanwhile send the safe action, on time. What the model refuses
// makes no chunk, as in a rollout.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "robot/control/latency.hpp"
#include "robot/control/realtime.hpp"
#include "robot/control/tick_loop.hpp"
#include "robot/environment.hpp"
#include "robot/policy_runner.hpp"

namespace frt::host {

// The one place that planner, operator and actor share. All members are [any].
class SubgoalMailbox {
 public:
  struct Subgoal {
    std::string instruction;
    bool interrupt = false;
    int64_t posted_ns = 0;
  };
  // Replaces what is there, unless that is an interrupt that was not taken yet and this is none.
  void post(std::string instruction, bool interrupt);
  // Waits until `due_ns` (CLOCK_MONOTONIC) or an interrupt; gives the interrupt.
  std::optional<Subgoal> wait_until(int64_t due_ns);
  // What was posted since the last take, without waiting.
  std::optional<Subgoal> take();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Subgoal> subgoal_;
};

// One interrupt, in milliseconds from its post().
struct InterruptTimes {
  std::string instruction;
  double free_ms = 0;          // the replay in flight, if there was one, has ended
  double overwritten_ms = 0;   // the prompt's buffer is overwritten and the replay is submitted
  double replay_ms = 0;        // what that replay took
  double action_ms = 0;        // its first action was sent
  bool in_flight = false;      // there was a replay to wait for
  std::vector<double> before;  // the last action that answered the old subgoal
  std::vector<double> after;   // the first one that answers the new one
  // What is not replay.
  double overhead_ms() const { return action_ms - free_ms - replay_ms; }
  // It took effect within one replay and a millisecond of the moment that the device was free.
  bool in_time() const { return overhead_ms() <= 1; }
};

struct HandoffOptions {
  TickOptions ticks;
  double seconds = 10;
  uint64_t seed = 0;
  uint32_t steps = 0;
  GuidanceStrengths guidance;
};

struct HandoffResult {
  uint64_t ticks = 0, chunks = 0, subgoals = 0, reached = 0;
  std::vector<InterruptTimes> interrupts;
  TickCounters counters;
  uint64_t skipped_ticks = 0;
  LatencySummary replay_ms;  // of chunks: until they are taken up
  LatencySummary late_us;    // of ticks
};

class Handoff {
 public:
  Handoff(PolicyRunner& actor, Environment& environment, SubgoalMailbox& mailbox,
          HandoffOptions options);

  // Called when a subgoal is taken up: the environment may want to know what counts as success.
  std::function<void(const std::string& instruction)> on_subgoal;
  std::function<bool()> stopped = [] { return false; };

  // Acts for so many seconds.  [driver]
  HandoffResult run();

 private:
  void submit();
  void accept(HandoffResult& result);
  void tick(HandoffResult& result, bool intended);
  // Until what was submitted is done; ticks go on.
  void wait_for_device(HandoffResult& result);
  void interrupt(const SubgoalMailbox::Subgoal& subgoal, HandoffResult& result);

  PolicyRunner& actor_;
  Environment& environment_;
  SubgoalMailbox& mailbox_;
  HandoffOptions options_;
  ActionQueue queue_;
  Ticker ticker_;
  std::string instruction_;
  bool pending_ = false, reached_ = false;
  uint32_t ticks_since_ = 0;
  uint64_t draws_ = 0;
  int64_t submitted_ns_ = 0;
  std::vector<double> action_;
  LatencySeries replay_ms_, late_us_;
};

}  // namespace frt::host
