// SPDX-License-Identifier: Apache-2.0
// rollout.hpp - episodes: reset, chunks, ticks, the critic's opinion, the end, the record.
//
//   reset    the boundary's capsule is restored; the environment begins anew
//   chunk    observe -> policy on its stream, critic on its own, at the same time -> actions
//   tick     one action to the environment; keys; limits; a record of it
//   stop     task done, END key, value below a threshold, time, chunk limit, task's own limit
//
// Two clocks. Simulated: a tick takes no time, a chunk arrives `lead` ticks after its observation,
// so a run depends on its seeds alone. Real: ticks keep `hz`, a chunk arrives when it is computed,
// and a tick that has no action in time sends the safe action (tick_loop.hpp). In both, a tick
// neither allocates nor logs; what a model's plugin does when it is handed an observation is its
// own, and so is what an environment's plugin does in a step.
//
// An observation that the model refuses, and a chunk that is not finite, make no chunk: they are
// counted, the safe action is sent, the next tick asks again. Only the first observation of an
// episode must be good: nothing has moved yet.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "robot/control/episode_boundary.hpp"
#include "robot/control/latency.hpp"
#include "robot/control/realtime.hpp"
#include "robot/control/tick_loop.hpp"
#include "robot/environment.hpp"
#include "robot/policy_runner.hpp"
#include "robot/record/episode.hpp"

namespace frt::host {

// What an operator may ask for at any time.
struct OperatorKeys {
  bool end = false;       // END, or q
  bool takeover = false;  // t: toggles
};

struct RolloutOptions {
  TickOptions ticks;
  bool realtime = false;
  double stop_value = -2;
  uint32_t max_chunks = 0;
  double time_limit = 0;  // seconds, of simulated or real time
  uint64_t seed = 0;      // episode e uses seed + e
  uint32_t steps = 0;
  GuidanceStrengths guidance;
  bool record_frames = false;  // what is seen at every tick, not only where a chunk is asked for
  // Ticks [from, to) that the operator acts in, whatever the keys say.
  uint32_t takeover_from = 0, takeover_to = 0;
};

struct EpisodeResult {
  uint64_t seed = 0;
  bool success = false;
  std::string stop_reason;
  uint32_t ticks = 0, chunks = 0, interventions = 0;
  float last_value = 0;
  double reward = 0;  // of all ticks
  double reset_ms = 0;
};

class Rollout {
 public:
  // `critic` may be null. All outlive the object. The boundary is what the policy's state is now.
  // [setup]
  Rollout(PolicyRunner& policy, CriticRunner* critic, Environment& environment,
          EpisodeBoundary& boundary, RolloutOptions options);

  // Asked at every tick; must neither allocate nor wait.
  std::function<OperatorKeys()> keys;
  // Called after every tick with what was sent; must neither allocate nor wait. For tests and
  // pictures.
  std::function<void(std::span<const double> action)> on_tick;

  // One episode; `record` gets all of it.  [driver]
  EpisodeResult run(uint64_t episode, EpisodeRecord& record);

  const TickCounters& counters() const noexcept { return queue_.counters(); }
  const LatencySeries& inference_ms() const noexcept { return inference_ms_; }
  const LatencySeries& late_us() const noexcept { return late_us_; }
  const LatencySeries& reset_ms() const noexcept { return reset_ms_; }
  const LatencySeries& tick_us() const noexcept { return tick_us_; }
  uint64_t skipped_ticks() const noexcept { return skipped_; }

 private:
  struct Pending {
    bool active = false;
    uint32_t ticks = 0;  // since the observation
    ChunkTimes times;
  };

  void submit(const EpisodeResult& result, EpisodeRecord& record);
  void collect(EpisodeRecord& record, EpisodeResult& result);
  bool has_all_chunks(const EpisodeResult& result) const;
  // Whether the pending chunk is to be taken now.
  bool arrived(int64_t due_ns) const;
  bool tick(EpisodeRecord& record, EpisodeResult& result, int64_t late, bool& takeover);
  const char* stop_reason(const EpisodeResult& result) const;

  PolicyRunner& policy_;
  CriticRunner* critic_;
  Environment& environment_;
  EpisodeBoundary& boundary_;
  RolloutOptions options_;
  ActionQueue queue_;
  Pending pending_;
  int32_t chunk_ = -1;  // that the queue's rows belong to
  float value_ = 0;
  uint64_t draws_ = 0;  // noises of this episode
  std::vector<double> action_;
  LatencySeries inference_ms_, late_us_, reset_ms_, tick_us_;
  uint64_t skipped_ = 0;
};

}  // namespace frt::host
