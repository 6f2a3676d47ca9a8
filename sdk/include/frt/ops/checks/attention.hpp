// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/attention.hpp - the checks of frt/ops/attention.h. Header-only.  [setup]
#pragma once

#include <frt/ops/attention.h>
#include <frt/checks.hpp>

#include <cstdint>
#include <string>

namespace frt {

// Of keys and values whose rows have `row_bytes` bytes, for max_rows positions, more than 0.
inline void check_page_table(const Checks& check, const frt_page_table& pages, int32_t max_rows,
                             frt_dtype kv_dtype, int64_t row_bytes) {
  if (!pages.table) return;
  check.aligned("table", pages.table, alignof(int32_t));
  check.at_least("rows", pages.rows, FRT_PAGE_ROWS_LEAST);
  check.require((pages.rows & (pages.rows - 1)) == 0, "rows", "is not a power of two");
  check.positive("slot_pages", pages.slot_pages);
  if (int64_t{pages.slot_pages} * pages.rows < max_rows) {
    check.fail("slot_pages", "is " + std::to_string(pages.slot_pages) + ": too few pages of " +
                                 std::to_string(pages.rows) + " rows for max_rows " +
                                 std::to_string(max_rows));
  }
  check.at_least("stride", pages.stride, bounded_product({pages.rows, row_bytes}));
  check.multiple("stride", pages.stride, Checks::whole_bytes(kv_dtype));
}

namespace detail {

// Heads, keys and values of both operators.
template <class Args>
void check_kv(const Checks& check, const Args& args) {
  check.dtype("dtype", args.dtype);
  check.dtype("kv_dtype", args.kv_dtype, {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3});
  check.sequences(args.sequences);
  check.positive("heads", args.heads);
  check.positive("kv_heads", args.kv_heads);
  check.multiple("heads", args.heads, args.kv_heads, "kv_heads");
  check.positive("head_dim", args.head_dim);
  check.positive("max_rows", args.max_rows);
  if (args.kv_dtype == FRT_DTYPE_F8_E4M3) {
    check.require(args.k_scale > 0, "k_scale", "is not more than 0");
    check.require(args.v_scale > 0, "v_scale", "is not more than 0");
  }
  const int64_t row_bytes =
      bounded_product({args.kv_heads, args.head_dim, Checks::whole_bytes(args.kv_dtype)});
  check_page_table(check.in("pages"), args.pages, args.max_rows, args.kv_dtype, row_bytes);
  const int64_t rows = args.pages.table ? args.pages.rows : args.max_rows;
  check.array("keys", args.keys, args.kv_dtype, {rows, args.kv_heads, args.head_dim});
  check.array("values", args.values, args.kv_dtype, {rows, args.kv_heads, args.head_dim});
  if (args.pages.table) return;
  const int64_t elements = bounded_product({rows, args.kv_heads, args.head_dim});
  check.slot_stride("slot_stride", args.slot_stride, args.kv_dtype, elements);
}

// Heads that lie `row_stride` elements from row to row and `head_stride` from head to head.
template <class Args>
void check_strided_heads(const Checks& check, const Args& args, const char* argument,
                         const void* data, const char* row_argument, int64_t row_stride,
                         const char* head_argument, int64_t head_stride) {
  const int64_t rows = int64_t{args.sequences.count} * args.sequences.rows;
  check.matrix(argument, data, args.dtype, rows, args.head_dim, row_argument, row_stride);
  check.matrix(argument, data, args.dtype, args.heads, args.head_dim, head_argument, head_stride);
}

}  // namespace detail

inline void check_attention_append(const Checks& check, const frt_attention_append_args& args) {
  detail::check_kv(check, args);
  check.range("rotary_dim", args.rotary_dim, 0, args.head_dim);
  check.require(args.rotary_dim % 2 == 0, "rotary_dim", "is odd");
  const int64_t rows = int64_t{args.sequences.count} * args.sequences.rows;
  detail::check_strided_heads(check, args, "q", args.q, "q_row_stride", args.q_row_stride,
                              "q_head_stride", args.q_head_stride);
  check.array("k", args.k, args.dtype, {rows, args.kv_heads, args.head_dim});
  check.array("v", args.v, args.dtype, {rows, args.kv_heads, args.head_dim});
  check.array_or_null("q_norm", args.q_norm, {args.head_dim});
  check.array_or_null("k_norm", args.k_norm, {args.head_dim});
  if (args.rotary_dim > 0) check.array("inv_freq", args.inv_freq, {args.rotary_dim / 2});
  check.array("q_out", args.q_out, args.dtype, {rows, args.heads, args.head_dim});
}

inline void check_attention(const Checks& check, const frt_attention_args& args) {
  detail::check_kv(check, args);
  const int64_t rows = int64_t{args.sequences.count} * args.sequences.rows;
  check.array("q", args.q, args.dtype, {rows, args.heads, args.head_dim});
  if (args.gate) {
    detail::check_strided_heads(check, args, "gate", args.gate, "gate_row_stride",
                                args.gate_row_stride, "gate_head_stride", args.gate_head_stride);
  }
  check.array("y", args.y, args.dtype, {rows, args.heads, args.head_dim});
}

inline void check_attention_block(const Checks& check, const frt_attention_block_args& args) {
  check_attention_append(check.in("append"), args.append);
  check_attention(check.in("attention"), args.attention);
  check.require(args.append.q_out == args.attention.q, "attention.q", "is not append.q_out");
}

}  // namespace frt
