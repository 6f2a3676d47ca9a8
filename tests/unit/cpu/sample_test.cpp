// SPDX-License-Identifier: Apache-2.0
// frt.argmax/1, frt.count_tokens/1 and frt.sample/1 against plain sorting in double precision.
#include <doctest/doctest.h>
#include <frt/ops/sample.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ops/philox.hpp"
#include "sequence_tools.hpp"

namespace {

using namespace frt::cpu_test;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

frt_sampling_params greedy() {
  return {0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0};
}
frt_sampling_params warm(float temperature, uint64_t seed) {
  frt_sampling_params params = greedy();
  params.temperature = temperature;
  params.seed = seed;
  return params;
}

// The steps of frt/ops/sample.h, one after the other. `margin`: how far the draw is from the edge
// of the chosen token, so that tests can leave out draws that rounding decides.
struct Drawn {
  int32_t id;
  double log_probability;
  double margin;
};
Drawn draw(std::vector<double> l, const frt_sampling_params& params, const uint32_t* mask,
           const uint32_t* counts, uint32_t position) {
  for (std::size_t i = 0; i < l.size(); ++i) {
    if (params.use_mask && mask && !(mask[i / 32] >> (i % 32) & 1)) l[i] = -INFINITY;
    if (!counts || counts[i] == 0) continue;
    const double times = counts[i] & 0x7FFFFFFF;
    const auto penalty = static_cast<double>(params.repetition_penalty);
    l[i] = l[i] > 0 ? l[i] / penalty : l[i] * penalty;
    l[i] -= static_cast<double>(params.frequency_penalty) * times;
    if (times > 0) l[i] -= static_cast<double>(params.presence_penalty);
  }
  std::vector<std::size_t> order(l.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return l[a] > l[b]; });
  double plain = 0;
  for (const double value : l) plain += std::exp(value - l[order[0]]);
  const auto log_probability = [&](std::size_t id) {
    return l[id] - l[order[0]] - std::log(plain);
  };
  if (params.temperature == 0) {
    return {static_cast<int32_t>(order[0]), log_probability(order[0]), 1};
  }
  const auto weight = [&](std::size_t id) {
    return std::exp((l[id] - l[order[0]]) / static_cast<double>(params.temperature));
  };
  std::size_t kept =
      params.top_k > 0 ? std::min<std::size_t>(order.size(), static_cast<std::size_t>(params.top_k))
                       : order.size();
  double mass = 0;
  for (std::size_t i = 0; i < kept; ++i) mass += weight(order[i]);
  double margin = 1;
  if (params.top_p < 1) {
    double sum = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      sum += weight(order[i]);
      margin = std::min(margin, std::abs(sum / mass - static_cast<double>(params.top_p)));
      if (sum / mass >= static_cast<double>(params.top_p)) kept = i + 1;
    }
  }
  std::size_t likely = 0;
  while (likely < kept && weight(order[likely]) >= static_cast<double>(params.min_p)) ++likely;
  kept = std::max<std::size_t>(1, likely);
  mass = 0;
  for (std::size_t i = 0; i < kept; ++i) mass += weight(order[i]);
  const double u =
      frt::cpu::philox4x32({position, 0, 0, 0}, {static_cast<uint32_t>(params.seed),
                                                 static_cast<uint32_t>(params.seed >> 32)})[0] /
      4294967296.0;
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += weight(order[i]) / mass;
    margin = std::min(margin, std::abs(sum - u));
    if (sum > u) return {static_cast<int32_t>(order[i]), log_probability(order[i]), margin};
  }
  return {static_cast<int32_t>(order[kept - 1]), log_probability(order[kept - 1]), 0};
}

