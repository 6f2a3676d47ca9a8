// SPDX-License-Identifier: Apache-2.0
// The operators that check drafted tokens: a token sampled for each row, which drafts are accepted,
// and the chain of a draft head.
#include <frt/ops/sample.h>

#include <algorithm>
#include <string>
#include <vector>

#include "check.hpp"
#include "expected.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

// Sequences of several rows, of which some are not active, and one that takes no part.
struct Rows {
  int32_t rows = 4;
  std::vector<int32_t> slot = {2, 0, 3, 1}, position = {9, 1, 300, 17}, length = {4, 2, 0, 1};

  int64_t count() const { return static_cast<int64_t>(slot.size()); }
  int64_t total() const { return count() * rows; }
};

std::vector<int32_t> random_ids(Case& c, int64_t count, int32_t below) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(c.random()() % static_cast<uint64_t>(below)));
  }
  return ids;
}

// ---- accepting --------------------------------------------------------------------------------

void accept_tokens(Case& c, int32_t vocabulary, int32_t stop_count, int64_t gap) {
  const Rows shape;
  const Case::Sequences sequences =
      c.sequences(shape.rows, shape.slot, shape.position, shape.length);
  // Few ids, so that drafts are right now and then.
  const std::vector<int32_t> fed = random_ids(c, shape.total(), vocabulary);
  const std::vector<int32_t> drawn = random_ids(c, shape.total(), vocabulary);
  std::vector<int32_t> stops = random_ids(c, std::max<int64_t>(1, shape.count() * stop_count), 4);
  for (int32_t& stop : stops) stop = stop == 0 ? 1 : -stop;
  const Tensor& fed_at = c.integers("fed", fed);
  const Tensor& drawn_at = c.integers("drawn", drawn);
  const Tensor& stops_at = c.integers("stops", stops);
  Tensor& accepted = c.output("accepted", FRT_DTYPE_I32, shape.count());
  Tensor& committed = c.output("committed", FRT_DTYPE_I32, shape.count());
  const int64_t slots = 4;
  Tensor& pending = c.output("pending", FRT_DTYPE_I32, slots * (1 + gap));
  c.run<frt_accept_tokens_args>(FRT_OP_ACCEPT_TOKENS, KernelTypes(), {},
                                [&](frt_accept_tokens_args& args, const At& at) {
                                  args.stop_count = stop_count;
                                  args.sequences = sequences.at(at);
                                  args.fed = at.operator()<int32_t>(fed_at);
                                  args.drawn = at.operator()<int32_t>(drawn_at);
                                  if (stop_count > 0) args.stops = at.operator()<int32_t>(stops_at);
                                  args.accepted = at.operator()<int32_t>(accepted);
                                  args.committed = at.operator()<int32_t>(committed);
                                  args.pending = at(pending);
                                  args.pending_stride = (1 + gap) * 4;
                                });
  Expected right(FRT_DTYPE_I32, accepted.count), rows(FRT_DTYPE_I32, committed.count);
  Expected last(FRT_DTYPE_I32, pending.count);
  for (int64_t b = 0; b < shape.count(); ++b) {
    const auto i = static_cast<std::size_t>(b);
    const auto first = static_cast<std::size_t>(b * shape.rows);
    const auto stop = stops.begin() + b * stop_count;
    int32_t n = 0;
    while (n + 1 < shape.length[i]) {
      const int32_t id = drawn[first + static_cast<std::size_t>(n)];
      if (fed[first + static_cast<std::size_t>(n) + 1] != id) break;
      if (std::find(stop, stop + stop_count, id) != stop + stop_count) break;
      ++n;
    }
    right.value(b, n);
    rows.value(b, shape.length[i] > 0 ? n + 1 : 0);
    if (shape.length[i] > 0) {
      last.value(shape.slot[i] * (1 + gap), drawn[first + static_cast<std::size_t>(n)]);
    }
  }
  c.require(accepted, right);
  c.require(committed, rows);
  c.require(pending, last);
}

