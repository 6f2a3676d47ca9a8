// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/sample.h.
//
// Ids are compared exactly. Backends add probabilities in different orders, so a draw closer to the
// border of two tokens than rounding may go either way; most cases have few tokens of noticeable
// probability, or equal ones whose sums are exact, where that does not happen. In flat
// distributions over large vocabularies it may: there both ids must be right by exact sums within
// kBorder of the whole.
#include <frt/ops/sample.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <span>

#include "check.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kBorder = 1e-5;

std::string number(int64_t value) {
  return std::to_string(value);
}

// ---- argmax -----------------------------------------------------------------------------------

enum class Logits { kNormal, kTies, kEqual, kSomeNan, kAllNan, kNegative, kInfinite, kZeros };

std::vector<float> logits_of(Case& c, Logits kind, int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& value = values[i];
    value = normal(c.random());
    switch (kind) {
      case Logits::kTies:
        value = std::round(value / 3.0f);
        break;
      case Logits::kEqual:
        value = -1.5f;
        break;
      case Logits::kSomeNan:
        if (c.random()() % 3 == 0) value = c.random()() % 2 ? kNan : -kNan;
        break;
      case Logits::kAllNan:
        value = kNan;
        break;
      case Logits::kNegative:
        value = c.random()() % 5 == 0 ? -kInfinity : -std::fabs(value) - 1e30f;
        break;
      case Logits::kInfinite:
        value = c.random()() % 4 == 0 ? kInfinity : -kInfinity;
        break;
      case Logits::kZeros:
        value = c.random()() % 2 ? 0.0f : -0.0f;
        break;
      case Logits::kNormal:
        break;
    }
  }
  return values;
}

void argmax(Case& c, Logits kind, int32_t rows, int32_t width, int64_t gap, int32_t row_count) {
  const int64_t stride = width + gap;
  const std::vector<float> values = logits_of(c, kind, rows * stride);
  const Tensor& logits = c.raw("logits", FRT_DTYPE_F32, values.data(), rows * stride);
  Tensor& ids = c.output("ids", FRT_DTYPE_I32, rows + 2);
  Tensor& count = c.integers("row_count", {row_count});
  c.run<frt_argmax_args>(FRT_OP_ARGMAX, KernelTypes(), {},
                         [&](frt_argmax_args& args, const At& at) {
                           args.rows = rows;
                           args.width = width;
                           if (row_count >= 0) args.row_count = at.operator()<int32_t>(count);
                           args.logits = at.operator()<float>(logits);
                           args.stride = stride;
                           args.ids = at.operator()<int32_t>(ids);
                         });
  c.compare_range(ids, 0, rows, kExact, row_count < 0 ? Untouched::kLeave : Untouched::kIgnore);
  c.compare_range(ids, rows, 2, kExact);

  Expected expected(FRT_DTYPE_I32, ids.count);
  for (int64_t row = 0; row < rows; ++row) {
    int32_t best = -1;
    for (int32_t i = 0; i < width; ++i) {
      const float value = values[static_cast<std::size_t>(row * stride + i)];
      if (std::isnan(value)) continue;
      if (best < 0 || value > values[static_cast<std::size_t>(row * stride + best)]) best = i;
    }
    if (best < 0 || (row_count >= 0 && row >= row_count)) {
      expected.ignore(row, 1);  // no number wins where there is none
    } else {
      expected.value(row, best);
    }
  }
  c.require(ids, expected);
}

void argmax_refusals(Case& c) {
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 32);
  Tensor& ids = c.output("ids", FRT_DTYPE_I32, 2);
  const auto refuse = [&](auto spoil) {
    refused<frt_argmax_args>(
        c, FRT_OP_ARGMAX, KernelTypes(), {},
        [&](frt_argmax_args& args, const At& at) {
          args.rows = 2;
          args.width = 16;
          args.logits = at.operator()<float>(x);
          args.stride = 16;
          args.ids = at.operator()<int32_t>(ids);
        },
        spoil);
  };
  refuse([](frt_argmax_args& args) { args.rows = 0; });
  refuse([](frt_argmax_args& args) { args.width = 0; });
  refuse([](frt_argmax_args& args) { args.logits = nullptr; });
  refuse([](frt_argmax_args& args) { args.stride = 15; });
  refuse([](frt_argmax_args& args) { args.ids = nullptr; });
}

// ---- counts -----------------------------------------------------------------------------------