// A call with `count` sequences of one row.
struct Call {
  Call(std::size_t count, int32_t tokens, uint32_t seed, float scale)
      : vocabulary(tokens),
        stride(static_cast<std::size_t>(tokens) + 3),
        ids(count, -7),
        log_probabilities(count, 7.0f),
        pending(2 * count, -7) {
    Random random(seed);
    logits.resize(count * stride);
    for (float& value : logits) value = random.normal(scale);
    for (std::size_t b = 0; b < count; ++b) {
      batch.slot.push_back(static_cast<int32_t>(count - 1 - b));
      batch.position.push_back(static_cast<int32_t>(10 * b));
      batch.length.push_back(1);
      params.push_back(greedy());
      for (int32_t i = 0; i < tokens; ++i)
        counts.push_back(random.index(4) ? 0
                                         : static_cast<uint32_t>(random.index(3)) |
                                               (random.index(2) ? 0x80000000u : 0u));
      for (int32_t i = 0; i < (tokens + 31) / 32; ++i)
        mask.push_back(static_cast<uint32_t>(random.index(INT32_MAX)) * 2u + 1u);
    }
  }
  frt_sample_args args() {
    frt_sample_args args{};
    args.vocabulary = vocabulary;
    args.sequences = batch.view();
    args.logits = logits.data();
    args.stride = static_cast<int64_t>(stride);
    args.params = params.data();
    args.mask = mask.data();
    args.mask_stride = (vocabulary + 31) / 32;
    args.counts = counts.data();
    args.counts_stride = vocabulary * 4;
    args.pending = pending.data();
    args.pending_stride = 8;
    args.ids = ids.data();
    args.log_probabilities = log_probabilities.data();
    return args;
  }
  Drawn expected(std::size_t b) const {
    std::vector<double> l(logits.begin() + static_cast<std::ptrdiff_t>(b * stride),
                          logits.begin() + static_cast<std::ptrdiff_t>(b * stride) + vocabulary);
    return draw(l, params[b], mask.data() + b * static_cast<std::size_t>((vocabulary + 31) / 32),
                counts.data() +
                    static_cast<std::size_t>(batch.slot[b]) * static_cast<std::size_t>(vocabulary),
                static_cast<uint32_t>(batch.position[b] + 1));
  }

  int32_t vocabulary;
  std::size_t stride;
  Batch batch;
  std::vector<float> logits;
  std::vector<frt_sampling_params> params;
  std::vector<uint32_t> mask, counts;
  std::vector<int32_t> ids;
  std::vector<float> log_probabilities;
  std::vector<int32_t> pending;
};

}  // namespace

