// SPDX-License-Identifier: Apache-2.0
// meter.hpp - counters that the engine's thread writes and any thread reads, without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "lm/engine/stats.hpp"
#include "lm/finish.hpp"

namespace frt::host {

// One writer.
class Counter {
 public:
  void add(uint64_t count = 1) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
  void set(uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// One writer.
class DurationMeter {
 public:
  void add(double seconds) noexcept;
  DurationHistogram read() const noexcept;

 private:
  std::array<Counter, DurationHistogram::kBounds.size() + 1> counts_;
  std::atomic<double> sum_{0};
};

struct EngineMeter {
  Counter prefilling, decoding, preempted, slots_used;
  std::array<Counter, 5> ended;  // by Finish
  std::array<Counter, 3> began;  // by PrefixAction
  Counter errors, preemptions, prompt_tokens, cached_tokens, generated_tokens, prefill_steps,
      decode_steps, decode_entries, draft_rounds, draft_tokens, accepted_tokens;
  DurationMeter queue, restore, ttft, itl, e2e, mask;

  void end(Finish finish) noexcept { ended[static_cast<std::size_t>(finish)].add(); }
  // What is counted here; the rest is left as it is.
  void read(EngineStats& stats) const noexcept;
};

}  // namespace frt::host
