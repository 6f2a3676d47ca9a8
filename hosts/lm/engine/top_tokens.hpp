// SPDX-License-Identifier: Apache-2.0
// top_tokens.hpp - the tokens that were the likeliest at a place of an answer, found on the host in
// the logits of the step.
//
// Probabilities are those of the token that was sampled: of the softmax behind mask and penalties
// (step 2 of frt/ops/sample.h), before temperature, top-k, top-p and min-p.
#pragma once

#include <frt/ops/sample.h>

#include <cstdint>
#include <span>
#include <vector>

namespace frt::host {

struct TokenProbability {
  int32_t id = -1;
  float log_probability = 0;  // natural logarithm
};

// Of one answer. One thread at a time.
class TopTokens {
 public:
  static constexpr uint32_t kMost = 20;

  // The `count` likeliest, 1 .. kMost, of an answer to `prompt`, whose ids are all below
  // `vocabulary`.  [setup]
  TopTokens(uint32_t vocabulary, uint32_t count, const frt_sampling_params& sampling,
            std::span<const int32_t> prompt);

  // The likeliest first, of equal ones the lowest id; fewer where fewer may come. `logits`:
  // (vocabulary), of the step that sampled `sampled` with this log probability; `mask`: its mask,
  // or null. Valid until the next call. Allocates nothing. None if no such token is there.
  std::span<const TokenProbability> find(std::span<const float> logits, const uint32_t* mask,
                                         TokenProbability sampled);
  // The answer goes on with `token`: penalties see it from now on.
  void add(int32_t token) noexcept;

 private:
  float adjusted(float logit, uint32_t count) const noexcept;
  void offer(int32_t id, float logit) noexcept;

  const uint32_t most_;
  const frt_sampling_params sampling_;
  // As in frt_count_tokens_args; empty: there are no penalties.
  std::vector<uint32_t> counts_;
  std::vector<TokenProbability> found_;  // logits, while they are compared
};

}  // namespace frt::host
