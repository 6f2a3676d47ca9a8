// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/row_norm.hpp - the checks of frt/ops/row_norm.h, also where a norm is a part of
// another operator. Header-only.  [setup]
#pragma once

#include <frt/ops/row_norm.h>
#include <frt/checks.hpp>

#include <cstdint>

namespace frt {

inline void check_modulation(const Checks& check, const frt_modulation& modulation, int64_t width) {
  check.array("rows", modulation.rows, {3, width});
  if (!modulation.clean_rows) return;
  check.array("clean_rows", modulation.clean_rows, {1});
  check.array("clean", modulation.clean, {3, width});
  check.positive("period", modulation.period);
}

inline void check_norm(const Checks& check, const frt_norm& norm, int64_t width) {
  check.range("kind", norm.kind, FRT_NORM_NONE, FRT_NORM_ADAPTIVE);
  if (norm.kind == FRT_NORM_RMS || norm.kind == FRT_NORM_LAYER) {
    check.array("weight", norm.weight, {width});
  }
  if (norm.kind == FRT_NORM_LAYER) check.array("bias", norm.bias, {width});
  if (norm.kind == FRT_NORM_ADAPTIVE) {
    check_modulation(check.in("modulation"), norm.modulation, width);
  }
}

inline void check_row_norm(const Checks& check, const frt_row_norm_args& args) {
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("y_dtype", args.y_dtype);
  check.positive("rows", args.rows);
  check.positive("width", args.width);
  check.array_or_null("row_count", args.row_count, {1});
  check_norm(check.in("norm"), args.norm, args.width);
  check.matrix("x", args.x, args.x_dtype, args.rows, args.width, "x_stride", args.x_stride);
  check.matrix("y", args.y, args.y_dtype, args.rows, args.width, "y_stride", args.y_stride);
  check.require(
      args.y != args.x || (args.x_dtype == args.y_dtype && args.x_stride == args.y_stride), "y",
      "is x, and their types or strides differ");
}

}  // namespace frt
