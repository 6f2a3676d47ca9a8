// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/dense.hpp - the checks of frt/ops/dense.h. Header-only.  [setup]
#pragma once

#include <frt/ops/dense.h>
#include <frt/checks.hpp>
#include <frt/ops/checks/row_norm.hpp>
#include <frt/ops/checks/weight.hpp>

#include <cstdint>
#include <span>

namespace frt {

namespace detail {

// Rows x of `inputs` columns and the norm before them, of both fused operators.
template <class Args>
void check_normed(const Checks& check, const Args& args, int64_t inputs) {
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.array_or_null("row_count", args.row_count, {1});
  check_norm(check.in("norm"), args.norm, inputs);
  check.array("x", args.x, args.x_dtype, {args.rows, inputs});
  if (args.norm.kind == FRT_NORM_NONE) {
    check.require(args.x_dtype == args.dtype, "x_dtype",
                  "differs from dtype, and there is no norm");
    check.require(args.normed_scale == 0, "normed_scale", "is given, and there is no norm");
  } else {
    check.array("normed", args.normed, args.dtype, {args.rows, inputs});
  }
}

}  // namespace detail

inline void check_dense(const Checks& check, const frt_dense_args& args,
                        std::span<const frt_weight_format> formats) {
  check.scale("x_scale", args.x_scale, "weight", args.weight);
  if (args.x_scale > 0) {
    check.dtype("x_dtype", args.x_dtype, {FRT_DTYPE_F8_E4M3});
  } else {
    check.dtype("x_dtype", args.x_dtype);
  }
  check.dtype("y_dtype", args.y_dtype);
  check.at_least("rows", args.rows, 0);
  check.range("activation", args.activation, FRT_ACTIVATION_NONE, FRT_ACTIVATION_SILU);
  check.range("accumulate", args.accumulate, 0, 1);
  check.array_or_null("row_count", args.row_count, {1});
  check_weight(check.in("weight"), args.weight, formats);
  const int32_t outputs = args.weight.rows;
  check.matrix("x", args.x, args.x_dtype, args.rows, args.weight.cols, "x_stride", args.x_stride);
  check.array_or_null("bias", args.bias, {outputs});
  if (args.gate.rows) check_modulation(check.in("gate"), args.gate, outputs);
  if (args.addend) {
    check.positive("addend_rows", args.addend_rows);
    check.array("addend", args.addend, {args.addend_rows, outputs});
  }
  check.matrix("y", args.y, args.y_dtype, args.rows, outputs, "y_stride", args.y_stride);
}

inline void check_norm_dense(const Checks& check, const frt_norm_dense_args& args,
                             std::span<const frt_weight_format> formats) {
  check.range("part_count", args.part_count, 1, FRT_DENSE_PARTS_MAX);
  check.array("parts", args.parts, {args.part_count});
  check.scale("normed_scale", args.normed_scale);
  for (int32_t i = 0; i < args.part_count; ++i) {
    const frt_dense_part& one = args.parts[i];
    const Checks part = check.in("parts", i);
    const Checks weight = part.in("weight");
    check_weight(weight, one.weight, formats);
    weight.equal("cols", one.weight.cols, args.parts[0].weight.cols);
    part.range("activation", one.activation, FRT_ACTIVATION_NONE, FRT_ACTIVATION_SILU);
    part.array_or_null("bias", one.bias, {one.weight.rows});
    part.scale("normed_scale", args.normed_scale, "weight", one.weight);
    part.result_scale("y_scale", one.y_scale, "normed_scale", args.normed_scale);
  }
  detail::check_normed(check, args, args.parts[0].weight.cols);
  for (int32_t i = 0; i < args.part_count; ++i) {
    const frt_dense_part& one = args.parts[i];
    const frt_dtype y_dtype = one.y_scale > 0 ? frt_dtype{FRT_DTYPE_F8_E4M3} : args.dtype;
    check.in("parts", i)
        .matrix("y", one.y, y_dtype, args.rows, one.weight.rows, "y_stride", one.y_stride);
  }
}

inline void check_norm_geglu(const Checks& check, const frt_norm_geglu_args& args,
                             std::span<const frt_weight_format> formats) {
  check_weight(check.in("gate_weight"), args.gate_weight, formats);
  check_weight(check.in("up_weight"), args.up_weight, formats);
  check.equal("up_weight.rows", args.up_weight.rows, args.gate_weight.rows);
  check.equal("up_weight.cols", args.up_weight.cols, args.gate_weight.cols);
  check.scale("normed_scale", args.normed_scale, "gate_weight", args.gate_weight);
  check.scale("normed_scale", args.normed_scale, "up_weight", args.up_weight);
  check.result_scale("h_scale", args.h_scale, "normed_scale", args.normed_scale);
  detail::check_normed(check, args, args.gate_weight.cols);
  const frt_dtype h_dtype = args.h_scale > 0 ? frt_dtype{FRT_DTYPE_F8_E4M3} : args.dtype;
  check.array("gate", args.gate, args.dtype, {args.rows, args.gate_weight.rows});
  check.array("h", args.h, h_dtype, {args.rows, args.gate_weight.rows});
}

}  // namespace frt