TEST_CASE("philox4x32 with 10 rounds gives the published vectors") {
  using frt::cpu::philox4x32;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("argmax takes the lowest of equals, never a NaN, for every width and instruction set") {
  for (const std::string& isa : isa_caps()) {
    CpuDevice device({.threads = 2, .isa = isa});
    for (const int32_t width : {1, 2, 17, 16384, 40001}) {
      CAPTURE(isa);
      CAPTURE(width);
      Random random(7);
      const auto w = static_cast<std::size_t>(width);
      std::vector<float> logits(5 * (w + 1));
      for (float& value : logits) value = std::round(random.normal(2.0f));
      for (std::size_t i = 0; i < w; ++i) logits[w + 1 + i] = NAN;
      for (std::size_t i = 0; i < w; ++i) logits[2 * (w + 1) + i] = -kInfinity;
      for (std::size_t i = 0; i + 1 < w; ++i) logits[3 * (w + 1) + i] = NAN;
      logits[3 * (w + 1) + w - 1] = -kInfinity;
      std::vector<int32_t> ids(5, -7);
      int32_t row_count = 4;
      frt_argmax_args args{};
      args.rows = 5;
      args.width = width;
      args.row_count = &row_count;
      args.logits = logits.data();
      args.stride = width + 1;
      args.ids = ids.data();
      device.run_captured(FRT_OP_ARGMAX, args);
      CHECK(ids[0] == std::max_element(logits.begin(), logits.begin() + width) - logits.begin());
      CHECK(ids[1] == 0);
      CHECK(ids[2] == 0);
      CHECK(ids[3] == width - 1);
    }
  }
}

TEST_CASE("count_tokens counts what was generated and marks the prompt, per slot") {
  CpuDevice device({.threads = 2});
  const Batch batch{3, {1, 0}, {0, 0}, {3, 2}};
  const std::vector<int32_t> ids = {4, 4, 9, 0, -1, 4};
  std::vector<uint32_t> counts(2 * 9, 0);
  frt_count_tokens_args args{};
  args.generated = 1;
  args.sequences = batch.view();
  args.ids = ids.data();
  args.vocabulary = 9;
  args.counts = counts.data();
  args.slot_stride = 36;
  device.run(FRT_OP_COUNT_TOKENS, args);
  args.generated = 0;
  device.run(FRT_OP_COUNT_TOKENS, args);
  std::vector<uint32_t> expected(18, 0);
  expected[9 + 4] = 0x80000002u;
  expected[0] = 0x80000001u;
  CHECK(counts == expected);
}

TEST_CASE("where a request begins, what was generated before it stands in its prompt") {
  CpuDevice device({.threads = 2});
  const Batch batch{4, {2, 0, 1}, {0, 0, 0}, {1, 1, 0}};
  const std::vector<int32_t> ids = {4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0};
  const std::vector<uint32_t> restart = {1, 0, 1};
  const std::vector<uint32_t> before = {3, 0, 0x80000002u, 0x80000000u, 7};
  std::vector<uint32_t> counts;
  for (int slot = 0; slot < 3; ++slot) counts.insert(counts.end(), before.begin(), before.end());
  frt_count_tokens_args args{};
  args.generated = 1;
  args.sequences = batch.view();
  args.ids = ids.data();
  args.vocabulary = 5;
  args.counts = counts.data();
  args.slot_stride = 20;
  args.restart = restart.data();
  device.run(FRT_OP_COUNT_TOKENS, args);
  CHECK(counts == std::vector<uint32_t>{3, 0, 0x80000002u, 0x80000000u, 8,  //
                                        3, 0, 0x80000002u, 0x80000000u, 7,  //
                                        0x80000000u, 0, 0x80000000u, 0x80000000u, 0x80000001u});
}

TEST_CASE("every combination of options draws what the definition draws") {
  for (const std::string& isa : isa_caps()) {
    CpuDevice device({.threads = 2, .isa = isa});
    int compared = 0;
    for (const int32_t vocabulary : {1, 5, 100, 9001}) {
      for (const float scale : {0.3f, 3.0f, 30.0f}) {
        Call call(48, vocabulary, 5, scale);
        for (std::size_t b = 0; b < 48; ++b) {
          frt_sampling_params& p = call.params[b];
          p.seed = 0x1234567890ull * (b + 1);
          p.temperature = b % 8 == 0 ? 0.0f : 0.5f + 0.25f * static_cast<float>(b % 4);
          p.top_k = b % 3 == 0 ? 0 : static_cast<int32_t>(b % 7) * 20 + 1;
          p.top_p = b % 4 < 2 ? 1.0f : 0.9f;
          p.min_p = b % 5 < 3 ? 0.0f : 0.05f;
          p.use_mask = b % 2;
          if (b % 6 > 2) {
            p.repetition_penalty = 1.3f;
            p.presence_penalty = 0.5f;
            p.frequency_penalty = 0.25f;
          }
        }
        device.run_captured(FRT_OP_SAMPLE, call.args());
        for (std::size_t b = 0; b < 48; ++b) {
          CAPTURE(isa);
          CAPTURE(vocabulary);
          CAPTURE(b);
          const Drawn expected = call.expected(b);
          if (expected.margin < 1e-5 || std::isnan(expected.log_probability)) continue;
          ++compared;
          CHECK(call.ids[b] == expected.id);
          CHECK(call.pending[2 * static_cast<std::size_t>(call.batch.slot[b])] == expected.id);
          CHECK(static_cast<double>(call.log_probabilities[b]) ==
                doctest::Approx(expected.log_probability).epsilon(1e-4));
        }
      }
    }
    CHECK(compared > 400);
  }
}

TEST_CASE("draws follow the probabilities") {
  CpuDevice device({.threads = 2});
  Call call(4000, 6, 5, 1.0f);
  const float logits[6] = {0.0f, 1.0f, 2.0f, -1.0f, 0.5f, 2.0f};
  std::vector<int32_t> seen(6, 0);
  for (std::size_t b = 0; b < 4000; ++b) {
    std::copy(logits, logits + 6,
              call.logits.begin() + static_cast<std::ptrdiff_t>(b * call.stride));
    call.params[b] = warm(1.0f, b);
  }
  device.run(FRT_OP_SAMPLE, call.args());
  for (const int32_t id : call.ids) ++seen[static_cast<std::size_t>(id)];
  double mass = 0;
  for (const float l : logits) mass += std::exp(static_cast<double>(l));
  for (std::size_t i = 0; i < 6; ++i) {
    const double p = std::exp(static_cast<double>(logits[i])) / mass;
    CHECK(std::abs(seen[i] / 4000.0 - p) < 4 * std::sqrt(p * (1 - p) / 4000));
  }
}

TEST_CASE("the draw depends on seed and position alone, not on the batch or the workers") {
  Call together(5, 30000, 9, 3.0f);
  for (std::size_t b = 0; b < 5; ++b) together.params[b] = warm(1.0f, 42 + b);
  CpuDevice device({.threads = 3});
  device.run(FRT_OP_SAMPLE, together.args());
  CpuDevice alone({.threads = 1});
  for (std::size_t b = 0; b < 5; ++b) {
    Call one = together;
    one.batch = one_sequence(1, 1, together.batch.position[b], 0);
    frt_sample_args args = one.args();
    args.logits += b * one.stride;
    args.params += b;
    alone.run(FRT_OP_SAMPLE, args);
    CHECK(one.ids[0] == together.ids[b]);
    CHECK(one.log_probabilities[0] == together.log_probabilities[b]);
    args.sequences.position = together.batch.position.data() + (b == 0 ? 1 : 0);
  }
}

TEST_CASE("flat logits reach beyond the candidates near the largest") {
  CpuDevice device({.threads = 2});
  Call call(16, 5000, 9, 0.0f);
  for (std::size_t b = 0; b < 16; ++b) {
    call.params[b] = warm(0.05f, b);
    float* l = call.logits.data() + b * call.stride;
    l[77] = 1.0f;  // the only candidate; half of the mass is far below it together
    for (std::size_t i = 0; i < 5000; ++i) {
      if (i != 77) l[i] = 1.0f - 0.05f * 10.5f + 0.05f * 1.9828f * static_cast<float>(b % 2);
    }
  }
  device.run(FRT_OP_SAMPLE, call.args());
  int elsewhere = 0;
  for (std::size_t b = 0; b < 16; ++b) {
    const Drawn expected = call.expected(b);
    if (expected.margin > 1e-5) CHECK(call.ids[b] == expected.id);
    elsewhere += call.ids[b] != 77;
  }
  CHECK(elsewhere > 0);
}

TEST_CASE("masked, infinite and NaN logits") {
  CpuDevice device({.threads = 2});
  Call call(6, 100, 9, 1.0f);
  for (std::size_t b = 0; b < 6; ++b) call.params[b] = warm(b % 2 ? 1.0f : 0.0f, b);
  const auto row = [&](std::size_t b) { return call.logits.data() + b * call.stride; };
  std::fill(row(0), row(0) + 100, NAN);
  std::fill(row(1), row(1) + 100, -kInfinity);
  row(2)[50] = kInfinity;
  row(3)[50] = kInfinity;
  call.params[4].use_mask = call.params[5].use_mask = 1;
  for (std::size_t i = 16; i < 24; ++i) call.mask[i] = 0;
  call.mask[22] = 1u << 5;  // only token 69 of sequence 5
  row(5)[69] = -50.0f;
  device.run(FRT_OP_SAMPLE, call.args());
  CHECK(call.ids == std::vector<int32_t>{0, 0, 50, 50, 0, 69});
  CHECK(call.log_probabilities[0] == -kInfinity);
  CHECK(call.log_probabilities[3] == 0.0f);
  CHECK(call.log_probabilities[4] == -kInfinity);
  CHECK(call.log_probabilities[5] == 0.0f);
}

TEST_CASE("sequences of length 0 draw nothing") {
  CpuDevice device({.threads = 2});
  Call call(3, 100, 9, 1.0f);
  call.batch.length[1] = 0;
  device.run(FRT_OP_SAMPLE, call.args());
  CHECK(call.ids[0] >= 0);
  CHECK(call.ids[1] == -7);
  CHECK(call.log_probabilities[1] == 7.0f);
  CHECK(call.pending[2] == -7);
}

TEST_CASE("sample refuses what makes no sense by name") {
  CpuDevice device({.threads = 1});
  Call call(1, 64, 9, 1.0f);
  std::string message;
  frt_sample_args args = call.args();
  args.mask_stride = 1;
  CHECK(device.refusal(FRT_OP_SAMPLE, args, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find(std::string(FRT_OP_SAMPLE) + ": mask_stride") == 0);
  args = call.args();
  args.stride = 63;
  CHECK(device.refusal(FRT_OP_SAMPLE, args, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("stride") != std::string::npos);
}