void count_tokens(Case& c, uint32_t generated, int32_t rows, const std::vector<int32_t>& slot,
                  const std::vector<int32_t>& length, int32_t vocabulary, int64_t gap,
                  bool restarts) {
  const std::vector<int32_t> position(slot.size(), 3);
  const Case::Sequences sequences = c.sequences(rows, slot, position, length);
  const int64_t total = static_cast<int64_t>(slot.size()) * rows;
  std::vector<int32_t> values;
  for (int64_t i = 0; i < total; ++i) {
    const auto id = static_cast<int32_t>(c.random()() % static_cast<uint64_t>(vocabulary));
    values.push_back(i % 9 == 4 ? -1 - id : i % 13 == 6 ? vocabulary + id : id);
  }
  const Tensor& ids = c.integers("ids", values);
  const int32_t slots = *std::max_element(slot.begin(), slot.end()) + 1;
  std::vector<uint32_t> before(static_cast<std::size_t>(slots * (vocabulary + gap)));
  for (uint32_t& count : before) {
    const uint32_t kinds[] = {0, 0, 5, 0x80000000u, 0x80000003u, 0x7FFFFFFFu, 0xFFFFFFFFu};
    count = kinds[c.random()() % 7];
  }
  Tensor& counts =
      c.raw("counts", FRT_DTYPE_U32, before.data(), static_cast<int64_t>(before.size()));
  std::vector<int32_t> begins;  // every other sequence, the first one included
  for (std::size_t b = 0; b < slot.size(); ++b) begins.push_back(b % 2 == 0 ? 1 : 0);
  const Tensor& restart = c.integers("restart", begins);
  c.run<frt_count_tokens_args>(FRT_OP_COUNT_TOKENS, KernelTypes(), {},
                               [&](frt_count_tokens_args& args, const At& at) {
                                 args.generated = generated;
                                 args.sequences = sequences.at(at);
                                 args.ids = at.operator()<int32_t>(ids);
                                 args.vocabulary = vocabulary;
                                 args.counts = at(counts);
                                 args.slot_stride = (vocabulary + gap) * 4;
                                 if (restarts) args.restart = at.operator()<uint32_t>(restart);
                               });
  c.compare(counts, kExact);

  Expected expected(FRT_DTYPE_U32, counts.count);
  std::vector<uint32_t> after = before;
  for (std::size_t b = 0; b < slot.size(); ++b) {
    // A request that begins takes every token seen so far for its prompt.
    for (int32_t id = 0; restarts && begins[b] != 0 && length[b] > 0 && id < vocabulary; ++id) {
      uint32_t& one = after[static_cast<std::size_t>(slot[b] * (vocabulary + gap) + id)];
      if (one != 0) one = 0x80000000u;
    }
    for (int32_t q = 0; q < length[b]; ++q) {
      const int32_t id = values[b * static_cast<std::size_t>(rows) + static_cast<std::size_t>(q)];
      if (id < 0 || id >= vocabulary) continue;
      const auto at = static_cast<std::size_t>(slot[b] * (vocabulary + gap) + id);
      if (!generated) {
        after[at] |= 0x80000000u;
      } else if ((after[at] & 0x7FFFFFFFu) != 0x7FFFFFFFu) {
        ++after[at];
      }
    }
  }
  for (std::size_t i = 0; i < after.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (after[i] != before[i]) expected.value(at, after[i]);
  }
  c.require(counts, expected);
}

void count_refusals(Case& c) {
  const Case::Sequences sequences = c.sequences(2, {0}, {0}, {2});
  const Tensor& ids = c.integers("ids", {1, 2});
  Tensor& counts = c.output("counts", FRT_DTYPE_U32, 16);
  const auto refuse = [&](auto spoil) {
    refused<frt_count_tokens_args>(
        c, FRT_OP_COUNT_TOKENS, KernelTypes(), {},
        [&](frt_count_tokens_args& args, const At& at) {
          args.sequences = sequences.at(at);
          args.ids = at.operator()<int32_t>(ids);
          args.vocabulary = 16;
          args.counts = at(counts);
          args.slot_stride = 64;
        },
        spoil);
  };
  refuse([](frt_count_tokens_args& args) { args.generated = 2; });
  refuse([](frt_count_tokens_args& args) { args.sequences.rows = 0; });
  refuse([](frt_count_tokens_args& args) { args.ids = nullptr; });
  refuse([](frt_count_tokens_args& args) { args.vocabulary = 0; });
  refuse([](frt_count_tokens_args& args) { args.counts = nullptr; });
  refuse([](frt_count_tokens_args& args) { args.slot_stride = 66; });
}

// ---- sampling ---------------------------------------------------------------------------------

