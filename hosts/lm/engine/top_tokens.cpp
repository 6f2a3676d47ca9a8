// SPDX-License-Identifier: Apache-2.0
// The softmax needs no sum: the sampled token's log probability says what is to be taken from each
// logit. Blocks without a logit above the least one found are passed over.
#include "lm/engine/top_tokens.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace frt::host {
namespace {

constexpr uint32_t kInPrompt = 1U << 31;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// Of x <= 0, to 2 units in the last place: 2^n times a polynomial of what is left.
inline float exp_of_negative(float x) noexcept {
  constexpr float kRound = 12582912;  // 1.5 * 2^23: the sum has no fraction
  const float scaled = (x > -87 ? x : -87) * 1.44269504f;
  const float whole = (scaled + kRound) - kRound;
  const float f = scaled - whole;
  float power = 1.5403530e-4f;
  for (const float c :
       {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.0f}) {
    power = power * f + c;
  }
  const auto exponent = static_cast<uint32_t>(static_cast<int32_t>(whole) + 127) << 23;
  return power * std::bit_cast<float>(exponent);
}

bool penalises(const frt_sampling_params& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
         sampling.frequency_penalty != 0;
}

}  // namespace

float log_sum_exp(std::span<const float> logits) noexcept {
  constexpr std::size_t kLanes = 16, kRun = 64 * kLanes;
  std::array<float, kLanes> largest;
  largest.fill(kNever);
  const std::size_t whole = logits.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) {
      largest[k] = logits[i + k] > largest[k] ? logits[i + k] : largest[k];
    }
  }
  float most = *std::ranges::max_element(largest);
  for (const float logit : logits.subspan(whole)) most = std::max(most, logit);
  if (!std::isfinite(most)) return most;
  double sum = 0;
  for (std::size_t first = 0; first < whole; first += kRun) {
    const std::size_t end = std::min(first + kRun, whole);
    std::array<float, kLanes> sums{};
    for (std::size_t i = first; i < end; i += kLanes) {
      for (std::size_t k = 0; k < kLanes; ++k) sums[k] += exp_of_negative(logits[i + k] - most);
    }
    for (const float each : sums) sum += static_cast<double>(each);
  }
  for (const float logit : logits.subspan(whole)) {
    sum += static_cast<double>(exp_of_negative(logit - most));
  }
  return most + static_cast<float>(std::log(sum));
}

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
