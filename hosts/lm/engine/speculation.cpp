// SPDX-License-Identifier: Apache-2.0
#include "lm/engine/speculation.hpp"

#include <algorithm>
#include <utility>

namespace frt::host {
namespace {

constexpr float kRateWeight = 0.06F;    // of the newest draft: about the last 16 count
constexpr double kCostWeight = 0.25;    // of the newest step
constexpr float kFirstRate = 0.7F;      // before anything was measured
constexpr double kCostPerDraft = 0.05;  // of a plain step, until it is measured: it is tried
constexpr uint64_t kTrial = 64;         // steps between two trials

}  // namespace

void Acceptance::add(uint32_t drafts, uint32_t accepted) noexcept {
  // The draft behind the last accepted one was wrong; those behind it say nothing.
  for (uint32_t i = 0; i < drafts && i <= accepted; ++i) {
    float& rate = rates[std::min<std::size_t>(i, kMost - 1)];
    rate += kRateWeight * ((i < accepted ? 1.0F : 0.0F) - rate);
  }
}

double Acceptance::expected(uint32_t drafts) const noexcept {
  double tokens = 1, all = 1;
  for (uint32_t i = 0; i < drafts; ++i) {
    all *= static_cast<double>(rates[std::min<std::size_t>(i, kMost - 1)]);
    tokens += all;
  }
  return tokens;
}

DraftPlanner::DraftPlanner(Drafting mode, std::vector<uint32_t> most)
    : mode_(mode), most_(std::move(most)) {
  usual_.rates.fill(kFirstRate);
  for (const uint32_t drafts : most_) widest_ = std::max(widest_, drafts);
  enabled_ = mode_ != Drafting::kOff && widest_ > 0;
  costs_.resize(most_.size() * (widest_ + 1));
}

double DraftPlanner::cost(std::size_t batch, uint32_t drafts) const noexcept {
  const double* costs = costs_.data() + batch * (widest_ + 1);
  return costs[drafts] > 0 ? costs[drafts] : costs[0] * (1 + kCostPerDraft * drafts);
}

uint32_t DraftPlanner::drafts(std::span<const Acceptance* const> sequences) const noexcept {
  const std::size_t batch = sequences.size();
  if (!enabled_ || batch == 0 || batch >= most_.size()) return 0;
  const uint32_t most = most_[batch];
  if (mode_ == Drafting::kOn || most == 0) return most;
  if (costs_[batch * (widest_ + 1)] <= 0) return 0;  // what the others are compared with
  if (steps_ % kTrial == kTrial - 1) return static_cast<uint32_t>(steps_ / kTrial % (most + 1));
  uint32_t best = 0;
  double best_rate = 0;
  for (uint32_t drafts = 0; drafts <= most; ++drafts) {
    double tokens = 0;
    for (const Acceptance* sequence : sequences) tokens += sequence->expected(drafts);
    const double rate = tokens / cost(batch, drafts);
    if (rate > best_rate) {
      best = drafts;
      best_rate = rate;
    }
  }
  return best;
}

void DraftPlanner::measured(std::size_t batch, uint32_t drafts, double seconds) noexcept {
  if (batch >= most_.size() || drafts > widest_) return;
  double& cost = costs_[batch * (widest_ + 1) + drafts];
  cost = cost > 0 ? cost + kCostWeight * (seconds - cost) : seconds;
}

}  // namespace frt::host
