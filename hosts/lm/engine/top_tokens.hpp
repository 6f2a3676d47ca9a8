// SPDX-License-Identifier: Apache-2.0
// top_tokens.hpp - the tokens that were the likeliest at a place of an answer, found on the host in
// the logits of the step.
//
// Probabilities are those of the token that was sampled: of the softmax behind mask, bias and
// penalties (step 2 of frt/ops/sample.h), before temperature, top-k, top-p and min-p.
#pragma once

#include <frt/ops/sample.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace frt::host {

struct TokenProbability {
  int32_t id = -1;
  float log_probability = 0;  // natural logarithm
};

// The logarithm of the sum of the exponentials: of (vocabulary) logits, the softmax's denominator.
float log_sum_exp(std::span<const float> logits) noexcept;

// Of one answer. One thread at a time.
class TopTokens {
 public:
  static constexpr uint32_t kMost = 20;

  // The `count` likeliest, 1 .. kMost, of an answer to `prompt`. All ids, those of the bias once
  // each, are below `vocabulary`.  [setup]
  TopTokens(uint32_t vocabulary, uint32_t count, const frt_sampling_params& sampling,
            std::span<const int32_t> prompt, std::span<const frt_logit_bias> bias = {});

  // The likeliest first, of equal ones the lowest id; fewer where fewer may come. `logits`:
  // (vocabulary), of the step that sampled `sampled` with this log probability; `mask`: its mask,
  // or null. Valid until the next call. Allocates nothing. None if no such token is there.
  std::span<const TokenProbability> find(std::span<const float> logits, const uint32_t* mask,
                                         TokenProbability sampled);
  // The answer goes on with `token`: penalties see it from now on.
  void add(int32_t token) noexcept;

 private:
  static constexpr std::size_t kBlock = 64;

  float adjusted(float logit, uint32_t count) const noexcept;
  std::span<const float> biased(std::span<const float> logits, std::size_t first,
                                std::size_t end) noexcept;
  void offer(int32_t id, float logit) noexcept;

  const uint32_t most_;
  const frt_sampling_params sampling_;
  // As in frt_count_tokens_args; empty: there are no penalties.
  std::vector<uint32_t> counts_;
  std::vector<frt_logit_bias> bias_;     // ids rising
  std::size_t next_bias_ = 0;            // of the search
  std::array<float, kBlock> block_{};    // logits with their bias
  std::vector<TokenProbability> found_;  // logits, while they are compared
};

}  // namespace frt::host
