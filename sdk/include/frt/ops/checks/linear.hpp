// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/linear.hpp - the checks of frt/ops/linear.h. Header-only.  [setup]
#pragma once

#include <frt/ops/linear.h>
#include <frt/checks.hpp>
#include <frt/ops/checks/weight.hpp>

#include <cstdint>
#include <span>

namespace frt {

namespace detail {

// Rows x of `inputs` columns and the optional norm before them, of every operator that has both.
template <class Args>
void check_normed_rows(const Checks& check, const Args& args, int64_t inputs) {
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.array_or_null("row_count", args.row_count, {1});
  check.array("x", args.x, args.dtype, {args.rows, inputs});
  if (!args.residual) return check.require(!args.delta, "delta", "is given without residual");
  check.dtype("residual_dtype", args.residual_dtype);
  check.array("residual", args.residual, args.residual_dtype, {args.rows, inputs});
  check.array_or_null("delta", args.delta, args.dtype, {args.rows, inputs});
  check.array("norm_weight", args.norm_weight, {inputs});
}

}  // namespace detail

inline void check_linear(const Checks& check, const frt_linear_args& args,
                         std::span<const frt_weight_format> formats) {
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("y_dtype", args.y_dtype);
  check.at_least("rows", args.rows, 0);
  check.range("accumulate", args.accumulate, 0, 1);
  check.array_or_null("row_count", args.row_count, {1});
  check_weight(check.in("weight"), args.weight, formats);
  check.matrix("x", args.x, args.x_dtype, args.rows, args.weight.cols, "x_stride", args.x_stride);
  check.matrix("y", args.y, args.y_dtype, args.rows, args.weight.rows, "y_stride", args.y_stride);
}

inline void check_norm_linears(const Checks& check, const frt_norm_linears_args& args,
                               std::span<const frt_weight_format> formats) {
  check.range("part_count", args.part_count, 1, FRT_LINEAR_GROUP_MAX);
  check.array("parts", args.parts, {args.part_count});
  for (int32_t i = 0; i < args.part_count; ++i) {
    const frt_linear_part& one = args.parts[i];
    const Checks part = check.in("parts", i);
    const Checks weight = part.in("weight");
    check_weight(weight, one.weight, formats);
    weight.equal("cols", one.weight.cols, args.parts[0].weight.cols);
  }
  detail::check_normed_rows(check, args, args.parts[0].weight.cols);
  for (int32_t i = 0; i < args.part_count; ++i) {
    const frt_linear_part& one = args.parts[i];
    check.in("parts", i)
        .matrix("y", one.y, args.dtype, args.rows, one.weight.rows, "y_stride", one.y_stride);
  }
}

inline void check_norm_gate_up(const Checks& check, const frt_norm_gate_up_args& args,
                               std::span<const frt_weight_format> formats) {
  check_weight(check.in("gate_weight"), args.gate_weight, formats);
  check_weight(check.in("up_weight"), args.up_weight, formats);
  check.equal("up_weight.rows", args.up_weight.rows, args.gate_weight.rows);
  check.equal("up_weight.cols", args.up_weight.cols, args.gate_weight.cols);
  detail::check_normed_rows(check, args, args.gate_weight.cols);
  check.array("gate", args.gate, args.dtype, {args.rows, args.gate_weight.rows});
  check.array("h", args.h, args.dtype, {args.rows, args.gate_weight.rows});
}

}  // namespace frt
