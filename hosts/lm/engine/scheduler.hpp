// SPDX-License-Identifier: Apache-2.0
// scheduler.hpp - which kind of step comes next, and whose prompt is read.
//
// While nobody writes, prompts are read; while nobody reads, tokens are written. In between, a
// prefill chunk that takes longer than `step_seconds` runs up a debt of the difference, and every
// decode step pays what it takes less than that: so the steps between two tokens take
// `step_seconds` on average. At most kMostDecodes decode steps come between two chunks, so that a
// prompt is read however slow a decode step is.
//
// A chunk is not cut shorter to be cheaper: results depend on where a prompt is cut, and only
// absolute multiples of the model's prefill_chunk are the same for every run. The longest pause
// between two tokens is therefore one chunk and one decode step; the model's option prefill_chunk
// sets it.
//
// Knows times and numbers only. Costs are those of the steps before, of the same kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace frt::host {

enum class StepKind { kNone, kPrefill, kDecode };

// A prompt that is being read.
struct Reader {
  int32_t priority = 0;
  uint64_t order = 0;      // of arrival
  uint64_t last_step = 0;  // the last step that read a part of it; 0: none has
};

class StepScheduler {
 public:
  static constexpr uint32_t kMostDecodes = 32;

  // `step_seconds` 0: one decode step between two chunks. `interleave`: see pick().
  StepScheduler(double step_seconds, bool interleave)
      : target_(step_seconds), interleave_(interleave) {}

  StepKind next(bool reading, bool writing) const;
  // Which of the readers, the highest priority first. Of these the one that began, else the one
  // that came first; with `interleave` the one whose last step was the longest ago.
  std::size_t pick(std::span<const Reader> readers) const;

  // next() was followed, while others write or not.
  void submitted(StepKind kind, bool writing);
  // What such a step took on the device.
  void measured(StepKind kind, double seconds);

  double debt_seconds() const noexcept { return debt_; }

 private:
  struct Cost {
    double seconds = 0;
    bool known = false;
    void add(double measured);
  };

  double target_;
  bool interleave_;
  Cost prefill_, decode_;
  double debt_ = 0;
  double charged_ = 0;  // of the chunk whose cost is not measured yet
  bool charging_ = false;
  uint32_t decodes_ = kMostDecodes;  // since the last chunk
};

}  // namespace frt::host
