// SPDX-License-Identifier: Apache-2.0
// cases_attention.hpp - the tensors and the three checks that all cases of attention share.
#pragma once

#include <frt/ops/attention.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"

namespace frt::conformance::attention {

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
  int64_t slot_gap = 256;  // bytes between slots or pages
  int32_t page_rows = 0;   // 0: rows of a slot are contiguous
};

inline std::string name_of(const Setup& s) {
  std::string name = std::string(dtype_name(s.dtype)) + " kv " + dtype_name(s.kv_dtype) + " " +
                     std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + "x" +
                     std::to_string(s.head_dim) + " rows " + std::to_string(s.rows) + " at";
  for (const int32_t position : s.position) name += " " + std::to_string(position);
  if (s.page_rows) name += " pages of " + std::to_string(s.page_rows);
  return name;
}

// Stored keys of FP8 may differ by one step where a value lies between two of them: they were
// normed and rotated in f32 before. Values are stored as they came, so they are judged exactly.
inline Tolerance tolerance_of_cache(frt_dtype dtype, frt_dtype kv_dtype) {
  if (kv_dtype == FRT_DTYPE_F8_E4M3) return {1e-2, 0.13};
  return kv_dtype == FRT_DTYPE_F32 ? tolerance_of(dtype) : kBf16;
}

// What is computed from keys that were rounded on their way into the cache: of two equally near
// values either may have been stored.
inline Tolerance tolerance_of_block(const Setup& s) {
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
    if (s.page_rows) {
      page_stride = s.page_rows * row_bytes + s.slot_gap;
      make_table(slots, c.random());
      elements = static_cast<int64_t>(total_pages) * page_stride / size;
      pages = &c.integers("pages", table);
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

  // Every slot's rows in pages of a random order; entries of rows that no sequence has are -1.
  void make_table(int32_t slots, std::mt19937_64& random) {
    slot_pages = (s.max_rows + s.page_rows - 1) / s.page_rows + 1;
    total_pages = slots * slot_pages + 3;
    std::vector<int32_t> order(static_cast<std::size_t>(total_pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    table.assign(static_cast<std::size_t>(slots * slot_pages), -1);
    std::size_t next = 0;
    for (std::size_t b = 0; b < s.slot.size(); ++b) {
      const int32_t rows = std::min(s.position[b] + s.length[b], s.max_rows);
      for (int32_t i = 0; i * s.page_rows < rows; ++i) {
        table[static_cast<std::size_t>(s.slot[b] * slot_pages + i)] = order[next++];
      }
    }
  }

  frt_page_table page_table(const At& at) const {
    frt_page_table value{};
    if (!pages) return value;
    value.table = at.operator()<int32_t>(*pages);
    value.stride = page_stride;
    value.slot_pages = slot_pages;
    value.rows = s.page_rows;
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
    args.pages = page_table(at);
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
    args.pages = page_table(at);
    return args;
  }

  frt_attention_block_args block(const At& at) const {
    frt_attention_block_args args{};
    args.struct_size = sizeof(args);
    args.append = append(at);
    args.attention = attention(at, *rotated);
    return args;
  }

  // The values of the new rows, converted, where the header says that they lie.
  Expected stored_values() const {
    Expected expected(s.kv_dtype, values->count);
    const std::vector<double> from = Case::values(*v);
    const int64_t size = dtype_bits(s.kv_dtype) / 8;
    const int64_t width = int64_t{s.kv_heads} * s.head_dim;
    for (std::size_t b = 0; b < s.slot.size(); ++b) {
      for (int64_t n = 0; n < s.length[b]; ++n) {
        const int64_t p = s.position[b] + n;
        if (p >= s.max_rows) break;
        int64_t at = s.slot[b] * slot_stride / size + p * width;
        if (s.page_rows) {
          const int32_t page =
              table[static_cast<std::size_t>(s.slot[b] * slot_pages + p / s.page_rows)];
          if (page < 0) continue;
          at = page * page_stride / size + p % s.page_rows * width;
        }
        const int64_t row = (static_cast<int64_t>(b) * s.rows + n) * width;
        for (int64_t i = 0; i < width; ++i) {
          expected.code(at + i,
                        from[static_cast<std::size_t>(row + i)] / static_cast<double>(scale()));
        }
      }
    }
    return expected;
  }

  Setup s;
  int64_t total = 0, slot_stride = 0, head_stride = 0;
  int32_t slot_pages = 0, total_pages = 0;
  int64_t page_stride = 0;
  std::vector<int32_t> table;
  Tensor* pages = nullptr;
  Case::Sequences sequences{};
  Tensor *q, *k, *v, *q_norm, *k_norm, *inv_freq, *keys, *values, *rotated, *y;
};

inline void append_case(Case& c, const Setup& setup) {
  const Data data(c, setup, false);
  c.run<frt_attention_append_args>(
      FRT_OP_ATTENTION_APPEND, KernelTypes(setup.dtype), {},
      [&](frt_attention_append_args& args, const At& at) { args = data.append(at); });
  c.compare(*data.rotated, tolerance_of(setup.dtype));
  c.compare(*data.keys, tolerance_of_cache(setup.dtype, setup.kv_dtype));
  c.compare(*data.values, kExact);
  c.require(*data.values, data.stored_values());
}

inline void attention_case(Case& c, const Setup& setup) {
  const Data data(c, setup, true);
  c.run<frt_attention_args>(
      FRT_OP_ATTENTION, KernelTypes(setup.dtype), {},
      [&](frt_attention_args& args, const At& at) { args = data.attention(at, *data.q); });
  c.compare(*data.y, tolerance_of(setup.dtype));
  c.compare(*data.keys, kExact);
  c.compare(*data.values, kExact);
}

inline void block_case(Case& c, const Setup& setup) {
  const Data data(c, setup, true);
  c.run<frt_attention_block_args>(
      FRT_OP_ATTENTION_BLOCK, KernelTypes(setup.dtype), {},
      [&](frt_attention_block_args& args, const At& at) { args = data.block(at); });
  c.compare(*data.y, tolerance_of_block(setup));
  c.compare(*data.rotated, tolerance_of(setup.dtype));
  c.compare(*data.keys, tolerance_of_cache(setup.dtype, setup.kv_dtype));
  c.compare(*data.values, kExact);
  c.require(*data.values, data.stored_values());
}

inline constexpr frt_dtype kTypes[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16};
inline constexpr frt_dtype kCaches[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3};

inline void add_all(Suite& suite, const Setup& s, const std::string& more = "") {
  const std::string text = " " + name_of(s) + more;
  suite.add(FRT_OP_ATTENTION_APPEND + text, [=](Case& c) { append_case(c, s); });
  suite.add(FRT_OP_ATTENTION + text, [=](Case& c) { attention_case(c, s); });
  suite.add(FRT_OP_ATTENTION_BLOCK + text, [=](Case& c) { block_case(c, s); });
}

void add_pages(Suite& suite);  // cases_attention_pages.cpp

}  // namespace frt::conformance::attention