// What the logits of a sequence look like.
enum class Shape {
  kPeaked,  // about 30 tokens of noticeable probability
  kFlat,    // normal: probability everywhere
  kEqual,   // all the same
  kSteps,   // seven values, each of thousands of tokens
  kHostile  // NaN, infinities, zeros of both signs between peaked ones
};

struct Setting {
  std::string name;
  frt_sampling_params params;
  Shape shape = Shape::kPeaked;
  bool near = false;  // a draw within kBorder of the border is right, too
};

frt_sampling_params params_of(float temperature, int32_t top_k, float top_p, float min_p,
                              float repetition = 1, float presence = 0, float frequency = 0) {
  frt_sampling_params params{};
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  params.repetition_penalty = repetition;
  params.presence_penalty = presence;
  params.frequency_penalty = frequency;
  return params;
}

struct Layout {
  std::vector<int32_t> slot = {0}, position = {5}, length = {1};
  int32_t rows = 1;
  int64_t gap = 0;  // of logits, counts and pending; mask words
  bool mask = false, bias = false, counts = false, pending = true, log_probabilities = true;
};

std::vector<float> sample_logits(Case& c, Shape shape, int32_t vocabulary) {
  std::vector<float> values(static_cast<std::size_t>(vocabulary));
  std::normal_distribution<float> normal(0.0f, shape == Shape::kFlat ? 2.0f : 1.0f);
  for (float& value : values) {
    value = normal(c.random());
    if (shape == Shape::kEqual) value = 0.75f;
    if (shape == Shape::kSteps) value = 0.5f * std::clamp(std::round(2 * value), -3.0f, 3.0f);
  }
  if (shape == Shape::kPeaked || shape == Shape::kHostile) {
    for (int i = 0; i < 30; ++i) {
      values[c.random()() % values.size()] =
          18.0f - 0.3f * static_cast<float>(i) + 0.1f * normal(c.random());
    }
  }
  if (shape == Shape::kHostile) {
    for (std::size_t i = 0; i < values.size(); i += 5) {
      const float kinds[] = {kNan, -kInfinity, 0.0f, -0.0f, -kNan};
      values[i] = kinds[c.random()() % 5];
    }
  }
  return values;
}

// u of frt/ops/sample.h.
double uniform(uint64_t seed, uint32_t position) {
  std::array<uint32_t, 4> counter = {position, 0, 0, 0};
  std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter[0] * 0x1p-32;
}

// ---- the whole of sampling, by the header -------------------------------------------------------

// What one sequence is sampled from.
struct Draw {
  std::vector<float> adjusted;  // after mask, bias and penalties, steps 1 and 2
  std::vector<int32_t> order;   // ids that are allowed, by falling logit, ties by id
};