void accept_refusals(Case& c) {
  const Case::Sequences sequences = c.sequences(2, {0}, {3}, {2});
  const Tensor& ids = c.integers("ids", {1, 2});
  Tensor& out = c.output("out", FRT_DTYPE_I32, 4);
  const auto refuse = [&](auto spoil) {
    refused<frt_accept_tokens_args>(
        c, FRT_OP_ACCEPT_TOKENS, KernelTypes(), {},
        [&](frt_accept_tokens_args& args, const At& at) {
          args.stop_count = 1;
          args.sequences = sequences.at(at);
          args.fed = args.drawn = args.stops = at.operator()<int32_t>(ids);
          args.accepted = at.operator()<int32_t>(out);
          args.committed = at.operator()<int32_t>(out, 1);
          args.pending = at(out, 2);
          args.pending_stride = 4;
        },
        spoil);
  };
  refuse([](frt_accept_tokens_args& args) { args.stop_count = -1; });
  refuse([](frt_accept_tokens_args& args) { args.sequences.rows = 0; });
  refuse([](frt_accept_tokens_args& args) { args.fed = nullptr; });
  refuse([](frt_accept_tokens_args& args) { args.drawn = nullptr; });
  refuse([](frt_accept_tokens_args& args) { args.stops = nullptr; });
  refuse([](frt_accept_tokens_args& args) { args.accepted = nullptr; });
  refuse([](frt_accept_tokens_args& args) { args.committed = nullptr; });
  refuse([](frt_accept_tokens_args& args) { args.pending = nullptr; });
  refuse([](frt_accept_tokens_args& args) { args.pending_stride = 6; });
}

// ---- the chain --------------------------------------------------------------------------------

void chain_tokens(Case& c, int64_t stride, int32_t column, bool in_place) {
  const std::vector<int32_t> position = {9, 1, 300}, length = {1, 0, 4};
  const Case::Sequences sequences = c.sequences(1, {2, 0, 1}, position, length);
  const std::vector<int32_t> ids = random_ids(c, 3, 1000);
  const Tensor& ids_at = c.integers("ids", ids);
  Tensor& candidates = c.output("candidates", FRT_DTYPE_I32, 3 * stride);
  Tensor& next = c.integers("next", position);
  c.run<frt_chain_tokens_args>(FRT_OP_CHAIN_TOKENS, KernelTypes(), {},
                               [&](frt_chain_tokens_args& args, const At& at) {
                                 args.column = column;
                                 args.sequences = sequences.at(at);
                                 args.ids = at.operator()<int32_t>(ids_at);
                                 args.candidates = at.operator()<int32_t>(candidates);
                                 args.stride = stride;
                                 args.position_out = at.operator()<int32_t>(next);
                                 if (in_place) args.sequences.position = args.position_out;
                               });
  Expected chained(FRT_DTYPE_I32, candidates.count), positions(FRT_DTYPE_I32, next.count);
  for (std::size_t b = 0; b < 3; ++b) {
    if (length[b] == 0) continue;
    chained.value(static_cast<int64_t>(b) * stride + column, ids[b]);
    positions.value(static_cast<int64_t>(b), position[b] + 1);
  }
  c.require(candidates, chained);
  c.require(next, positions);
}

void chain_refusals(Case& c) {
  const Case::Sequences sequences = c.sequences(1, {0}, {3}, {1});
  const Tensor& ids = c.integers("ids", {1});
  Tensor& out = c.output("out", FRT_DTYPE_I32, 3);
  const auto refuse = [&](auto spoil) {
    refused<frt_chain_tokens_args>(
        c, FRT_OP_CHAIN_TOKENS, KernelTypes(), {},
        [&](frt_chain_tokens_args& args, const At& at) {
          args.sequences = sequences.at(at);
          args.ids = at.operator()<int32_t>(ids);
          args.candidates = at.operator()<int32_t>(out);
          args.stride = 2;
          args.position_out = at.operator()<int32_t>(out, 2);
        },
        spoil);
  };
  refuse([](frt_chain_tokens_args& args) { args.column = 2; });
  refuse([](frt_chain_tokens_args& args) { args.column = -1; });
  refuse([](frt_chain_tokens_args& args) { args.stride = 0; });
  refuse([](frt_chain_tokens_args& args) { args.sequences.rows = 2; });
  refuse([](frt_chain_tokens_args& args) { args.ids = nullptr; });
  refuse([](frt_chain_tokens_args& args) { args.candidates = nullptr; });
  refuse([](frt_chain_tokens_args& args) { args.position_out = nullptr; });
}

// ---- sampling every row -----------------------------------------------------------------------

frt_sampling_params random_params(Case& c, int64_t kind) {
  frt_sampling_params params{};
  params.top_p = params.repetition_penalty = 1;
  params.seed = c.random()();
  if (kind % 2 == 1) {
    params.temperature = 0.8f;
    params.top_k = 50;
    params.top_p = 0.95f;
  }
  if (kind / 2 % 2 == 1) {
    params.repetition_penalty = 1.4f;
    params.presence_penalty = 0.5f;
    params.frequency_penalty = 0.75f;
  }
  params.use_mask = kind / 4 % 2 == 1 ? 1 : 0;
  return params;
}

