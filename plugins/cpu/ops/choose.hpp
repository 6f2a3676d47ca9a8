// SPDX-License-Identifier: Apache-2.0
// choose.hpp - the last part of sampling: from candidates to one token. See sample.cpp.
#pragma once

#include <frt/ops/sample.h>

#include <cstdint>

namespace frt::cpu {

// One sequence's logits after penalties and mask, and what is known of them.
struct Choice {
  const float* logits;  // (vocabulary); -inf: not allowed; no NaN
  int32_t vocabulary;
  float largest;      // of logits
  double mass;        // sum over all of exp((logits - largest) / temperature)
  uint64_t* keys;     // (vocabulary) sort keys; the first key_count are the candidates
  int64_t key_count;  // the candidates are all tokens above some logit
};

// The sort key of a token: ascending keys are falling logits, then rising ids.  [hot]
uint64_t sort_key(float logit, int32_t id) noexcept;

// Draws a token by steps 4 to 6 of frt/ops/sample.h with `uniform` in [0, 1). Temperature > 0 and
// largest > -inf. Sorts as many of the keys as it needs; where the candidates do not reach, it
// refills the keys with the whole vocabulary.  [hot]
int32_t choose_token(Choice& choice, const frt_sampling_params& params, double uniform) noexcept;

}  // namespace frt::cpu