// f32 as the header says; volatile: no operation is fused with another.
Draw adjusted_logits(const std::vector<float>& logits, const frt_sampling_params& params,
                     const uint32_t* mask, std::span<const frt_logit_bias> bias,
                     const uint32_t* counts) {
  Draw draw;
  std::vector<float> added(logits.size());
  for (const frt_logit_bias& one : bias) {
    if (one.id < 0 || static_cast<std::size_t>(one.id) >= added.size()) continue;
    added[static_cast<std::size_t>(one.id)] = one.value;
  }
  for (std::size_t i = 0; i < logits.size(); ++i) {
    volatile float l = logits[i] + added[i];
    if (counts && counts[i] != 0) {
      const volatile float repeated =
          l > 0 ? l / params.repetition_penalty : l * params.repetition_penalty;
      l = repeated;
      const uint32_t times = counts[i] & 0x7FFFFFFFu;
      const volatile float less = params.frequency_penalty * static_cast<float>(times);
      l = l - less;
      if (times > 0) l = l - params.presence_penalty;
    }
    const bool allowed = !mask || !params.use_mask || (mask[i / 32] >> (i % 32) & 1u) != 0;
    draw.adjusted.push_back(allowed && !std::isnan(l) ? l : -kInfinity);
    if (draw.adjusted.back() > -kInfinity) draw.order.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(draw.order.begin(), draw.order.end(), [&](int32_t a, int32_t b) {
    return draw.adjusted[static_cast<std::size_t>(a)] > draw.adjusted[static_cast<std::size_t>(b)];
  });
  return draw;
}

// Steps 3 to 6: whether `id` may be drawn by `u`. A backend's probabilities are f32, so a cut or a
// border may lie a little to either side of the exact one: each cut is tried there, too.
bool may_draw(const Draw& draw, const frt_sampling_params& params, double u, int32_t id) {
  const auto logit = [&](std::size_t place) {
    return static_cast<double>(draw.adjusted[static_cast<std::size_t>(draw.order[place])]);
  };
  if (params.temperature == 0) return id == draw.order.front();
  const auto temperature = static_cast<double>(params.temperature);
  std::size_t limit = draw.order.size();
  if (params.top_k > 0) limit = std::min(limit, static_cast<std::size_t>(params.top_k));
  std::vector<double> weights;
  double mass = 0;
  for (std::size_t i = 0; i < limit; ++i) {
    weights.push_back(std::exp((logit(i) - logit(0)) / temperature));
    mass += weights.back();
  }
  // Of one weight, relative: a few roundings of the exponent.
  const double slack = kBorder + 0x1p-21 * (1 + std::fabs(logit(0))) / temperature;
  for (const double top_p : {0.0, -slack, slack}) {
    for (const double min_p : {1.0, 1 - slack, 1 + slack}) {
      double kept = 0, before = 0, share = -1;
      for (std::size_t i = 0; i < limit; ++i) {
        if (i > 0 && weights[i] < static_cast<double>(params.min_p) * min_p) break;
        if (draw.order[i] == id) {
          before = kept;
          share = weights[i];
        }
        kept += weights[i];
        const double enough = static_cast<double>(params.top_p) + top_p;
        if (params.top_p < 1.0f && kept >= enough * mass) break;
      }
      if (share >= 0 && u >= before / kept - slack && u < (before + share) / kept + slack) {
        return true;
      }
    }
  }
  return false;
}

// Natural logarithm of the token's probability under the softmax of step 2's logits.
double log_probability(const Draw& draw, int32_t id) {
  const auto top = static_cast<double>(draw.adjusted[static_cast<std::size_t>(draw.order.front())]);
  double sum = 0;
  for (const int32_t i : draw.order) {
    sum += std::exp(static_cast<double>(draw.adjusted[static_cast<std::size_t>(i)]) - top);
  }
  return static_cast<double>(draw.adjusted[static_cast<std::size_t>(id)]) - top - std::log(sum);
}

// Fails if u is outside of the token's share of the probability by more than kBorder. Without
// penalties and mask.
void require_share(const std::vector<float>& logits, const frt_sampling_params& params, double u,
                   int32_t id) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int32_t i) { return logits[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  const double largest = static_cast<double>(logit(order[0]));
  const auto weight = [&](int32_t i) {
    return std::exp((static_cast<double>(logit(i)) - largest) /
                    static_cast<double>(params.temperature));
  };
  std::size_t limit = order.size();
  if (params.top_k > 0) limit = std::min(limit, static_cast<std::size_t>(params.top_k));
  double mass = 0;
  for (std::size_t i = 0; i < limit; ++i) mass += weight(order[i]);
  double kept = 0;
  for (std::size_t i = 0; i < limit; ++i) {
    if (i > 0 && weight(order[i]) < static_cast<double>(params.min_p)) {
      limit = i;
      break;
    }
    kept += weight(order[i]);
    if (params.top_p < 1.0f && kept >= static_cast<double>(params.top_p) * mass) limit = i + 1;
  }
  double before = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double share = weight(order[i]) / kept;
    if (order[i] == id) {
      if (u >= before - kBorder && u <= before + share + kBorder) return;
      Case::fail("token " + number(id) + " has the share from " + std::to_string(before) +
                 ", width " + std::to_string(share) + ", the draw is " + std::to_string(u));
    }
    before += share;
  }
  Case::fail("token " + number(id) + " does not exist");
}

constexpr int64_t kBiasStride = 300;

// Of `count` sequences: distinct ids, some of them no tokens, in no order; how many apply.
std::vector<frt_logit_bias> random_bias(Case& c, int32_t vocabulary, int64_t count,
                                        std::vector<frt_sampling_params>& params) {
  std::vector<frt_logit_bias> bias;
  for (int64_t b = 0; b < count; ++b) {
    const uint32_t counts[] = {12, 0, 1, kBiasStride, kBiasStride + 7};
    params[static_cast<std::size_t>(b)].bias_count = counts[b % 5];
    std::set<int32_t> used;
    while (used.size() < kBiasStride) {
      const int32_t outside[] = {-1, INT32_MIN, INT32_MAX, vocabulary};
      const auto place = static_cast<int32_t>(used.size());
      const auto id = static_cast<int32_t>(c.random()() % static_cast<uint64_t>(vocabulary));
      const int32_t one = place % 9 == 4 && place < 36   ? outside[place / 9]
                          : vocabulary > 2 * kBiasStride ? id
                          : place < vocabulary           ? place
                                                         : vocabulary + place;
      if (!used.insert(one).second) continue;
      const float values[] = {-100, 100, -1, 0.75f, 3, -7.3f, 18};
      bias.push_back({one, values[c.random()() % 7]});
    }
  }
  return bias;
}

