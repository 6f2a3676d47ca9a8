// SPDX-License-Identifier: Apache-2.0
// stats.hpp - what an engine does now and has done since it began.
#pragma once

#include <array>
#include <cstdint>

namespace frt::host {

// Counts of durations in buckets with fixed upper bounds; the last bucket has none.
struct DurationHistogram {
  static constexpr std::array<double, 20> kBounds = {1e-5, 1e-4, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                     0.05, 0.1,  0.25,  0.5,    1,     2.5,  5,
                                                     10,   25,   50,    100,    250,   1000};
  std::array<uint64_t, kBounds.size() + 1> counts{};  // not cumulative
  uint64_t count = 0;
  double sum = 0;  // seconds
};

struct EngineStats {
  // Now.
  uint64_t queued = 0;      // requests that wait for a slot
  uint64_t prefilling = 0;  // choices that read
  uint64_t decoding = 0;    // choices that write
  uint64_t preempted = 0;   // choices whose state waits in host memory
  uint64_t slots = 0;
  uint64_t slots_used = 0;  // by a choice
  uint64_t pages = 0;       // of the state; 0: the state has none
  uint64_t pages_free = 0;
  uint64_t pages_shared = 0;  // with more than one holder
  bool draining = false;
  bool device_lost = false;

  // Since the engine began. Choices by how they ended; requests that ended with an error.
  uint64_t submitted = 0;  // requests
  uint64_t ended_length = 0, ended_stop = 0, ended_context = 0, ended_cancelled = 0,
           ended_deadline = 0;
  uint64_t errors = 0;
  uint64_t refused = 0;  // by submit(), because the queue was full
  uint64_t preemptions = 0;
  uint64_t prompt_tokens = 0;     // of all that left the queue
  uint64_t cached_tokens = 0;     // of these, not read because a slot or a capsule held them
  uint64_t generated_tokens = 0;  // told to listeners
  uint64_t began_read = 0, began_continue = 0, began_restore = 0;  // requests, by PrefixAction
  uint64_t prefill_steps = 0, decode_steps = 0;
  uint64_t decode_entries = 0;   // over all decode steps
  uint64_t draft_rounds = 0;     // of the decode steps
  uint64_t draft_tokens = 0;     // proposed
  uint64_t accepted_tokens = 0;  // of these, the text

  DurationHistogram queue;    // submit() to a slot, each request
  DurationHistogram restore;  // until a slot held a capsule, each request that began with one
  DurationHistogram ttft;     // submit() to a first token, each choice
  DurationHistogram itl;      // from token to token
  DurationHistogram e2e;      // submit() to the end, each choice
  DurationHistogram mask;     // to find out which tokens a grammar lets come next, each time
};

}  // namespace frt::host
