// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/dense_attention.hpp - the checks of frt/ops/dense_attention.h. Header-only.
// [setup]
#pragma once

#include <frt/ops/dense_attention.h>
#include <frt/checks.hpp>
#include <frt/ops/checks/dense.hpp>

#include <cstdint>
#include <span>

namespace frt {

inline void check_rope(const Checks& check, const frt_rope_args& args) {
  check.dtype("dtype", args.dtype);
  check.positive("count", args.count);
  check.positive("rows", args.rows);
  check.total_rows("count", args.count, args.rows);
  check.positive("head_dim", args.head_dim);
  check.require(args.head_dim % 2 == 0, "head_dim", "is odd");
  check.positive("positions", args.positions);
  check.array("table", args.table, {args.positions, args.head_dim});
  if (args.base) {
    check.positive("sequences_per_base", args.sequences_per_base);
    check.multiple("count", args.count, args.sequences_per_base, "sequences_per_base");
    check.array("base", args.base, {args.count / args.sequences_per_base});
  }
  const int64_t rows = int64_t{args.count} * args.rows;
  if (args.q) {
    check.positive("heads", args.heads);
    check.matrix("q", args.q, args.dtype, rows, int64_t{args.heads} * args.head_dim, "q_stride",
                 args.q_stride);
  }
  check.positive("kv_heads", args.kv_heads);
  check.matrix("k", args.k, args.dtype, rows, int64_t{args.kv_heads} * args.head_dim, "k_stride",
               args.k_stride);
}

inline void check_norm_qkv(const Checks& check, const frt_norm_qkv_args& args,
                           std::span<const frt_weight_format> formats) {
  check_norm_dense(check.in("products"), args.products, formats);
  check_rope(check.in("rope"), args.rope);
  check.equal("products.rows", args.products.rows, int64_t{args.rope.count} * args.rope.rows);
}

inline void check_dense_attention(const Checks& check, const frt_dense_attention_args& args) {
  check.dtype("dtype", args.dtype);
  check.positive("count", args.count);
  check.positive("rows", args.rows);
  check.total_rows("count", args.count, args.rows);
  check.positive("heads", args.heads);
  check.positive("kv_heads", args.kv_heads);
  check.multiple("heads", args.heads, args.kv_heads, "kv_heads");
  check.positive("head_dim", args.head_dim);
  check.array_or_null("length", args.length, {args.count});
  const int64_t rows = int64_t{args.count} * args.rows;
  const int64_t width = int64_t{args.heads} * args.head_dim;
  const int64_t kv_width = int64_t{args.kv_heads} * args.head_dim;
  check.matrix("q", args.q, args.dtype, rows, width, "q_stride", args.q_stride);
  check.matrix("k", args.k, args.dtype, rows, kv_width, "kv_stride", args.kv_stride);
  check.matrix("v", args.v, args.dtype, rows, kv_width, "kv_stride", args.kv_stride);
  check.scale("y_scale", args.y_scale);
  check.matrix("y", args.y, args.y_scale > 0 ? frt_dtype{FRT_DTYPE_F8_E4M3} : args.dtype, rows,
               width, "y_stride", args.y_stride);
  check.at_least("context_rows", args.context_rows, 0);
  if (args.context_rows == 0) return;
  check.positive("sequences_per_context", args.sequences_per_context);
  check.multiple("count", args.count, args.sequences_per_context, "sequences_per_context");
  const int64_t contexts = args.count / args.sequences_per_context;
  const int64_t context_rows = contexts * args.context_rows;
  check.array("context_length", args.context_length, {contexts});
  check.matrix("context_k", args.context_k, args.dtype, context_rows, kv_width, "context_stride",
               args.context_stride);
  check.matrix("context_v", args.context_v, args.dtype, context_rows, kv_width, "context_stride",
               args.context_stride);
}

}  // namespace frt
