// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/norm.hpp - the checks of frt/ops/norm.h. Header-only.  [setup]
#pragma once

#include <frt/ops/norm.h>
#include <frt/checks.hpp>

namespace frt {

inline void check_rms_norm(const Checks& check, const frt_rms_norm_args& args) {
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("y_dtype", args.y_dtype);
  check.positive("rows", args.rows);
  check.positive("width", args.width);
  check.array_or_null("row_count", args.row_count, {1});
  check.matrix("x", args.x, args.x_dtype, args.rows, args.width, "x_stride", args.x_stride);
  check.array("weight", args.weight, {args.width});
  check.matrix("y", args.y, args.y_dtype, args.rows, args.width, "y_stride", args.y_stride);
}

inline void check_add_rms_norm(const Checks& check, const frt_add_rms_norm_args& args) {
  check.dtype("residual_dtype", args.residual_dtype);
  check.dtype("dtype", args.dtype);
  check.positive("rows", args.rows);
  check.positive("width", args.width);
  check.array_or_null("row_count", args.row_count, {1});
  check.array("residual", args.residual, args.residual_dtype, {args.rows, args.width});
  check.array_or_null("delta", args.delta, args.dtype, {args.rows, args.width});
  if (!args.y) return;
  check.array("weight", args.weight, {args.width});
  check.array("y", args.y, args.dtype, {args.rows, args.width});
}

inline void check_gated_rms_norm(const Checks& check, const frt_gated_rms_norm_args& args) {
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("dtype", args.dtype);
  check.positive("rows", args.rows);
  check.positive("heads", args.heads);
  check.positive("width", args.width);
  check.array_or_null("row_count", args.row_count, {1});
  check.array("x", args.x, args.x_dtype, {args.rows, args.heads, args.width});
  check.array("z", args.z, args.dtype, {args.rows, args.heads, args.width});
  check.array("weight", args.weight, {args.width});
  check.array("y", args.y, args.dtype, {args.rows, args.heads, args.width});
}

}  // namespace frt
