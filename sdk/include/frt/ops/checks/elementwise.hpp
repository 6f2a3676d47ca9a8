// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/elementwise.hpp - the checks of frt/ops/elementwise.h. Header-only.  [setup]
#pragma once

#include <frt/ops/elementwise.h>
#include <frt/checks.hpp>

#include <cmath>
#include <cstdint>

namespace frt {

// Of frt.silu_mul/1, frt.sigmoid_mul/1, frt.add/1 and frt.gelu_mul/1.
inline void check_binary(const Checks& check, const frt_binary_args& args) {
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.positive("width", args.width);
  check.array_or_null("row_count", args.row_count, {1});
  check.matrix("a", args.a, args.dtype, args.rows, args.width, "a_stride", args.a_stride);
  check.matrix("b", args.b, args.dtype, args.rows, args.width, "b_stride", args.b_stride);
  check.matrix("y", args.y, args.dtype, args.rows, args.width, "y_stride", args.y_stride);
}

inline void check_convert(const Checks& check, const frt_convert_args& args) {
  const auto type = [&](const char* argument, frt_dtype dtype) {
    check.dtype(argument, dtype, {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F16, FRT_DTYPE_F8_E4M3});
  };
  type("x_dtype", args.x_dtype);
  type("y_dtype", args.y_dtype);
  check.at_least("rows", args.rows, 0);
  check.positive("width", args.width);
  check.require(std::isfinite(args.factor), "factor", "is not finite");
  check.array_or_null("row_count", args.row_count, {1});
  check.matrix("x", args.x, args.x_dtype, args.rows, args.width, "x_stride", args.x_stride);
  check.matrix("y", args.y, args.y_dtype, args.rows, args.width, "y_stride", args.y_stride);
}

inline void check_fill_uniform(const Checks& check, const frt_fill_uniform_args& args) {
  check.dtype("dtype", args.dtype,
              {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F16, FRT_DTYPE_F8_E4M3, FRT_DTYPE_F4_E2M1});
  check.require(args.count <= INT64_MAX, "count", "is 2^63 or more");
  check.require(args.dtype != FRT_DTYPE_F4_E2M1 || args.count % 2 == 0, "count",
                "is odd, but f4_e2m1 has two values per byte");
  if (args.count == 0) return;
  check.array("y", args.y, args.dtype, {static_cast<int64_t>(args.count)});
}

}  // namespace frt
