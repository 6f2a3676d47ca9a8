// SPDX-License-Identifier: Apache-2.0
// The softmax needs no sum: the sampled token's log probability says what is to be taken from each
// logit. Blocks without a logit above the least one found are passed over.
#include "lm/engine/top_tokens.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace frt::host {
namespace {

constexpr uint32_t kInPrompt = 1U << 31;
constexpr float kNever = -std::numeric_limits<float>::infinity();

bool penalises(const frt_sampling_params& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
         sampling.frequency_penalty != 0;
}

}  // namespace

TopTokens::TopTokens(uint32_t vocabulary, uint32_t count, const frt_sampling_params& sampling,
                     std::span<const int32_t> prompt, std::span<const frt_logit_bias> bias)
    : most_(count), sampling_(sampling), bias_(bias.begin(), bias.end()) {
  std::ranges::sort(bias_, {}, &frt_logit_bias::id);
  found_.reserve(most_);
  if (!penalises(sampling)) return;
  counts_.resize(vocabulary);
  for (const int32_t id : prompt) counts_[static_cast<std::size_t>(id)] = kInPrompt;
}

void TopTokens::add(int32_t token) noexcept {
  const auto at = static_cast<std::size_t>(token);
  if (at < counts_.size()) ++counts_[at];
}

// Tokens [first, end), with what the bias adds to them. Blocks come in order.
std::span<const float> TopTokens::biased(std::span<const float> logits, std::size_t first,
                                         std::size_t end) noexcept {
  const std::span<const float> plain = logits.subspan(first, end - first);
  const auto here = [&] {
    return next_bias_ < bias_.size() && static_cast<std::size_t>(bias_[next_bias_].id) < end;
  };
  if (!here()) return plain;
  std::ranges::copy(plain, block_.begin());
  for (; here(); ++next_bias_) {
    block_[static_cast<std::size_t>(bias_[next_bias_].id) - first] += bias_[next_bias_].value;
  }
  return std::span(block_).first(end - first);
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
  const auto value = [&](float logit, std::size_t id) {
    return counts_.empty() ? logit : adjusted(logit, counts_[id]);
  };
  const auto drawn = static_cast<std::size_t>(sampled.id);
  float of_sampled = 0;
  next_bias_ = 0;
  for (std::size_t first = 0; first < logits.size(); first += kBlock) {
    const std::size_t end = std::min(first + kBlock, logits.size());
    const std::span<const float> block = biased(logits, first, end);
    if (first <= drawn && drawn < end) of_sampled = value(block[drawn - first], drawn);
    if (counts_.empty() && found_.size() == most_) {
      const float least = found_.back().log_probability;
      bool above = false;
      for (const float logit : block) above |= logit > least;
      if (!above) continue;
    }
    for (std::size_t id = first; id < end; ++id) {
      if (mask && (mask[id / 32] >> (id % 32) & 1) == 0) continue;
      offer(static_cast<int32_t>(id), value(block[id - first], id));
    }
  }
  const float offset = sampled.log_probability - of_sampled;
  for (TokenProbability& token : found_) {
    token.log_probability =
        token.id == sampled.id ? sampled.log_probability : token.log_probability + offset;
  }
  return found_;
}

}  // namespace frt::host
