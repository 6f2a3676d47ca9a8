// SPDX-License-Identifier: Apache-2.0
// A chunk is charged with what the last ones took when it is submitted, and with the difference
// when it is measured: steps are submitted ahead of their results.
#include "lm/engine/scheduler.hpp"

#include <algorithm>
#include <tuple>

namespace frt::host {
namespace {

constexpr double kWeight = 0.25;  // of the newest measurement

}  // namespace

void StepScheduler::Cost::add(double measured) {
  seconds = known ? seconds + kWeight * (measured - seconds) : measured;
  known = true;
}

StepKind StepScheduler::next(bool reading, bool writing) const {
  if (!reading) return writing ? StepKind::kDecode : StepKind::kNone;
  if (!writing || decodes_ >= kMostDecodes) return StepKind::kPrefill;
  return decodes_ > 0 && debt_ <= 0 ? StepKind::kPrefill : StepKind::kDecode;
}

std::size_t StepScheduler::pick(std::span<const Reader> readers) const {
  const auto before = [&](const Reader& a, const Reader& b) {
    if (a.priority != b.priority) return a.priority > b.priority;
    if (interleave_) return std::tie(a.last_step, a.order) < std::tie(b.last_step, b.order);
    const bool a_new = a.last_step == 0, b_new = b.last_step == 0;
    return std::tie(a_new, a.order) < std::tie(b_new, b.order);
  };
  return static_cast<std::size_t>(std::min_element(readers.begin(), readers.end(), before) -
                                  readers.begin());
}

void StepScheduler::submitted(StepKind kind, bool writing) {
  if (kind == StepKind::kDecode) {
    ++decodes_;
    debt_ = std::max(0.0, debt_ - std::max(0.0, target_ - decode_.seconds));
    return;
  }
  if (kind != StepKind::kPrefill) return;
  decodes_ = 0;
  charging_ = writing;
  if (!writing) {  // nobody waits
    debt_ = 0;
    return;
  }
  charged_ = target_ > 0 ? std::max(0.0, prefill_.seconds - target_) : 0;
  debt_ += charged_;
}

void StepScheduler::measured(StepKind kind, double seconds) {
  if (kind == StepKind::kDecode) return decode_.add(seconds);
  if (kind != StepKind::kPrefill) return;
  prefill_.add(seconds);
  if (!charging_ || target_ <= 0) return;
  debt_ = std::max(0.0, debt_ + std::max(0.0, seconds - target_) - charged_);
  charging_ = false;
}

}  // namespace frt::host