void sample(Case& c, int32_t vocabulary, const std::vector<Setting>& settings,
            const Layout& layout) {
  const auto count = static_cast<int64_t>(layout.slot.size());
  const Case::Sequences sequences =
      c.sequences(layout.rows, layout.slot, layout.position, layout.length);
  const int32_t slots = *std::max_element(layout.slot.begin(), layout.slot.end()) + 1;
  const int64_t stride = vocabulary + layout.gap;
  const int64_t mask_stride = (vocabulary + 31) / 32 + layout.gap;
  std::vector<float> logits(static_cast<std::size_t>(count * stride), kInfinity);
  std::vector<std::vector<float>> rows;
  std::vector<frt_sampling_params> params;
  for (int64_t b = 0; b < count; ++b) {
    const Setting& setting = settings[static_cast<std::size_t>(b) % settings.size()];
    rows.push_back(sample_logits(c, setting.shape, vocabulary));
    std::copy(rows.back().begin(), rows.back().end(), logits.begin() + b * stride);
    params.push_back(setting.params);
    params.back().seed = c.random()();
    params.back().use_mask = layout.mask && b % 3 != 2 ? 1 : 0;
  }
  std::vector<frt_logit_bias> bias(1);
  if (layout.bias) bias = random_bias(c, vocabulary, count, params);
  const Tensor& bias_at = c.raw("bias", FRT_DTYPE_U8, bias.data(),
                                static_cast<int64_t>(bias.size() * sizeof(frt_logit_bias)));
  const Tensor& logits_at = c.raw("logits", FRT_DTYPE_F32, logits.data(), count * stride);
  const Tensor& params_at =
      c.raw("params", FRT_DTYPE_U8, params.data(), count * static_cast<int64_t>(sizeof(params[0])));
  std::vector<uint32_t> mask(static_cast<std::size_t>(count * mask_stride));
  for (uint32_t& word : mask) word = static_cast<uint32_t>(c.random()() | c.random()());
  const Tensor& mask_at = c.raw("mask", FRT_DTYPE_U32, mask.data(), count * mask_stride);
  std::vector<uint32_t> counts(static_cast<std::size_t>(slots * stride));
  for (uint32_t& one : counts) {
    const uint32_t kinds[] = {0, 0, 0, 1, 2, 6, 0x80000000u, 0x80000001u};
    one = kinds[c.random()() % 8];
  }
  const Tensor& counts_at = c.raw("counts", FRT_DTYPE_U32, counts.data(), slots * stride);
  Tensor& pending = c.output("pending", FRT_DTYPE_I32, slots * (1 + layout.gap));
  Tensor& ids = c.output("ids", FRT_DTYPE_I32, count);
  Tensor& chances = c.output("log_probabilities", FRT_DTYPE_F32, count);
  c.run<frt_sample_args>(FRT_OP_SAMPLE, KernelTypes(), {},
                         [&](frt_sample_args& args, const At& at) {
                           args.vocabulary = vocabulary;
                           args.sequences = sequences.at(at);
                           args.logits = at.operator()<float>(logits_at);
                           args.stride = stride;
                           args.params = static_cast<const frt_sampling_params*>(at(params_at));
                           if (layout.mask) args.mask = at.operator()<uint32_t>(mask_at);
                           args.mask_stride = mask_stride;
                           if (layout.bias) {
                             args.bias = static_cast<const frt_logit_bias*>(at(bias_at));
                             args.bias_stride = kBiasStride;
                           }
                           if (layout.counts) args.counts = at(counts_at);
                           args.counts_stride = stride * 4;
                           if (layout.pending) args.pending = at(pending);
                           args.pending_stride = (1 + layout.gap) * 4;
                           args.ids = at.operator()<int32_t>(ids);
                           if (layout.log_probabilities)
                             args.log_probabilities = at.operator()<float>(chances);
                         });
  for (int64_t b = 0; b < count; ++b) {
    const auto i = static_cast<std::size_t>(b);
    const auto drawn = static_cast<int32_t>(Case::value(ids, 0, b));
    const bool same = drawn == static_cast<int32_t>(Case::value(ids, 1, b));
    if (!same && settings[i % settings.size()].near) {
      const double u =
          uniform(params[i].seed, static_cast<uint32_t>(layout.position[i] + layout.length[i]));
      require_share(rows[i], params[i], u, drawn);
      continue;
    }
    c.compare_range(ids, b, 1, kExact);
    // With a bias one token may have nearly all probability. Its logarithm is then the rounding of
    // two logits, which says nothing relative to itself; it is judged against the definition below.
    if (!layout.bias) c.compare_range(chances, b, 1, kF32);
    const int64_t slot = layout.slot[i] * (1 + layout.gap);
    c.compare_range(pending, slot, 1 + layout.gap, kExact);
  }

  for (int side = 0; side < 2; ++side) {
    const char* whose = side == 0 ? "" : "the reference's ";
    Expected waiting(FRT_DTYPE_I32, pending.count), drawn(FRT_DTYPE_I32, count);
    Expected logarithms(FRT_DTYPE_F32, count);
    for (int64_t b = 0; b < count; ++b) {
      const auto i = static_cast<std::size_t>(b);
      if (layout.length[i] == 0) continue;
      const int64_t slot = layout.slot[i];
      std::span<const frt_logit_bias> biased;
      if (layout.bias) {
        biased = std::span(bias).subspan(i * kBiasStride,
                                         std::min<std::size_t>(params[i].bias_count, kBiasStride));
      }
      const Draw draw =
          adjusted_logits(rows[i], params[i], layout.mask ? mask.data() + b * mask_stride : nullptr,
                          biased, layout.counts ? counts.data() + slot * stride : nullptr);
      const double found = Case::value(ids, side, b);
      if (draw.order.empty()) {  // nothing is allowed: any token is as wrong as another
        drawn.ignore(b, 1);
        logarithms.ignore(b, 1);
        if (layout.pending) waiting.ignore(slot * (1 + layout.gap), 1);
        continue;
      }
      const auto id = static_cast<int32_t>(found);
      const double u =
          uniform(params[i].seed, static_cast<uint32_t>(layout.position[i] + layout.length[i]));
      if (id < 0 || id >= vocabulary || !may_draw(draw, params[i], u, id)) {
        Case::fail(std::string(whose) + "ids[" + number(b) + "] is " + number(id) +
                   ", by the header the draw " + std::to_string(u) + " picks another token");
      }
      drawn.value(b, found);
      if (layout.pending) waiting.value(slot * (1 + layout.gap), found);
      if (!layout.log_probabilities) continue;
      const double logarithm = log_probability(draw, id);
      // The difference of two logits in f32, and the logarithm of a sum of up to 2^18 terms.
      const double top = std::fabs(
          static_cast<double>(draw.adjusted[static_cast<std::size_t>(draw.order.front())]));
      logarithms.value(b, logarithm, 1e-5 * (1 + std::fabs(logarithm) + top));
    }
    const auto judge = [&](const Tensor& tensor, const Expected& expected) {
      const std::string complaint =
          expected.judge(tensor.name, tensor.initial, tensor.result[side]);
      if (!complaint.empty()) Case::fail(whose + complaint);
    };
    judge(ids, drawn);
    judge(chances, logarithms);
    judge(pending, waiting);
  }
}

