// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/attention.h: norm + rope + store, attention, and both in one.
#include <frt/ops/attention.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <frt/error.hpp>
#include <numeric>
#include <random>

#include "check.hpp"

namespace frt::conformance {
namespace {

// What a case is about; the rest follows.
struct Setup {
  frt_dtype dtype = FRT_DTYPE_BF16;
  frt_dtype kv_dtype = FRT_DTYPE_BF16;
  int32_t heads = 6, kv_heads = 1, head_dim = 64;
  int32_t rows = 1;
  std::vector<int32_t> slot = {1};
  std::vector<int32_t> position = {0};
  std::vector<int32_t> length = {1};
  int32_t max_rows = 0;     // 0: what the sequences need, and some
  int32_t rotary_dim = -1;  // -1: a quarter of head_dim, in even numbers
  bool gate = true;
  bool norm = true;
  int32_t gap = 0;         // elements behind every head of q (and of the gate)
  int64_t slot_gap = 256;  // bytes between slots or blocks
  int32_t block_rows = 0;  // 0: rows of a slot are contiguous
};

std::string name_of(const Setup& s) {
  std::string name = std::string(dtype_name(s.dtype)) + " kv " + dtype_name(s.kv_dtype) + " " +
                     std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + "x" +
                     std::to_string(s.head_dim) + " rows " + std::to_string(s.rows) + " at";
  for (const int32_t position : s.position) name += " " + std::to_string(position);
  if (s.block_rows) name += " blocks of " + std::to_string(s.block_rows);
  return name;
}

// Stored codes of FP8 may differ by one step where a value lies between two of them.
Tolerance tolerance_of_cache(frt_dtype dtype, frt_dtype kv_dtype) {
  if (kv_dtype == FRT_DTYPE_F8_E4M3) return {1e-2, 0.13};
  return kv_dtype == FRT_DTYPE_F32 ? tolerance_of(dtype) : kBf16;
}

// What is computed from keys that were rounded on their way into the cache: of two equally near
// values either may have been stored.
Tolerance tolerance_of_block(const Setup& s) {
  return s.kv_dtype == FRT_DTYPE_F32 ? tolerance_of(s.dtype) : kBf16;
}

// The tensors of a case. Queries are [query | gate | gap] per head, as the models have them.
class Data {
 public:
  // `filled`: the cache has a history; else it is poisoned.
  Data(Case& c, const Setup& setup, bool filled) : s(setup) {
    const auto count = static_cast<int32_t>(s.slot.size());
    if (s.max_rows == 0) {
      for (int32_t b = 0; b < count; ++b) {
        s.max_rows = std::max(s.max_rows, s.position[static_cast<std::size_t>(b)] + s.rows + 3);
      }
    }
    if (s.rotary_dim < 0) s.rotary_dim = s.head_dim / 8 * 2;
    int32_t slots = 0;
    for (const int32_t slot : s.slot) slots = std::max(slots, slot + 1);
    total = static_cast<int64_t>(count) * s.rows;
    const int64_t size = dtype_bits(s.kv_dtype) / 8;
    const int64_t row_bytes = static_cast<int64_t>(s.kv_heads) * s.head_dim * size;
    slot_stride = s.max_rows * row_bytes + s.slot_gap;
    int64_t elements = slots * slot_stride / size;
    if (s.block_rows) {
      block_stride = s.block_rows * row_bytes + s.slot_gap;
      make_table(slots, c.random());
      elements = static_cast<int64_t>(total_blocks) * block_stride / size;
      blocks = &c.integers("blocks", table);
      slot_stride = 3;  // must be ignored
    }
    sequences = c.sequences(s.rows, s.slot, s.position, s.length);
    head_stride = 2 * s.head_dim + s.gap;
    q = &c.normal("q", s.dtype, total * s.heads * head_stride);
    k = &c.normal("k", s.dtype, total * s.kv_heads * s.head_dim, 2.0f);
    v = &c.normal("v", s.dtype, total * s.kv_heads * s.head_dim);
    q_norm = &c.normal("q_norm", FRT_DTYPE_F32, s.head_dim, 0.2f, 1.0f);
    k_norm = &c.normal("k_norm", FRT_DTYPE_F32, s.head_dim, 0.2f, 1.0f);
    std::vector<float> frequencies(static_cast<std::size_t>(std::max(1, s.rotary_dim / 2)));
    for (std::size_t j = 0; j < frequencies.size(); ++j) {
      frequencies[j] = std::pow(1e-4f, static_cast<float>(2 * j) / static_cast<float>(s.head_dim));
    }
    inv_freq = &c.raw("inv_freq", FRT_DTYPE_F32, frequencies.data(),
                      static_cast<int64_t>(frequencies.size()));
    keys = filled ? &c.normal("keys", s.kv_dtype, elements, 1.0f / scale())
                  : &c.output("keys", s.kv_dtype, elements);
    values = filled ? &c.normal("values", s.kv_dtype, elements, 1.0f / scale())
                    : &c.output("values", s.kv_dtype, elements);
    rotated = &c.output("q_out", s.dtype, total * s.heads * s.head_dim);
    y = &c.output("y", s.dtype, total * s.heads * s.head_dim);
  }

