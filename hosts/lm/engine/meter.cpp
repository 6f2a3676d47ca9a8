// SPDX-License-Identifier: Apache-2.0
#include "lm/engine/meter.hpp"

#include "lm/session.hpp"

#include <algorithm>

namespace frt::host {

void DurationMeter::add(double seconds) noexcept {
  const auto& bounds = DurationHistogram::kBounds;
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin();
  counts_[static_cast<std::size_t>(bucket)].add();
  sum_.store(sum_.load(std::memory_order_relaxed) + seconds, std::memory_order_relaxed);
}

DurationHistogram DurationMeter::read() const noexcept {
  DurationHistogram histogram;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    histogram.counts[i] = counts_[i].get();
    histogram.count += histogram.counts[i];
  }
  histogram.sum = sum_.load(std::memory_order_relaxed);
  return histogram;
}

void EngineMeter::read(EngineStats& stats) const noexcept {
  stats.prefilling = prefilling.get();
  stats.decoding = decoding.get();
  stats.preempted = preempted.get();
  stats.slots_used = slots_used.get();
  const auto count = [&](Finish finish) { return ended[static_cast<std::size_t>(finish)].get(); };
  stats.ended_length = count(Finish::kLength);
  stats.ended_stop = count(Finish::kStop);
  stats.ended_context = count(Finish::kContext);
  stats.ended_cancelled = count(Finish::kCancelled);
  stats.ended_deadline = count(Finish::kDeadline);
  stats.errors = errors.get();
  stats.preemptions = preemptions.get();
  stats.prompt_tokens = prompt_tokens.get();
  stats.cached_tokens = cached_tokens.get();
  stats.generated_tokens = generated_tokens.get();
  stats.prefill_steps = prefill_steps.get();
  stats.decode_steps = decode_steps.get();
  stats.decode_entries = decode_entries.get();
  const auto count_began = [&](PrefixAction action) {
    return began[static_cast<std::size_t>(action)].get();
  };
  stats.began_read = count_began(PrefixAction::kRead);
  stats.began_continue = count_began(PrefixAction::kContinue);
  stats.began_restore = count_began(PrefixAction::kRestore);
  stats.draft_rounds = draft_rounds.get();
  stats.draft_tokens = draft_tokens.get();
  stats.accepted_tokens = accepted_tokens.get();
  stats.queue = queue.read();
  stats.restore = restore.read();
  stats.ttft = ttft.read();
  stats.itl = itl.read();
  stats.e2e = e2e.read();
  stats.mask = mask.read();
}

}  // namespace frt::host
