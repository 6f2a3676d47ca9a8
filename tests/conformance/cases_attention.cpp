// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/attention.h: norm + rope + store, attention, and both in one.
#include "cases_attention.hpp"

#include <frt/ops/linear.h>

#include <array>
#include <frt/error.hpp>
#include <tuple>
#include <utility>

namespace frt::conformance {
namespace attention {
namespace {

// ---- what a row must not depend on --------------------------------------------------------

// Two sequences with the same rows and history, in different slots and beside a third one: bit for
// bit the same.
void twins_case(Case& c, const Setup& setup) {
  Setup s = setup;
  const int32_t position = s.position[0], length = s.rows;
  s.slot = {2, 0, 1};
  s.position = {position, position / 3 + 1, position};
  s.length = {length, length, length};
  Data data(c, s, true);
  const auto copy = [](Tensor& tensor, int64_t to, int64_t from, int64_t bytes) {
    std::copy_n(tensor.initial.begin() + from, bytes, tensor.initial.begin() + to);
  };
  const int64_t size = dtype_bits(s.dtype) / 8;
  const int64_t q_bytes = s.rows * s.heads * data.head_stride * size;
  const int64_t kv_bytes = static_cast<int64_t>(s.rows) * s.kv_heads * s.head_dim * size;
  copy(*data.q, 2 * q_bytes, 0, q_bytes);
  copy(*data.k, 2 * kv_bytes, 0, kv_bytes);
  copy(*data.v, 2 * kv_bytes, 0, kv_bytes);
  for (Tensor* tensor : {data.keys, data.values}) {
    if (!s.page_rows) copy(*tensor, data.slot_stride, 2 * data.slot_stride, data.slot_stride);
    for (int32_t i = 0; i < data.slot_pages; ++i) {
      const int32_t to = data.table[static_cast<std::size_t>(data.slot_pages + i)];
      const int32_t from = data.table[static_cast<std::size_t>(2 * data.slot_pages + i)];
      if (from < 0) break;
      copy(*tensor, to * data.page_stride, from * data.page_stride, data.page_stride);
    }
  }
  c.run<frt_attention_block_args>(
      FRT_OP_ATTENTION_BLOCK, KernelTypes(s.dtype), {},
      [&](frt_attention_block_args& args, const At& at) { args = data.block(at); });
  c.compare(*data.y, tolerance_of(s.dtype));
  const int64_t one = static_cast<int64_t>(s.rows) * s.heads * s.head_dim;
  for (int64_t i = 0; i < one; ++i) {
    if (Case::value(*data.y, 0, i) != Case::value(*data.y, 0, 2 * one + i)) {
      Case::fail("y[" + std::to_string(i) + "] depends on the slot or on the neighbours");
    }
  }
}

// The same rows in a larger bucket, with padding behind them: bit for bit the same.
void bucket_case(Case& c, const Setup& setup, int32_t larger) {
  const Data data(c, setup, true);
  const Case::Sequences padded = c.sequences(larger, setup.slot, setup.position, setup.length);
  const auto run = [&](const Case::Sequences& sequences) {
    c.run<frt_attention_args>(FRT_OP_ATTENTION, KernelTypes(setup.dtype), {},
                              [&](frt_attention_args& args, const At& at) {
                                args = data.attention(at, *data.q);
                                args.sequences = sequences.at(at);
                              });
    return data.y->result[0];
  };
  const std::vector<std::byte> first = run(data.sequences);
  if (run(padded) != first) Case::fail("y depends on the size of the bucket");
  c.compare(*data.y, tolerance_of(setup.dtype));
}

// ---- bad arguments ------------------------------------------------------------------------

// The reference gets good arguments, the backend under test the changed ones.
template <class Args>
void refuses(Case& c, const char* name, const char* argument, Args (*make)(const Data&, const At&),
             void (*change)(Args&)) {
  Setup setup;
  setup.dtype = FRT_DTYPE_F32;
  setup.kv_dtype = FRT_DTYPE_F8_E4M3;
  setup.page_rows = 64;
  const Data data(c, setup, true);
  try {
    c.run<Args>(name, KernelTypes(FRT_DTYPE_F32), {}, [&](Args& args, const At& at) {
      args = make(data, at);
      if (at.side() == 0) change(args);
    });
  } catch (const Error& error) {
    const std::string text = error.what();
    if (error.status() == FRT_ERR_INVALID_ARGUMENT && text.find(name) != std::string::npos &&
        text.find(argument) != std::string::npos) {
      return;
    }
    Case::fail(std::string(argument) + ": refused with " + frt::status_name(error.status()) + " " +
               text);
  }
  Case::fail(std::string(argument) + " is wrong and was not refused");
}

// The arguments that both operators have.
template <class Args>
std::vector<std::pair<const char*, void (*)(Args&)>> common_refusals() {
  return {
      {"dtype", [](Args& args) { args.dtype = FRT_DTYPE_F16; }},
      {"kv_dtype", [](Args& args) { args.kv_dtype = FRT_DTYPE_U8; }},
      {"sequences.count", [](Args& args) { args.sequences.count = 0; }},
      {"sequences.rows", [](Args& args) { args.sequences.rows = -1; }},
      {"sequences.slot", [](Args& args) { args.sequences.slot = nullptr; }},
      {"sequences.position", [](Args& args) { args.sequences.position = nullptr; }},
      {"sequences.length", [](Args& args) { args.sequences.length = nullptr; }},
      {"heads", [](Args& args) { args.heads = 0; }},
      {"heads", [](Args& args) { args.kv_heads = 4; }},
      {"kv_heads", [](Args& args) { args.kv_heads = 0; }},
      {"head_dim", [](Args& args) { args.head_dim = 0; }},
      {"max_rows", [](Args& args) { args.max_rows = 0; }},
      {"q", [](Args& args) { args.q = nullptr; }},
      {"keys", [](Args& args) { args.keys = nullptr; }},
      {"values", [](Args& args) { args.values = nullptr; }},
      {"k_scale", [](Args& args) { args.k_scale = 0; }},
      {"v_scale", [](Args& args) { args.v_scale = -1; }},
      {"pages.rows", [](Args& args) { args.pages.rows = 32; }},
      {"pages.rows", [](Args& args) { args.pages.rows = 96; }},
      {"pages.rows", [](Args& args) { args.pages.rows = 0; }},
      {"pages.slot_pages", [](Args& args) { args.pages.slot_pages = 0; }},
      {"pages.slot_pages", [](Args& args) { args.max_rows = 64 * args.pages.slot_pages + 1; }},
      {"pages.stride", [](Args& args) { args.pages.stride = -64; }},
      {"pages.stride",
       [](Args& args) {
         args.kv_dtype = FRT_DTYPE_F32;
         args.pages.stride = 4098;
       }},
  };
}

void add_refusals(Suite& suite) {
  int number = 0;
  const auto name = [&](const char* operation, const char* argument) {
    return std::string(operation) + " refuses " + argument + " " + std::to_string(++number);
  };
  auto append = common_refusals<frt_attention_append_args>();
  using Append = frt_attention_append_args;
  append.insert(append.end(),
                {
                    {"rotary_dim", [](Append& args) { args.rotary_dim = 3; }},
                    {"rotary_dim", [](Append& args) { args.rotary_dim = args.head_dim + 2; }},
                    {"rotary_dim", [](Append& args) { args.rotary_dim = -2; }},
                    {"inv_freq", [](Append& args) { args.inv_freq = nullptr; }},
                    {"k", [](Append& args) { args.k = nullptr; }},
                    {"v", [](Append& args) { args.v = nullptr; }},
                    {"q_out", [](Append& args) { args.q_out = nullptr; }},
                });
  for (const auto& [argument, change] : append) {
    suite.add(name(FRT_OP_ATTENTION_APPEND, argument),
              [argument = argument, change = change](Case& c) {
                refuses<Append>(
                    c, FRT_OP_ATTENTION_APPEND, argument,
                    [](const Data& data, const At& at) { return data.append(at); }, change);
              });
  }
  auto attention = common_refusals<frt_attention_args>();
  attention.push_back({"y", [](frt_attention_args& args) { args.y = nullptr; }});
  for (const auto& [argument, change] : attention) {
    suite.add(name(FRT_OP_ATTENTION, argument), [argument = argument, change = change](Case& c) {
      refuses<frt_attention_args>(
          c, FRT_OP_ATTENTION, argument,
          [](const Data& data, const At& at) { return data.attention(at, *data.q); }, change);
    });
  }
  using Block = frt_attention_block_args;
  const std::vector<std::pair<const char*, void (*)(Block&)>> block = {
      {"attention.q", [](Block& args) { args.attention.q = args.append.q; }},
      {"rotary_dim", [](Block& args) { args.append.rotary_dim = 1; }},
      {"y", [](Block& args) { args.attention.y = nullptr; }},
  };
  for (const auto& [argument, change] : block) {
    suite.add(name(FRT_OP_ATTENTION_BLOCK, argument),
              [argument = argument, change = change](Case& c) {
                refuses<Block>(
                    c, FRT_OP_ATTENTION_BLOCK, argument,
                    [](const Data& data, const At& at) { return data.block(at); }, change);
              });
  }
}

// ---- the list -----------------------------------------------------------------------------

// One sequence: every number of rows and every position, head counts in turn.
void add_single(Suite& suite) {
  constexpr int32_t kRows[] = {1, 2, 5, 17, 64, 130};
  constexpr int32_t kPositions[] = {0, 1, 63, 64, 500, 1023};
  constexpr int32_t kRatios[] = {1, 2, 6, 8};
  int turn = 0;
  for (const frt_dtype dtype : kTypes) {
    for (const frt_dtype kv_dtype : kCaches) {
      for (const int32_t head_dim : {8, 64, 80, 128, 256}) {
        const bool fast = dtype == FRT_DTYPE_BF16 && kv_dtype != FRT_DTYPE_F32;
        for (std::size_t i = 0; i < 6; ++i) {
          for (std::size_t j = 0; j < 6; ++j) {
            // Half of the pairs where tensor cores compute, else every row count and position once.
            const std::size_t pair = i + j + static_cast<std::size_t>(head_dim / 8);
            if (pair % (fast ? 2 : 6) != 0) continue;
            if (i > 2 && j > 3 && head_dim > 64) continue;
            Setup s;
            s.dtype = dtype;
            s.kv_dtype = kv_dtype;
            const int32_t ratio = kRatios[++turn % 4];
            s.kv_heads = ratio > 2 || i > 3 ? 1 : 3;
            s.heads = ratio * s.kv_heads;
            s.head_dim = head_dim;
            s.rows = kRows[i];
            s.position = {kPositions[j]};
            s.length = {s.rows};
            s.gate = turn % 3 != 0;
            s.gap = turn % 5 == 0 ? 8 : 0;
            const std::string text = " " + name_of(s) + (s.gate ? " gate" : "");
            if (turn % 3 == 0 || !fast) {
              suite.add(FRT_OP_ATTENTION_APPEND + text, [=](Case& c) { append_case(c, s); });
            }
            if (turn % 2 == 0 || !fast) {
              suite.add(FRT_OP_ATTENTION + text, [=](Case& c) { attention_case(c, s); });
            }
            suite.add(FRT_OP_ATTENTION_BLOCK + text, [=](Case& c) { block_case(c, s); });
          }
        }
      }
    }
  }
}

// Several sequences, permuted slots, lengths 0 and less than the rows.
void add_batches(Suite& suite) {
  for (const frt_dtype dtype : kTypes) {
    for (const frt_dtype kv_dtype : kCaches) {
      for (const int32_t head_dim : {40, 64, 256}) {
        for (const int32_t rows : {1, 3, 20}) {
          Setup s;
          s.dtype = dtype;
          s.kv_dtype = kv_dtype;
          s.heads = 12;
          s.kv_heads = 2;
          s.head_dim = head_dim;
          s.rows = rows;
          s.slot = {4, 2, 0, 3, 1};
          s.position = {320, 0, 63, 7, 130};
          s.length = {rows, 0, (rows + 1) / 2, rows, rows};
          add_all(suite, s, " batch");
        }
      }
    }
  }
}

void add_edges(Suite& suite) {
  for (const frt_dtype dtype : kTypes) {
    for (const int32_t rows : {1, 6, 40}) {
      Setup s;
      s.dtype = dtype;
      s.heads = 8;
      s.kv_heads = 1;
      s.head_dim = 128;
      s.rows = rows;
      s.slot = {2, 0, 1};
      s.length = {rows, rows, rows};
      // The room ends inside the rows, before them, far before them.
      s.position = {100 - rows / 2, 100, 5000};
      s.max_rows = 100;
      add_all(suite, s, " room ends");
      s.position = {0, 9, 98};
      s.rotary_dim = 0;
      s.norm = false;
      add_all(suite, s, " no norm no rope");
      s.norm = true;
      s.rotary_dim = s.head_dim;
      add_all(suite, s, " whole rope");
      // Rows of the cache, of q and of the gate at odd places.
      s.slot_gap = dtype == FRT_DTYPE_F32 ? 4 : 2;
      s.gap = 1;
      add_all(suite, s, " odd strides");
      // Large angles.
      Setup far = s;
      far.slot = {0};
      far.position = {262143 - rows};
      far.length = {rows};
      far.max_rows = 8;
      far.slot_gap = 256;
      far.gap = 0;
      suite.add(FRT_OP_ATTENTION_APPEND + (" " + name_of(far)),
                [=](Case& c) { append_case(c, far); });
    }
  }
}

// Splits of different lengths: where rows of one sequence lie around a change, and beyond.
void add_long(Suite& suite) {
  for (const frt_dtype kv_dtype : {FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3}) {
    for (const auto& [position, rows, kv_heads] : {std::tuple{2046, 4, 4},
                                                   {1022, 5, 8},
                                                   {1023, 1, 8},
                                                   {2600, 2, 4},
                                                   {4094, 3, 2},
                                                   {8190, 1, 1}}) {
      Setup s;
      s.kv_dtype = kv_dtype;
      s.kv_heads = kv_heads;
      s.heads = kv_heads * (kv_heads > 2 ? 1 : 3);
      s.head_dim = kv_heads > 2 ? 64 : 128;
      s.rows = rows;
      s.slot = {0};
      s.position = {position};
      s.length = {rows};
      s.slot_gap = 0;
      suite.add(FRT_OP_ATTENTION_BLOCK + (" " + name_of(s)),
                [s = s](Case& c) { block_case(c, s); });
    }
  }
}

void add_model_shapes(Suite& suite) {
  for (const auto& [heads, kv_heads] : {std::pair{24, 4}, {16, 2}}) {
    for (const auto& [rows, position] : {std::pair{1, 700}, {4, 300}, {24, 40}}) {
      Setup s;
      s.heads = heads;
      s.kv_heads = kv_heads;
      s.head_dim = 256;
      s.rows = rows;
      s.position = {position};
      s.length = {rows};
      add_all(suite, s, " model");
      s.page_rows = 256;
      add_all(suite, s, " model");
    }
  }
}

// Rows one after the other, as models submit them: what the block reads comes of products, and
// rows of the cache come of the blocks before. A backend may begin a block while the kernel ahead
// still runs, and reads what is old enough by then; one block follows the other directly.
void decode_case(Case& c, const Setup& setup) {
  constexpr int32_t kSteps = 6, kNoProducts = 3, kInputs = 64;
  Setup s = setup;
  s.max_rows = *std::max_element(s.position.begin(), s.position.end()) + kSteps * s.rows + 1;
  const Data data(c, s, true);
  Tensor& x = c.normal("x", s.dtype, kSteps * data.total * kInputs);
  const int64_t values = data.total * s.heads * s.head_dim;
  Tensor& y = c.output("y of all", s.dtype, kSteps * values);
  const std::array<const Tensor*, 3> made = {data.q, data.k, data.v};
  std::array<Weight, 3> weights;
  std::array<frt_linear_part, 3> parts{};
  for (std::size_t i = 0; i < made.size(); ++i) {
    weights[i] = c.weight("weight " + made[i]->name, all_packings().front(),
                          static_cast<int32_t>(made[i]->count / data.total), kInputs);
  }
  Chain chain;
  for (int32_t step = 0; step < kSteps; ++step) {
    if (step != kNoProducts) {
      chain.then<frt_norm_linears_args>(
          FRT_OP_NORM_LINEARS, KernelTypes(s.dtype), kWeightBf16,
          [&, step](frt_norm_linears_args& args, const At& at) {
            args.dtype = s.dtype;
            args.rows = static_cast<int32_t>(data.total);
            args.x = at(x, step * data.total * kInputs);
            for (std::size_t i = 0; i < parts.size(); ++i) {
              parts[i] = {Case::at(weights[i], at), at(*made[i]), made[i]->count / data.total};
            }
            args.part_count = static_cast<int32_t>(parts.size());
            args.parts = parts.data();
          });
    }
    std::vector<int32_t> position = s.position;
    for (std::size_t b = 0; b < position.size(); ++b) position[b] += step * s.length[b];
    const Case::Sequences now = c.sequences(s.rows, s.slot, position, s.length);
    chain.then<frt_attention_block_args>(
        FRT_OP_ATTENTION_BLOCK, KernelTypes(s.dtype), {},
        [&, step, now](frt_attention_block_args& args, const At& at) {
          args = data.block(at);
          args.append.sequences = args.attention.sequences = now.at(at);
          args.attention.y = at(y, step * values);
        });
  }
  c.run(chain);
  c.compare(y, tolerance_of_block(s));
  c.compare(*data.keys, tolerance_of_cache(s.dtype, s.kv_dtype));
  c.compare(*data.values, tolerance_of_cache(s.dtype, s.kv_dtype));
}

void add_decode(Suite& suite) {
  for (const frt_dtype dtype : kTypes) {
    for (const frt_dtype kv_dtype : kCaches) {
      for (const auto& [rows, position] : {std::pair{1, 20}, {1, 700}, {2, 60}}) {
        Setup s;
        s.dtype = dtype;
        s.kv_dtype = kv_dtype;
        s.heads = 12;
        s.kv_heads = 2;
        s.head_dim = 256;
        s.rows = rows;
        s.slot = {2, 0, 1};
        s.position = {position, 0, position + 13};
        s.length = {rows, 1, 0};
        suite.add(FRT_OP_ATTENTION_BLOCK + (" row after row " + name_of(s)),
                  [s = s](Case& c) { decode_case(c, s); });
      }
    }
  }
}

void add_independence(Suite& suite) {
  for (const frt_dtype kv_dtype : {FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3}) {
    for (const auto& [rows, position] : {std::pair{1, 300}, {1, 20}, {3, 150}, {20, 100}}) {
      Setup s;
      s.kv_dtype = kv_dtype;
      s.heads = 12;
      s.kv_heads = 2;
      s.head_dim = 256;
      s.rows = rows;
      s.position = {position};
      suite.add(FRT_OP_ATTENTION_BLOCK + (" twins " + name_of(s)),
                [s = s](Case& c) { twins_case(c, s); });
      s.page_rows = 64;
      suite.add(FRT_OP_ATTENTION_BLOCK + (" twins " + name_of(s)),
                [s = s](Case& c) { twins_case(c, s); });
    }
    for (const auto& [rows, larger, position] : {std::tuple{20, 48, 100}, {2, 7, 200}}) {
      Setup s;
      s.kv_dtype = kv_dtype;
      s.heads = 6;
      s.head_dim = 128;
      s.rows = rows;
      s.position = {position};
      s.length = {rows};
      s.gate = false;
      suite.add(FRT_OP_ATTENTION + (" bucket " + name_of(s)),
                [s = s, larger = larger](Case& c) { bucket_case(c, s, larger); });
    }
  }
}

}  // namespace
}  // namespace attention

void add_attention_cases(Suite& suite) {
  using namespace attention;
  add_single(suite);
  add_batches(suite);
  add_edges(suite);
  add_long(suite);
  add_pages(suite);
  add_model_shapes(suite);
  add_decode(suite);
  add_independence(suite);
  add_refusals(suite);
}

}  // namespace frt::conformance
