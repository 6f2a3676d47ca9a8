// SPDX-License-Identifier: Apache-2.0
// From logits to tokens, step by step as frt/ops/sample.h states it.
#include "operators.hpp"

#include <frt/ops/sample.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace simple {
namespace {

constexpr uint32_t kPrompt = 1u << 31;  // of a count: the token stands in the prompt

// The index of the largest; ties to the lowest, NaN never wins.
int32_t largest_of(const float* values, int32_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; ++i) {
    if (values[i] > values[best] || (std::isnan(values[best]) && !std::isnan(values[i]))) best = i;
  }
  return best;
}

struct Argmax {
  using Args = frt_argmax_args;
  static constexpr const char* kName = FRT_OP_ARGMAX;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) { frt::check_argmax(check, args); }
  static void run(const Args& args) {
    for (int32_t r = 0; r < rows_to_run(args.rows, args.row_count); ++r) {
      args.ids[r] = largest_of(args.logits + r * args.stride, args.width);
    }
  }
};

struct CountTokens {
  using Args = frt_count_tokens_args;
  static constexpr const char* kName = FRT_OP_COUNT_TOKENS;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_count_tokens(check, args);
  }
  static void run(const Args& args) {
    for_sequences(args.sequences, [&](int32_t b, int32_t slot, int32_t length) {
      auto* counts = in_slot<uint32_t>(args.counts, args.slot_stride, slot);
      for (int32_t id = 0; args.restart && args.restart[b] != 0 && id < args.vocabulary; ++id) {
        counts[id] = counts[id] != 0 ? kPrompt : 0;
      }
      for (int32_t q = 0; q < length; ++q) {
        const int32_t id = args.ids[static_cast<int64_t>(b) * args.sequences.rows + q];
        if (id < 0 || id >= args.vocabulary) continue;
        if (!args.generated) {
          counts[id] |= kPrompt;
        } else if ((counts[id] & ~kPrompt) != ~kPrompt) {
          ++counts[id];
        }
      }
    });
  }
};

// Word 0 of philox4x32-10 of (position, 0, 0, 0).
uint32_t philox(uint64_t seed, uint32_t position) {
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t c[4] = {position, 0, 0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
        static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    std::copy_n(next, 4, c);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c[0];
}

struct Sample {
  using Args = frt_sample_args;
  static constexpr const char* kName = FRT_OP_SAMPLE;
  static constexpr Formats kWeights = {};
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_sample(check, args);
    if (args.fed) check.unsupported("fed", "is given; acme.simple draws one token per sequence");
  }
  static void run(const Args& args) {
    for_sequences(args.sequences, [&](int32_t b, int32_t slot, int32_t length) {
      const std::vector<float> logits = processed(args, b, slot);
      const auto position = static_cast<uint32_t>(args.sequences.position[b] + length);
      const int32_t id = draw(logits, args.params[b], position);
      args.ids[b] = id;
      if (args.pending) *in_slot<int32_t>(args.pending, args.pending_stride, slot) = id;
      if (!args.log_probabilities) return;
      double sum = 0;
      const float largest =
          logits[static_cast<std::size_t>(largest_of(logits.data(), args.vocabulary))];
      for (const float one : logits) {
        if (one > -INFINITY) sum += std::exp(static_cast<double>(one) - largest);
      }
      args.log_probabilities[b] = static_cast<float>(
          static_cast<double>(logits[static_cast<std::size_t>(id)]) - largest - std::log(sum));
    });
  }

 private:
  // Steps 1 and 2.
  static std::vector<float> processed(const Args& args, int32_t b, int32_t slot) {
    const frt_sampling_params& params = args.params[b];
    const float* from = args.logits + b * args.stride;
    std::vector<float> logits(from, from + args.vocabulary);
    const uint32_t* mask =
        args.mask && params.use_mask ? args.mask + b * args.mask_stride : nullptr;
    const uint32_t* counts =
        args.counts ? in_slot<uint32_t>(args.counts, args.counts_stride, slot) : nullptr;
    const int64_t biases = args.bias ? std::min<int64_t>(params.bias_count, args.bias_stride) : 0;
    for (int64_t i = 0; i < biases; ++i) {
      const frt_logit_bias& one = args.bias[b * args.bias_stride + i];
      if (one.id < 0 || one.id >= args.vocabulary) continue;
      logits[static_cast<std::size_t>(one.id)] += one.value;
    }
    for (std::size_t id = 0; id < logits.size(); ++id) {
      float& logit = logits[id];
      if (std::isnan(logit)) logit = -INFINITY;
      if (mask && (mask[id / 32] >> (id % 32) & 1u) == 0) logit = -INFINITY;
      if (!counts || counts[id] == 0) continue;
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      const uint32_t generated = counts[id] & ~kPrompt;
      logit -= params.frequency_penalty * static_cast<float>(generated);
      if (generated > 0) logit -= params.presence_penalty;
    }
    return logits;
  }

  // Steps 3 to 6.
  static int32_t draw(const std::vector<float>& logits, const frt_sampling_params& params,
                      uint32_t position) {
    const auto count = static_cast<int32_t>(logits.size());
    if (params.temperature == 0) return largest_of(logits.data(), count);
    struct Choice {
      double weight;
      int32_t id;
    };
    std::vector<Choice> choices;
    for (int32_t id = 0; id < count; ++id) {
      const float logit = logits[static_cast<std::size_t>(id)] / params.temperature;
      if (logit > -INFINITY) choices.push_back({logit, id});
    }
    if (choices.empty()) return 0;
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.weight > b.weight; });
    if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < choices.size()) {
      choices.resize(static_cast<std::size_t>(params.top_k));
    }
    // Sums in f64: over tens of thousands of tokens f32 drifts from one token into the next.
    const double largest = choices.front().weight;
    double all = 0;
    for (Choice& one : choices) all += one.weight = std::exp(one.weight - largest);
    std::size_t kept = 0;
    double sum = 0;
    while (kept < choices.size()) {
      const double weight = choices[kept].weight;
      const bool enough = params.top_p < 1 && sum >= static_cast<double>(params.top_p) * all;
      if (kept > 0 && (enough || weight < static_cast<double>(params.min_p))) break;
      sum += weight;
      ++kept;
    }
    const double u = static_cast<double>(philox(params.seed, position)) * 0x1p-32;
    double passed = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      passed += choices[i].weight;
      if (passed > u * sum) return choices[i].id;
    }
    return choices[kept - 1].id;
  }
};

}  // namespace

void add_sampling_operators(Kernels& kernels) {
  kernels.add<Argmax>();
  kernels.add<CountTokens>();
  kernels.add<Sample>();
}

}  // namespace simple
