// SPDX-License-Identifier: Apache-2.0
// Top-k, top-p, min-p and the draw, all of which walk the tokens by falling probability.
//
// Only the head of that order is ever needed, so the keys are sorted in growing pieces
// (nth_element, then sort), and at first only over the candidates near the largest logit. Sums are
// double, so that 250,000 small terms add up to what they are.
#include "choose.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace frt::cpu {
namespace {

constexpr int64_t kFirstPiece = 128;

float logit_of(uint64_t key) noexcept {
  const uint32_t ordered = ~static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>(ordered & 0x80000000u ? ordered ^ 0x80000000u : ~ordered);
}

// The tokens by falling probability, as far as they were asked for.
class Ranking {
 public:
  Ranking(Choice& choice, float temperature) noexcept
      : choice_(choice), temperature_(temperature) {}

  // Makes places 0 .. count - 1 available, or as many as there are; returns how many.
  int64_t reach(int64_t count) noexcept {
    if (count > choice_.key_count && !complete_) refill();
    count = std::min(count, choice_.key_count);
    if (count > sorted_) {
      const int64_t target =
          std::min(std::max({count, sorted_ * 4, kFirstPiece}), choice_.key_count);
      uint64_t* keys = choice_.keys;
      if (target < choice_.key_count) {
        std::nth_element(keys + sorted_, keys + target, keys + choice_.key_count);
      }
      std::sort(keys + sorted_, keys + target);
      sorted_ = target;
    }
    return count;
  }

  int32_t id(int64_t place) const noexcept {
    return static_cast<int32_t>(static_cast<uint32_t>(choice_.keys[place]));
  }
  // Relative to the largest, which is 1.
  double weight(int64_t place) const noexcept {
    const float logit = logit_of(choice_.keys[place]);
    if (logit == choice_.largest) return 1.0;
    return std::exp(static_cast<double>(logit - choice_.largest) / temperature_);
  }

 private:
  void refill() noexcept {
    choice_.key_count = 0;
    for (int32_t i = 0; i < choice_.vocabulary; ++i) {
      if (choice_.logits[i] == -std::numeric_limits<float>::infinity()) continue;
      choice_.keys[choice_.key_count++] = sort_key(choice_.logits[i], i);
    }
    sorted_ = 0;
    complete_ = true;
  }

  Choice& choice_;
  double temperature_;
  int64_t sorted_ = 0;
  bool complete_ = false;
};

}  // namespace

uint64_t sort_key(float logit, int32_t id) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(logit);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (static_cast<uint64_t>(~ordered) << 32) | static_cast<uint32_t>(id);
}

int32_t choose_token(Choice& choice, const frt_sampling_params& params, double uniform) noexcept {
  Ranking ranking(choice, params.temperature);
  const int64_t everything = std::numeric_limits<int64_t>::max();
  int64_t limit = params.top_k > 0 ? params.top_k : everything;
  double mass = choice.mass;
  if (limit < choice.vocabulary) {
    limit = ranking.reach(limit);
    mass = 0;
    for (int64_t i = 0; i < limit; ++i) mass += ranking.weight(i);
  }

  // What top-p and min-p keep of it.
  if (params.top_p < 1.0f || params.min_p > 0.0f) {
    const double enough = params.top_p < 1.0f ? static_cast<double>(params.top_p) * mass
                                              : std::numeric_limits<double>::infinity();
    double kept = 0;
    int64_t count = 0;
    while (count < limit && ranking.reach(count + 1) > count) {
      const double weight = ranking.weight(count);
      if (count > 0 && weight < static_cast<double>(params.min_p)) break;
      kept += weight;
      ++count;
      if (kept >= enough) break;
    }
    limit = count;
    mass = kept;
  }

  double sum = 0;
  int64_t place = 0;
  while (place < limit && ranking.reach(place + 1) > place) {
    sum += ranking.weight(place);
    if (sum > uniform * mass) break;
    ++place;
  }
  // Rounding may leave the sum just short of the draw: then it is the last one.
  const int64_t reached = ranking.reach(std::min(place + 1, limit));
  return ranking.id(std::min(place, reached - 1));
}

}  // namespace frt::cpu
