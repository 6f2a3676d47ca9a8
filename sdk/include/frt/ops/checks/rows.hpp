// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/rows.hpp - the checks of frt/ops/rows.h. Header-only.  [setup]
#pragma once

#include <frt/ops/rows.h>
#include <frt/checks.hpp>

#include <cstdint>

namespace frt {

inline void check_lag_rows(const Checks& check, const frt_lag_rows_args& args) {
  check.dtype("dtype", args.dtype);
  check.sequences(args.sequences);
  check.positive("width", args.width);
  const int64_t rows = int64_t{args.sequences.count} * args.sequences.rows;
  check.array("ids", args.ids, {rows});
  if (args.sequences.rows > 1) check.pointer("x", args.x);
  check.array_or_null("x", args.x, args.dtype, {rows, args.width});
  check.slots("carry", args.carry, args.dtype, {args.width}, "slot_stride", args.slot_stride);
  check.array("ids_out", args.ids_out, {rows});
  check.require(args.ids_out != args.ids, "ids_out", "is ids");
  check.array("y", args.y, args.dtype, {rows, args.width});
  check.require(args.y != args.x, "y", "is x");
  check.array("position_out", args.position_out, {args.sequences.count});
  check.array("length_out", args.length_out, {args.sequences.count});
}

inline void check_store_rows(const Checks& check, const frt_store_rows_args& args) {
  check.dtype("dtype", args.dtype);
  check.sequences(args.sequences);
  check.positive("width", args.width);
  check.array("x", args.x, args.dtype, {args.sequences.count, args.sequences.rows, args.width});
  check.slots("target", args.target, args.dtype, {args.width}, "slot_stride", args.slot_stride);
}

}  // namespace frt