void sample_refusals(Case& c) {
  const Case::Sequences sequences = c.sequences(1, {0}, {0}, {1});
  const frt_sampling_params greedy = params_of(0, 0, 1, 0);
  const Tensor& params = c.raw("params", FRT_DTYPE_U8, &greedy, sizeof(greedy));
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 40);
  Tensor& ids = c.output("ids", FRT_DTYPE_I32, 1);
  const auto refuse = [&](auto spoil) {
    refused<frt_sample_args>(
        c, FRT_OP_SAMPLE, KernelTypes(), {},
        [&](frt_sample_args& args, const At& at) {
          args.vocabulary = 40;
          args.sequences = sequences.at(at);
          args.logits = at.operator()<float>(x);
          args.stride = 40;
          args.params = static_cast<const frt_sampling_params*>(at(params));
          args.ids = at.operator()<int32_t>(ids);
        },
        spoil);
  };
  refuse([](frt_sample_args& args) { args.vocabulary = 0; });
  refuse([](frt_sample_args& args) { args.sequences.count = 0; });
  refuse([](frt_sample_args& args) { args.logits = nullptr; });
  refuse([](frt_sample_args& args) { args.stride = 39; });
  refuse([](frt_sample_args& args) { args.params = nullptr; });
  refuse([](frt_sample_args& args) {
    args.mask = reinterpret_cast<const uint32_t*>(args.logits);
    args.mask_stride = 1;
  });
  refuse([](frt_sample_args& args) {
    args.bias = reinterpret_cast<const frt_logit_bias*>(args.logits);
    args.bias_stride = 0;
  });
  refuse([](frt_sample_args& args) {
    args.counts = args.logits;
    args.counts_stride = 162;
  });
  refuse([](frt_sample_args& args) {
    args.pending = args.ids;
    args.pending_stride = 5;
  });
  refuse([](frt_sample_args& args) { args.ids = nullptr; });
}