// Each row gets the bits that it gets when the rows up to it were counted and it is sampled alone.
void sample_rows(Case& c, int32_t vocabulary, int64_t gap, int64_t first_kind) {
  const Rows shape;
  const Case::Sequences sequences =
      c.sequences(shape.rows, shape.slot, shape.position, shape.length);
  const int64_t stride = vocabulary + gap;
  const int64_t mask_stride = (vocabulary + 31) / 32 + gap;
  Tensor& logits = c.normal("logits", FRT_DTYPE_F32, shape.total() * stride, 2.0f);
  std::vector<frt_sampling_params> params;
  for (int64_t b = 0; b < shape.count(); ++b) params.push_back(random_params(c, first_kind + b));
  // Every other sequence has a bias, each a different one.
  std::vector<frt_logit_bias> bias;
  for (int64_t b = 0; b < shape.count(); ++b) {
    params[static_cast<std::size_t>(b)].bias_count = b % 2 == 0 ? 2 : 0;
    bias.push_back({static_cast<int32_t>(b % vocabulary), 4.5f});
    bias.push_back({static_cast<int32_t>((b + 1) % vocabulary), -100});
  }
  const Tensor& bias_at = c.raw("bias", FRT_DTYPE_U8, bias.data(),
                                static_cast<int64_t>(bias.size() * sizeof(frt_logit_bias)));
  const Tensor& params_at =
      c.raw("params", FRT_DTYPE_U8, params.data(),
            shape.count() * static_cast<int64_t>(sizeof(frt_sampling_params)));
  std::vector<uint32_t> mask(static_cast<std::size_t>(shape.total() * mask_stride));
  for (uint32_t& word : mask) word = static_cast<uint32_t>(c.random()() | c.random()());
  const Tensor& mask_at =
      c.raw("mask", FRT_DTYPE_U32, mask.data(), static_cast<int64_t>(mask.size()));
  std::vector<uint32_t> counts(static_cast<std::size_t>(4 * stride));
  for (uint32_t& one : counts) {
    const uint32_t kinds[] = {0, 0, 0, 1, 2, 0x80000000u, 0x80000003u, 0x7FFFFFFFu};
    one = kinds[c.random()() % 8];
  }
  const Tensor& counts_at =
      c.raw("counts", FRT_DTYPE_U32, counts.data(), static_cast<int64_t>(counts.size()));
  std::vector<int32_t> fed = random_ids(c, shape.total(), std::min(vocabulary, 6));
  fed[1] = -1;  // counted nowhere
  fed[2] = vocabulary;
  const Tensor& fed_at = c.integers("fed", fed);
  Tensor& ids = c.output("ids", FRT_DTYPE_I32, shape.total());
  Tensor& chances = c.output("log_probabilities", FRT_DTYPE_F32, shape.total());
  Tensor& ids_alone = c.output("ids alone", FRT_DTYPE_I32, shape.total());
  Tensor& chances_alone = c.output("log_probabilities alone", FRT_DTYPE_F32, shape.total());
  Chain chain;
  const auto fill = [&](frt_sample_args& args, const At& at) {
    args.vocabulary = vocabulary;
    args.sequences = sequences.at(at);
    args.logits = at.operator()<float>(logits);
    args.stride = stride;
    args.params = static_cast<const frt_sampling_params*>(at(params_at));
    args.mask = at.operator()<uint32_t>(mask_at);
    args.mask_stride = mask_stride;
    args.bias = static_cast<const frt_logit_bias*>(at(bias_at));
    args.bias_stride = 2;
    args.counts = at(counts_at);
    args.counts_stride = stride * 4;
    args.ids = at.operator()<int32_t>(ids);
    args.log_probabilities = at.operator()<float>(chances);
    args.fed = at.operator()<int32_t>(fed_at);
  };
  chain.then<frt_sample_args>(FRT_OP_SAMPLE, KernelTypes(), {}, fill);
  struct Alone {
    int64_t row, b;
    Case::Sequences sequences;
    const Tensor* counts;
  };
  std::vector<Alone> alone;
  for (int64_t b = 0; b < shape.count(); ++b) {
    const auto i = static_cast<std::size_t>(b);
    std::vector<uint32_t> seen(counts.begin() + shape.slot[i] * stride,
                               counts.begin() + (shape.slot[i] + 1) * stride);
    for (int32_t q = 0; q < shape.length[i]; ++q) {
      const int64_t row = b * shape.rows + q;
      const int32_t id = fed[static_cast<std::size_t>(row)];
      if (id >= 0 && id < vocabulary) {
        uint32_t& count = seen[static_cast<std::size_t>(id)];
        if ((count & 0x7FFFFFFFu) != 0x7FFFFFFFu) ++count;
      }
      alone.push_back({row, b, c.sequences(1, {0}, {shape.position[i] + q}, {1}),
                       &c.raw("counts alone", FRT_DTYPE_U32, seen.data(), stride)});
    }
  }
  for (const Alone& one : alone) {
    chain.then<frt_sample_args>(
        FRT_OP_SAMPLE, KernelTypes(), {}, [&, one](frt_sample_args& args, const At& at) {
          fill(args, at);
          args.fed = nullptr;
          args.sequences = one.sequences.at(at);
          args.logits += one.row * stride;
          args.params += one.b;
          args.mask += one.row * mask_stride;
          args.bias += one.b * args.bias_stride;
          args.counts = at(*one.counts);
          args.ids = at.operator()<int32_t>(ids_alone, one.row);
          args.log_probabilities = at.operator()<float>(chances_alone, one.row);
        });
  }
  c.run(chain);
  for (const Alone& one : alone) {
    for (int side = 0; side < 2; ++side) {
      if (Case::value(ids, side, one.row) != Case::value(ids_alone, side, one.row) ||
          Case::value(chances, side, one.row) != Case::value(chances_alone, side, one.row)) {
        Case::fail("row " + std::to_string(one.row) + " got token " +
                   std::to_string(Case::value(ids, side, one.row)) + ", alone " +
                   std::to_string(Case::value(ids_alone, side, one.row)));
      }
    }
    c.compare_range(ids, one.row, 1, kExact);
    c.compare_range(chances, one.row, 1, kF32);
  }
}

