// SPDX-License-Identifier: Apache-2.0
// The softmax needs no sum: the sampled token's log probability says what is to be taken from each
// logit. Blocks without a logit above the least one found are passed over.
#include "lm/engine/top_tokens.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace frt::host {
namespace {

constexpr std::size_t kBlock = 64;
constexpr uint32_t kInPrompt = 1U << 31;
constexpr float kNever = -std::numeric_limits<float>::infinity();

bool penalises(const frt_sampling_params& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
         sampling.frequency_penalty != 0;
}

}  // namespace

TopTokens::TopTokens(uint32_t vocabulary, uint32_t count, const frt_sampling_params& sampling,
                     std::span<const int32_t> prompt)
    : most_(count), sampling_(sampling) {
  found_.reserve(most_);
  if (!penalises(sampling)) return;
  counts_.resize(vocabulary);
  for (const int32_t id : prompt) counts_[static_cast<std::size_t>(id)] = kInPrompt;
}

void TopTokens::add(int32_t token) noexcept {
  const auto at = static_cast<std::size_t>(token);
  if (at < counts_.size()) ++counts_[at];
}

float TopTokens::adjusted(float logit, uint32_t count) const noexcept {
  if (count == 0) return logit;
  const float repetition = sampling_.repetition_penalty;
  logit = logit > 0 ? logit / repetition : logit * repetition;
  const auto times = static_cast<float>(count & ~kInPrompt);
  logit -= sampling_.frequency_penalty * times;
  return times > 0 ? logit - sampling_.presence_penalty : logit;
}

void TopTokens::offer(int32_t id, float logit) noexcept {
  const bool full = found_.size() == most_;
  // False for one that is no number, too.
  if (!(logit > (full ? found_.back().log_probability : kNever))) return;
  if (full) found_.pop_back();
  const auto place = std::ranges::find_if(
      found_, [&](const TokenProbability& other) { return other.log_probability < logit; });
  found_.insert(place, {id, logit});
}

std::span<const TokenProbability> TopTokens::find(std::span<const float> logits,
                                                  const uint32_t* mask, TokenProbability sampled) {
  found_.clear();
  if (sampled.id < 0 || static_cast<std::size_t>(sampled.id) >= logits.size()) return found_;
  const auto value = [&](std::size_t id) {
    return counts_.empty() ? logits[id] : adjusted(logits[id], counts_[id]);
  };
  for (std::size_t first = 0; first < logits.size(); first += kBlock) {
    const std::size_t end = std::min(first + kBlock, logits.size());
    if (counts_.empty() && found_.size() == most_) {
      const float least = found_.back().log_probability;
      bool above = false;
      for (std::size_t id = first; id < end; ++id) above |= logits[id] > least;
      if (!above) continue;
    }
    for (std::size_t id = first; id < end; ++id) {
      if (mask && (mask[id / 32] >> (id % 32) & 1) == 0) continue;
      offer(static_cast<int32_t>(id), value(id));
    }
  }
  const float offset = sampled.log_probability - value(static_cast<std::size_t>(sampled.id));
  for (TokenProbability& token : found_) {
    token.log_probability =
        token.id == sampled.id ? sampled.log_probability : token.log_probability + offset;
  }
  return found_;
}

}  // namespace frt::host
