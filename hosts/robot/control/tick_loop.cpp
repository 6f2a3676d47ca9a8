// SPDX-License-Identifier: Apache-2.0
#include "robot/control/tick_loop.hpp"

#include <algorithm>
#include <cmath>
#include <frt/error.hpp>
#include <string>

namespace frt::host {

void TickOptions::check(uint32_t horizon) const {
  const std::string chunk = ": a chunk has " + std::to_string(horizon) + " actions";
  if (execute > horizon) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "execute = " + std::to_string(execute) + chunk);
  }
  if (lead >= horizon) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "lead = " + std::to_string(lead) + chunk +
                    ", all of which would be over before it is there; take a smaller lead");
  }
}

ActionQueue::ActionQueue(const TickOptions& options, uint32_t horizon, uint32_t width)
    : options_(options),
      horizon_(horizon),
      width_(width),
      execute_(options.execute ? options.execute : horizon),
      chunk_(uint64_t{horizon} * width),
      last_(width),
      base_(width) {
  options.check(horizon);
}

void ActionQueue::reset() noexcept {
  at_ = end_ = ramped_ = 0;
  std::ranges::fill(last_, 0.0);
  std::ranges::fill(base_, 0.0);
}

bool ActionQueue::accept(std::span<const double> chunk, uint32_t ticks_ago,
                         double age_ms) noexcept {
  const uint32_t end = std::min(execute_ + ticks_ago, horizon_);
  const bool finite = std::ranges::all_of(chunk, [](double value) { return std::isfinite(value); });
  if ((options_.stale_ms > 0 && age_ms > options_.stale_ms) || ticks_ago >= end || !finite ||
      chunk.size() != chunk_.size()) {
    ++counters_.stale_drops;
    return false;
  }
  std::ranges::copy(chunk, chunk_.begin());
  at_ = ticks_ago;
  end_ = end;
  return true;
}

bool ActionQueue::next(std::span<double> out, bool intended) noexcept {
  ++counters_.ticks;
  const bool from_chunk = at_ < end_;
  if (from_chunk) {
    std::copy_n(chunk_.begin() + static_cast<std::ptrdiff_t>(uint64_t{at_} * width_), width_,
                out.begin());
    ++at_;
    ramped_ = 0;
  } else {
    if (!intended) ++counters_.deadline_misses;
    ++counters_.safe_actions;
    if (ramped_ == 0) base_ = last_;
    ramped_ = std::min(ramped_ + 1, options_.ramp_ticks);
    const double left = options_.safe == SafeAction::kHold ? 1
                        : options_.safe == SafeAction::kStop
                            ? 0
                            : 1 - static_cast<double>(ramped_) / options_.ramp_ticks;
    for (uint32_t i = 0; i < width_; ++i) out[i] = base_[i] * left;
  }
  if (options_.max_change > 0) {
    bool cut = false;
    for (uint32_t i = 0; i < width_; ++i) {
      const double value =
          std::clamp(out[i], last_[i] - options_.max_change, last_[i] + options_.max_change);
      cut = cut || value != out[i];
      out[i] = value;
    }
    if (cut) ++counters_.clamped;
  }
  std::copy_n(out.begin(), width_, last_.begin());
  return from_chunk;
}

void ActionQueue::note_sent(std::span<const double> action) noexcept {
  ++counters_.ticks;
  std::copy_n(action.begin(), width_, last_.begin());
  if (at_ < end_) ++at_;
  ramped_ = 0;
}

}  // namespace frt::host