  // Every slot's rows in blocks of a random order; entries of rows that no sequence has are -1.
  void make_table(int32_t slots, std::mt19937_64& random) {
    slot_blocks = (s.max_rows + s.block_rows - 1) / s.block_rows + 1;
    total_blocks = slots * slot_blocks + 3;
    std::vector<int32_t> order(static_cast<std::size_t>(total_blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    table.assign(static_cast<std::size_t>(slots * slot_blocks), -1);
    std::size_t next = 0;
    for (std::size_t b = 0; b < s.slot.size(); ++b) {
      const int32_t rows = std::min(s.position[b] + s.length[b], s.max_rows);
      for (int32_t i = 0; i * s.block_rows < rows; ++i) {
        table[static_cast<std::size_t>(s.slot[b] * slot_blocks + i)] = order[next++];
      }
    }
  }

  frt_row_blocks row_blocks(const At& at) const {
    frt_row_blocks value{};
    if (!blocks) return value;
    value.table = at.operator()<int32_t>(*blocks);
    value.stride = block_stride;
    value.slot_blocks = slot_blocks;
    value.rows = s.block_rows;
    return value;
  }

  float scale() const { return s.kv_dtype == FRT_DTYPE_F8_E4M3 ? 0.5f : 1.0f; }

  frt_attention_append_args append(const At& at) const {
    frt_attention_append_args args{};
    args.struct_size = sizeof(args);
    args.dtype = s.dtype;
    args.kv_dtype = s.kv_dtype;
    args.epsilon = 1e-6f;
    args.sequences = sequences.at(at);
    args.heads = s.heads;
    args.kv_heads = s.kv_heads;
    args.head_dim = s.head_dim;
    args.rotary_dim = s.rotary_dim;
    args.q = at(*q);
    args.q_row_stride = s.heads * head_stride;
    args.q_head_stride = head_stride;
    args.k = at(*k);
    args.v = at(*v);
    if (s.norm) {
      args.q_norm = at.operator()<float>(*q_norm);
      args.k_norm = at.operator()<float>(*k_norm);
    }
    args.inv_freq = at.operator()<float>(*inv_freq);
    args.rope_scale = 1.1f;
    args.k_scale = scale();
    args.v_scale = scale();
    args.max_rows = s.max_rows;
    args.keys = at(*keys);
    args.values = at(*values);
    args.slot_stride = slot_stride;
    args.q_out = at(*rotated);
    args.blocks = row_blocks(at);
    return args;
  }

  // Reads dense queries from `from`.
  frt_attention_args attention(const At& at, const Tensor& from) const {
    frt_attention_args args{};
    args.struct_size = sizeof(args);
    args.dtype = s.dtype;
    args.kv_dtype = s.kv_dtype;
    args.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    args.sequences = sequences.at(at);
    args.heads = s.heads;
    args.kv_heads = s.kv_heads;
    args.head_dim = s.head_dim;
    args.max_rows = s.max_rows;
    args.q = at(from);
    args.keys = at(*keys);
    args.values = at(*values);
    args.slot_stride = slot_stride;
    args.k_scale = scale();
    args.v_scale = scale();
    if (s.gate) {
      args.gate = at(*q, s.head_dim);
      args.gate_row_stride = s.heads * head_stride;
      args.gate_head_stride = head_stride;
    }
    args.y = at(*y);
    args.blocks = row_blocks(at);
    return args;
  }

  frt_attention_block_args block(const At& at) const {
    frt_attention_block_args args{};
    args.struct_size = sizeof(args);
    args.append = append(at);
    args.attention = attention(at, *rotated);
    return args;
  }

  Setup s;
  int64_t total = 0, slot_stride = 0, head_stride = 0;
  int32_t slot_blocks = 0, total_blocks = 0;
  int64_t block_stride = 0;
  std::vector<int32_t> table;
  Tensor* blocks = nullptr;
  Case::Sequences sequences{};
  Tensor *q, *k, *v, *q_norm, *k_norm, *inv_freq, *keys, *values, *rotated, *y;
};

void append_case(Case& c, const Setup& setup) {
  const Data data(c, setup, false);
  c.run<frt_attention_append_args>(
      FRT_OP_ATTENTION_APPEND, setup.dtype, 0,
      [&](frt_attention_append_args& args, const At& at) { args = data.append(at); });
  c.compare(*data.rotated, tolerance_of(setup.dtype));
  c.compare(*data.keys, tolerance_of_cache(setup.dtype, setup.kv_dtype));
  c.compare(*data.values, tolerance_of_cache(setup.dtype, setup.kv_dtype));
}

// The last block of the sequence is missing.
void no_block_case(Case& c, const Setup& setup) {
  Data data(c, setup, false);
  const auto last = static_cast<std::size_t>(
      setup.slot[0] * data.slot_blocks + (setup.position[0] + setup.rows - 1) / setup.block_rows);
  data.table[last] = -1;
  std::memcpy(data.blocks->initial.data(), data.table.data(), data.table.size() * sizeof(int32_t));
  c.run<frt_attention_append_args>(
      FRT_OP_ATTENTION_APPEND, setup.dtype, 0,
      [&](frt_attention_append_args& args, const At& at) { args = data.append(at); });
  c.compare(*data.rotated, tolerance_of(setup.dtype));
  c.compare(*data.keys, tolerance_of_cache(setup.dtype, setup.kv_dtype));
  c.compare(*data.values, tolerance_of_cache(setup.dtype, setup.kv_dtype));
}

void attention_case(Case& c, const Setup& setup) {
  const Data data(c, setup, true);
  c.run<frt_attention_args>(
      FRT_OP_ATTENTION, setup.dtype, 0,
      [&](frt_attention_args& args, const At& at) { args = data.attention(at, *data.q); });
  c.compare(*data.y, tolerance_of(setup.dtype));
  c.compare(*data.keys, kExact);
  c.compare(*data.values, kExact);
}

void block_case(Case& c, const Setup& setup) {
  const Data data(c, setup, true);
  c.run<frt_attention_block_args>(
      FRT_OP_ATTENTION_BLOCK, setup.dtype, 0,
      [&](frt_attention_block_args& args, const At& at) { args = data.block(at); });
  c.compare(*data.y, tolerance_of_block(setup));
  c.compare(*data.rotated, tolerance_of(setup.dtype));
  c.compare(*data.keys, tolerance_of_cache(setup.dtype, setup.kv_dtype));
  c.compare(*data.values, tolerance_of_cache(setup.dtype, setup.kv_dtype));
}

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
    if (!s.block_rows) copy(*tensor, data.slot_stride, 2 * data.slot_stride, data.slot_stride);
    for (int32_t i = 0; i < data.slot_blocks; ++i) {
      const int32_t to = data.table[static_cast<std::size_t>(data.slot_blocks + i)];
      const int32_t from = data.table[static_cast<std::size_t>(2 * data.slot_blocks + i)];
      if (from < 0) break;
      copy(*tensor, to * data.block_stride, from * data.block_stride, data.block_stride);
    }
  }
  c.run<frt_attention_block_args>(
      FRT_OP_ATTENTION_BLOCK, s.dtype, 0,
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
    c.run<frt_attention_args>(FRT_OP_ATTENTION, setup.dtype, 0,
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

// The same rows found by slot and found in blocks that happen to lie one behind the other: bit for
// bit the same.
void layouts_case(Case& c, Setup s, int32_t block_rows) {
  s.slot = {1};
  s.slot_gap = 0;
  s.block_rows = 0;
  s.max_rows = (s.position[0] + s.rows + block_rows - 1) / block_rows * block_rows;
  const Data data(c, s, true);
  const int32_t slot_blocks = s.max_rows / block_rows;
  std::vector<int32_t> order(static_cast<std::size_t>(2 * slot_blocks));
  std::iota(order.begin(), order.end(), 0);
  const Tensor& table = c.integers("order", order);
  const auto run = [&](bool in_blocks) {
    c.run<frt_attention_block_args>(
        FRT_OP_ATTENTION_BLOCK, s.dtype, 0, [&](frt_attention_block_args& args, const At& at) {
          args = data.block(at);
          if (!in_blocks) return;
          const frt_row_blocks blocks = {at.operator()<int32_t>(table),
                                         data.slot_stride / slot_blocks, slot_blocks, block_rows};
          args.append.blocks = args.attention.blocks = blocks;
        });
    return std::pair(data.y->result[0], data.keys->result[0]);
  };
  const auto by_slot = run(false);
  if (run(true) != by_slot) Case::fail("y or keys depend on how rows are found");
  c.compare(*data.y, tolerance_of_block(s));
}

// ---- bad arguments ------------------------------------------------------------------------

// The reference gets good arguments, the backend under test the changed ones.
template <class Args>
void refuses(Case& c, const char* name, const char* argument, Args (*make)(const Data&, const At&),
             void (*change)(Args&)) {
  Setup setup;
  setup.dtype = FRT_DTYPE_F32;
  setup.kv_dtype = FRT_DTYPE_F8_E4M3;
  setup.block_rows = 64;
  const Data data(c, setup, true);
  try {
    c.run<Args>(name, FRT_DTYPE_F32, 0, [&](Args& args, const At& at) {
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
      {"blocks.rows", [](Args& args) { args.blocks.rows = 32; }},
      {"blocks.rows", [](Args& args) { args.blocks.rows = 96; }},
      {"blocks.rows", [](Args& args) { args.blocks.rows = 0; }},
      {"blocks.slot_blocks", [](Args& args) { args.blocks.slot_blocks = 0; }},
      {"blocks.slot_blocks", [](Args& args) { args.max_rows = 64 * args.blocks.slot_blocks + 1; }},
      {"blocks.stride", [](Args& args) { args.blocks.stride = -64; }},
      {"blocks.stride",
       [](Args& args) {
         args.kv_dtype = FRT_DTYPE_F32;
         args.blocks.stride = 4098;
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

constexpr frt_dtype kTypes[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16};
constexpr frt_dtype kCaches[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3};

void add_all(Suite& suite, const Setup& s, const std::string& more = "") {
  const std::string text = " " + name_of(s) + more;
  suite.add(FRT_OP_ATTENTION_APPEND + text, [=](Case& c) { append_case(c, s); });
  suite.add(FRT_OP_ATTENTION + text, [=](Case& c) { attention_case(c, s); });
  suite.add(FRT_OP_ATTENTION_BLOCK + text, [=](Case& c) { block_case(c, s); });
}

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

// Rows in blocks of a random order: every form, block sizes that are and are not a multiple of what
// a form takes at a time, rows that begin, cross and end a block, several sequences.
void add_blocks(Suite& suite) {
  int turn = 0;
  for (const frt_dtype dtype : kTypes) {
    for (const frt_dtype kv_dtype : kCaches) {
      for (const int32_t head_dim : {40, 64, 128, 256}) {
        for (const int32_t rows : {1, 3, 20, 70}) {
          // All of them where tensor cores compute, else one in three.
          const bool fast = dtype == FRT_DTYPE_BF16 && kv_dtype != FRT_DTYPE_F32;
          if (++turn % 3 != 0 && !fast) continue;
          Setup s;
          s.dtype = dtype;
          s.kv_dtype = kv_dtype;
          s.head_dim = head_dim;
          s.kv_heads = rows > 16 ? 1 : 2;
          s.heads = 3 * s.kv_heads;
          s.rows = rows;
          s.block_rows = rows > 16 ? 64 : 64 << turn % 3;
          const int32_t edge = s.block_rows;
          s.slot = {4, 2, 0, 3};
          s.position = {3 * edge - 1, 0, 2 * edge, edge - rows / 2};
          s.length = {rows, rows, 0, (rows + 1) / 2};
          s.gap = turn % 4 == 0 ? 8 : 0;
          add_all(suite, s);
        }
      }
    }
  }
  for (const frt_dtype kv_dtype : kCaches) {
    for (const auto& [rows, position] : {std::pair{1, 5000}, {4, 2046}, {16, 1023}, {33, 1000}}) {
      Setup s;  // splits of several blocks
      s.kv_dtype = kv_dtype;
      s.heads = 4;
      s.kv_heads = 2;
      s.head_dim = 64;
      s.rows = rows;
      s.position = {position};
      s.length = {rows};
      for (const int32_t block_rows : {64, 256}) {
        s.block_rows = block_rows;
        suite.add(FRT_OP_ATTENTION_BLOCK + (" " + name_of(s)), [=](Case& c) { block_case(c, s); });
      }
      suite.add(FRT_OP_ATTENTION_BLOCK + (" by slot and by block " + name_of(s)),
                [=](Case& c) { layouts_case(c, s, 128); });
    }
    // Rows that no block was reserved for are not stored.
    for (const int32_t rows : {1, 2, 40}) {
      Setup s;
      s.kv_dtype = kv_dtype;
      s.head_dim = 128;
      s.rows = rows;
      s.block_rows = 64;
      s.position = {128 - rows / 2};
      s.length = {rows};
      suite.add(FRT_OP_ATTENTION_APPEND + (" no block " + name_of(s)),
                [=](Case& c) { no_block_case(c, s); });
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
      s.block_rows = 256;
      add_all(suite, s, " model");
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
      s.block_rows = 64;
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

void add_attention_cases(Suite& suite) {
  add_single(suite);
  add_batches(suite);
  add_edges(suite);
  add_long(suite);
  add_blocks(suite);
  add_model_shapes(suite);
  add_independence(suite);
  add_refusals(suite);
}

}  // namespace frt::conformance