void sample_refusals(Case& c) {
  const Case::Sequences sequences = c.sequences(1, {0}, {3}, {1});
  Tensor& logits = c.normal("logits", FRT_DTYPE_F32, 16);
  frt_sampling_params greedy{};
  greedy.top_p = greedy.repetition_penalty = 1;
  const Tensor& params = c.raw("params", FRT_DTYPE_U8, &greedy, sizeof(greedy));
  const Tensor& fed = c.integers("fed", {1});
  Tensor& out = c.output("out", FRT_DTYPE_I32, 2);
  refused<frt_sample_args>(
      c, FRT_OP_SAMPLE, KernelTypes(), {},
      [&](frt_sample_args& args, const At& at) {
        args.vocabulary = 16;
        args.sequences = sequences.at(at);
        args.logits = at.operator()<float>(logits);
        args.stride = 16;
        args.params = static_cast<const frt_sampling_params*>(at(params));
        args.ids = at.operator()<int32_t>(out);
        args.pending = at(out, 1);
        args.pending_stride = 4;
      },
      [&](frt_sample_args& args) { args.fed = static_cast<const int32_t*>(fed.at[0]); });
}

}  // namespace

void add_draft_cases(Suite& suite) {
  for (const int32_t vocabulary : {2, 3, 5}) {
    for (const int32_t stop_count : {0, 1, 8}) {
      suite.add(std::string(FRT_OP_ACCEPT_TOKENS) + " of " + std::to_string(vocabulary) +
                    " ids, stops " + std::to_string(stop_count),
                [=](Case& c) { accept_tokens(c, vocabulary, stop_count, vocabulary - 1); });
    }
  }
  suite.add(std::string(FRT_OP_ACCEPT_TOKENS) + " refusals", accept_refusals);
  for (const bool in_place : {false, true}) {
    for (const int32_t column : {0, 3}) {
      suite.add(std::string(FRT_OP_CHAIN_TOKENS) + " column " + std::to_string(column) +
                    (in_place ? " in place" : ""),
                [=](Case& c) { chain_tokens(c, 4, column, in_place); });
    }
  }
  suite.add(std::string(FRT_OP_CHAIN_TOKENS) + " refusals", chain_refusals);
  for (const int32_t vocabulary : {7, 512, 50000}) {
    for (int64_t kind = 0; kind < 8; kind += 2) {
      suite.add(std::string(FRT_OP_SAMPLE) + " of every row " + std::to_string(vocabulary) +
                    " kind " + std::to_string(kind),
                [=](Case& c) { sample_rows(c, vocabulary, kind % 4, kind); });
    }
  }
  suite.add(std::string(FRT_OP_SAMPLE) + " of every row refusals", sample_refusals);
}

}  // namespace frt::conformance