// ---- the lists --------------------------------------------------------------------------------

const Setting kGreedy = {"greedy", params_of(0, 0, 1, 0)};

std::vector<Setting> peaked_settings() {
  return {
      kGreedy,
      {"plain", params_of(1, 0, 1, 0)},
      {"usual", params_of(0.6f, 20, 0.95f, 0)},
      {"warm", params_of(1.7f, 0, 0.9f, 0)},
      {"min p", params_of(1, 0, 1, 0.08f)},
      {"all cuts", params_of(1.2f, 25, 0.97f, 0.02f)},
      {"top k 1", params_of(2, 1, 1, 0)},
      {"top k of everything", params_of(1, 1 << 30, 0.99f, 0)},
      {"top p 0", params_of(1, 0, 0, 0)},
      {"min p 1", params_of(1, 0, 1, 1)},
      {"min p beyond", params_of(1, 12, 0.9f, 3)},
      {"cold", params_of(1e-4f, 0, 1, 0)},
      {"hostile greedy", params_of(0, 0, 1, 0), Shape::kHostile},
      {"hostile", params_of(0.8f, 40, 0.95f, 0.01f), Shape::kHostile},
      {"hostile plain", params_of(1.1f, 0, 1, 0), Shape::kHostile},
  };
}

std::vector<Setting> flat_settings() {
  return {
      {"flat", params_of(1, 0, 1, 0), Shape::kFlat, true},
      {"flat top p", params_of(1, 0, 0.9f, 0), Shape::kFlat, true},
      {"flat top k", params_of(1.5f, 9000, 1, 0), Shape::kFlat, true},
      {"flat min p", params_of(1, 0, 1, 0.001f), Shape::kFlat, true},
      {"flat all cuts", params_of(2, 6000, 0.98f, 0.004f), Shape::kFlat, true},
      {"hot", params_of(1000, 0, 1, 0), Shape::kFlat, true},
      {"hot top k", params_of(50, 5000, 0.7f, 0), Shape::kFlat, true},
      {"equal", params_of(1, 0, 1, 0), Shape::kEqual},
      {"equal top k", params_of(0.3f, 7777, 1, 0), Shape::kEqual},
      {"equal top p", params_of(1, 0, 0.5f, 0), Shape::kEqual},
      {"equal all cuts", params_of(1, 20'000, 0.25f, 1), Shape::kEqual},
      {"steps", params_of(1, 0, 1, 0), Shape::kSteps, true},
      {"steps top k", params_of(1, 11'000, 1, 0), Shape::kSteps, true},
      {"steps min p", params_of(0.7f, 0, 0.99f, 0.1f), Shape::kSteps, true},
      {"steps greedy", params_of(0, 0, 1, 0), Shape::kSteps},
  };
}

std::vector<Setting> penalised(std::vector<Setting> settings) {
  for (Setting& setting : settings) {
    setting.name += " penalised";
    setting.params.repetition_penalty = 1.3f;
    setting.params.presence_penalty = 0.5f;
    setting.params.frequency_penalty = 0.21f;
  }
  return settings;
}

void add_argmax_cases(Suite& suite) {
  for (const auto& [kind, name] : {std::pair{Logits::kNormal, "normal"},
                                   {Logits::kTies, "ties"},
                                   {Logits::kEqual, "equal"},
                                   {Logits::kSomeNan, "some nan"},
                                   {Logits::kAllNan, "all nan"},
                                   {Logits::kNegative, "negative"},
                                   {Logits::kInfinite, "infinite"},
                                   {Logits::kZeros, "zeros"}}) {
    const auto add = [&, kind = kind, name = name](int32_t rows, int32_t width, int64_t gap,
                                                   int32_t row_count) {
      suite.add(std::string(FRT_OP_ARGMAX) + " " + name + " " + number(rows) + "x" + number(width) +
                    (row_count >= 0 ? " row count " + number(row_count) : ""),
                [=](Case& c) { argmax(c, kind, rows, width, gap, row_count); });
    };
    add(1, 1, 0, -1);
    add(3, 33, 1, -1);
    add(2, 4097, 3, -1);
    add(1, 248'320, 0, -1);
    add(9, 2048, 0, 5);
    add(3, 100, 0, 0);
  }
  suite.add(std::string(FRT_OP_ARGMAX) + " normal 32x50000",
            [](Case& c) { argmax(c, Logits::kNormal, 32, 50'000, 8, -1); });
  suite.add(std::string(FRT_OP_ARGMAX) + " refusals", argmax_refusals);
}

void add_count_cases(Suite& suite) {
  for (const auto& [generated, restarts] :
       {std::pair{0u, false}, {1u, false}, {0u, true}, {1u, true}}) {
    const auto add = [&, generated = generated, restarts = restarts](
                         const char* what, int32_t rows, const std::vector<int32_t>& slot,
                         const std::vector<int32_t>& length, int32_t vocabulary, int64_t gap) {
      suite.add(std::string(FRT_OP_COUNT_TOKENS) + (generated ? " generated " : " prompt ") + what +
                    (restarts ? ", requests begin" : ""),
                [=](Case& c) {
                  count_tokens(c, generated, rows, slot, length, vocabulary, gap, restarts);
                });
    };
    add("prefill", 700, {1}, {613}, 97, 3);
    add("long prefill", 5000, {1}, {4999}, 248'320, 0);
    add("one token, often", 400, {0}, {400}, 1, 0);
    add("decode", 1, {4, 0, 2, 1}, {1, 1, 0, 1}, 50'000, 5);
    add("several rows", 5, {1, 0, 3}, {5, 2, 0}, 11, 0);
  }
  suite.add(std::string(FRT_OP_COUNT_TOKENS) + " refusals", count_refusals);
}

void add_sample_case(Suite& suite, int32_t vocabulary, const std::vector<Setting>& settings,
                     const Layout& layout, const std::string& what) {
  suite.add(std::string(FRT_OP_SAMPLE) + " " + number(vocabulary) + " " + what,
            [=](Case& c) { sample(c, vocabulary, settings, layout); });
}

}  // namespace

void add_sample_cases(Suite& suite) {
  add_argmax_cases(suite);
  add_count_cases(suite);

  const Layout one;
  Layout guided;  // mask and penalties
  guided.mask = guided.counts = true;
  for (const int32_t vocabulary : {1, 33, 1000, 50'000, 248'320}) {
    for (const Setting& setting : peaked_settings()) {
      add_sample_case(suite, vocabulary, {setting}, one, setting.name);
    }
    for (const Setting& setting : penalised(peaked_settings())) {
      if (vocabulary == 33 && setting.shape == Shape::kHostile) continue;  // nearly nothing is left
      add_sample_case(suite, vocabulary, {setting}, guided, setting.name);
    }
  }
  Layout biased = guided;  // five sequences with as many numbers of tokens
  biased.bias = true;
  biased.slot = {3, 0, 4, 1, 2};
  biased.position = {5, 0, 71, 2, 9};
  biased.length.assign(5, 1);
  for (const int32_t vocabulary : {2, 1000, 2049, 248'320}) {
    for (const Setting& setting : penalised(peaked_settings())) {
      if (vocabulary == 2 && setting.shape == Shape::kHostile) continue;
      add_sample_case(suite, vocabulary, {setting}, biased, setting.name + " biased");
    }
    add_sample_case(suite, vocabulary, {kGreedy}, biased, "greedy biased");
  }
  for (const int32_t vocabulary : {12'345, 50'000, 248'320}) {
    for (const Setting& setting : flat_settings()) {
      add_sample_case(suite, vocabulary, {setting}, one, setting.name);
    }
  }

  Layout batch;
  batch.slot = {6, 0, 3, 1, 9, 2, 4};
  batch.position = {0, 17, 3, 99'999, 5, 1, 2};
  batch.length = {1, 3, 0, 4, 2, 0, 1};
  batch.rows = 4;
  batch.gap = 3;
  batch.mask = batch.counts = true;
  add_sample_case(suite, 1003, peaked_settings(), batch, "batch");
  add_sample_case(suite, 1003, penalised(peaked_settings()), batch, "batch penalised");
  batch.mask = batch.pending = false;
  add_sample_case(suite, 30'011, penalised(peaked_settings()), batch, "batch without mask");
  batch.log_probabilities = batch.counts = false;
  add_sample_case(suite, 2048, penalised(peaked_settings()), batch, "batch of ids alone");
  batch.length.assign(7, 0);
  add_sample_case(suite, 100, peaked_settings(), batch, "batch of nothing");
  Layout wide;
  wide.slot.resize(32);
  std::iota(wide.slot.rbegin(), wide.slot.rend(), 0);
  wide.position.assign(32, 7);
  wide.length.assign(32, 1);
  add_sample_case(suite, 9000, peaked_settings(), wide, "batch of 32");
  suite.add(std::string(FRT_OP_SAMPLE) + " refusals", sample_refusals);
}

}  // namespace frt::conformance
