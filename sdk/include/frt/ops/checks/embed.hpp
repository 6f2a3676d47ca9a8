// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/embed.hpp - the checks of frt/ops/embed.h. Header-only.  [setup]
#pragma once

#include <frt/ops/embed.h>
#include <frt/checks.hpp>
#include <frt/ops/checks/weight.hpp>

#include <cstdint>
#include <span>

namespace frt {

inline void check_embed(const Checks& check, const frt_embed_args& args,
                        std::span<const frt_weight_format> formats) {
  check.dtype("y_dtype", args.y_dtype);
  check.positive("rows", args.rows);
  check.array_or_null("row_count", args.row_count, {1});
  check.array("ids", args.ids, {args.rows});
  check_weight(check.in("table"), args.table, formats);
  check.matrix("y", args.y, args.y_dtype, args.rows, args.table.cols, "y_stride", args.y_stride);
}

inline void check_select_tokens(const Checks& check, const frt_select_tokens_args& args) {
  check.sequences(args.sequences);
  check.array("ids", args.ids, {args.sequences.count, args.sequences.rows});
  check.slots("pending", args.pending, FRT_DTYPE_I32, {1}, "pending_stride", args.pending_stride);
  check.array("ids_out", args.ids_out, {args.sequences.count, args.sequences.rows});
}

inline void check_last_rows(const Checks& check, const frt_last_rows_args& args) {
  check.dtype("dtype", args.dtype);
  check.sequences(args.sequences);
  check.positive("width", args.width);
  const int64_t rows = int64_t{args.sequences.count} * args.sequences.rows;
  check.matrix("x", args.x, args.dtype, rows, args.width, "x_stride", args.x_stride);
  check.matrix("y", args.y, args.dtype, args.sequences.count, args.width, "y_stride",
               args.y_stride);
}

}  // namespace frt
