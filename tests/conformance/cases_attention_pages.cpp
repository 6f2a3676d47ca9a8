// SPDX-License-Identifier: Apache-2.0
// Cases of attention whose rows lie in pages (frt_page_table).
#include <cstring>
#include <tuple>
#include <utility>

#include "cases_attention.hpp"

namespace frt::conformance::attention {
namespace {

// The last page of the sequence is missing.
void no_page_case(Case& c, const Setup& setup) {
  Data data(c, setup, false);
  const auto last = static_cast<std::size_t>(
      setup.slot[0] * data.slot_pages + (setup.position[0] + setup.rows - 1) / setup.page_rows);
  data.table[last] = -1;
  std::memcpy(data.pages->initial.data(), data.table.data(), data.table.size() * sizeof(int32_t));
  c.run<frt_attention_append_args>(
      FRT_OP_ATTENTION_APPEND, KernelTypes(setup.dtype), {},
      [&](frt_attention_append_args& args, const At& at) { args = data.append(at); });
  c.compare(*data.rotated, tolerance_of(setup.dtype));
  c.compare(*data.keys, tolerance_of_cache(setup.dtype, setup.kv_dtype));
  c.compare(*data.values, tolerance_of_cache(setup.dtype, setup.kv_dtype));
}

// The same rows found by slot and found in pages that happen to lie one behind the other: bit for
// bit the same.
void layouts_case(Case& c, Setup s, int32_t page_rows) {
  s.slot = {1};
  s.slot_gap = 0;
  s.page_rows = 0;
  s.max_rows = (s.position[0] + s.rows + page_rows - 1) / page_rows * page_rows;
  const Data data(c, s, true);
  const int32_t slot_pages = s.max_rows / page_rows;
  std::vector<int32_t> order(static_cast<std::size_t>(2 * slot_pages));
  std::iota(order.begin(), order.end(), 0);
  const Tensor& table = c.integers("order", order);
  const auto run = [&](bool in_pages) {
    c.run<frt_attention_block_args>(FRT_OP_ATTENTION_BLOCK, KernelTypes(s.dtype), {},
                                    [&](frt_attention_block_args& args, const At& at) {
                                      args = data.block(at);
                                      if (!in_pages) return;
                                      const frt_page_table pages = {at.operator()<int32_t>(table),
                                                                    data.slot_stride / slot_pages,
                                                                    slot_pages, page_rows};
                                      args.append.pages = args.attention.pages = pages;
                                    });
    return std::pair(data.y->result[0], data.keys->result[0]);
  };
  const auto by_slot = run(false);
  if (run(true) != by_slot) Case::fail("y or keys depend on how rows are found");
  c.compare(*data.y, tolerance_of_block(s));
}

}  // namespace

// Rows in pages of a random order: every form, page sizes that are and are not a multiple of what
// a form takes at a time, rows that begin, cross and end a page, several sequences.
void add_pages(Suite& suite) {
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
          s.page_rows = rows > 16 ? 64 : 64 << turn % 3;
          const int32_t edge = s.page_rows;
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
      Setup s;  // splits of several pages
      s.kv_dtype = kv_dtype;
      s.heads = 4;
      s.kv_heads = 2;
      s.head_dim = 64;
      s.rows = rows;
      s.position = {position};
      s.length = {rows};
      for (const int32_t page_rows : {64, 256}) {
        s.page_rows = page_rows;
        suite.add(FRT_OP_ATTENTION_BLOCK + (" " + name_of(s)), [=](Case& c) { block_case(c, s); });
      }
      suite.add(FRT_OP_ATTENTION_BLOCK + (" by slot and by page " + name_of(s)),
                [=](Case& c) { layouts_case(c, s, 128); });
    }
    // Rows that no page was reserved for are not stored.
    for (const int32_t rows : {1, 2, 40}) {
      Setup s;
      s.kv_dtype = kv_dtype;
      s.head_dim = 128;
      s.rows = rows;
      s.page_rows = 64;
      s.position = {128 - rows / 2};
      s.length = {rows};
      suite.add(FRT_OP_ATTENTION_APPEND + (" no page " + name_of(s)),
                [=](Case& c) { no_page_case(c, s); });
    }
  }
}

}  // namespace frt::conformance::attention
