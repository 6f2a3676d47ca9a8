// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/flow.hpp - the checks of frt/ops/flow.h. Header-only.  [setup]
#pragma once

#include <frt/ops/flow.h>
#include <frt/checks.hpp>
#include <frt/ops/checks/row_norm.hpp>

#include <cstdint>

namespace frt {

inline void check_flow_start(const Checks& check, const frt_flow_start_args& args) {
  check.positive("samples", args.samples);
  check.positive("horizon", args.horizon);
  check.positive("dim", args.dim);
  check.array("noise", args.noise, {args.samples, args.horizon, args.dim});
  if (args.locked) {
    check.array("locked", args.locked, {1});
    check.array("previous", args.previous, {args.horizon, args.dim});
    check.array("locked_clean", args.locked_clean, {1});
  }
  check.array("x", args.x, {args.samples, args.horizon, args.dim});
  check.array("clean_rows", args.clean_rows, {1});
}

inline void check_flow_input(const Checks& check, const frt_flow_input_args& args) {
  check.dtype("h_dtype", args.h_dtype);
  check.positive("branches", args.branches);
  check.positive("rows", args.rows);
  check.positive("dim", args.dim);
  check.positive("width", args.width);
  check.array("x", args.x, {args.rows, args.dim});
  check.array("weight", args.weight, {args.width, args.dim});
  check.array("bias", args.bias, {args.width});
  check.array("h", args.h, args.h_dtype, {args.branches, args.rows, args.width});
}

inline void check_flow_output(const Checks& check, const frt_flow_output_args& args) {
  check.dtype("h_dtype", args.h_dtype);
  check.positive("rows", args.rows);
  check.positive("dim", args.dim);
  check.positive("width", args.width);
  check.array("h", args.h, args.h_dtype, {args.rows, args.width});
  check_norm(check.in("norm"), args.norm, args.width);
  check.array("weight", args.weight, {args.dim, args.width});
  check.array("bias", args.bias, {args.dim});
  check.array("v", args.v, {args.rows, args.dim});
}

inline void check_flow_update(const Checks& check, const frt_flow_update_args& args) {
  check.positive("branches", args.branches);
  check.positive("samples", args.samples);
  check.positive("horizon", args.horizon);
  check.positive("dim", args.dim);
  check.array("v", args.v, {args.branches, args.samples, args.horizon, args.dim});
  if (args.branches > 1) check.array("beta", args.beta, {args.branches - 1});
  if (args.previous) {
    check.array("previous", args.previous, {args.horizon, args.dim});
    check.array("weights", args.weights, {args.horizon});
    check.array("cap", args.cap, {1});
    check.array("locked", args.locked, {1});
  }
  check.array_or_null("velocity", args.velocity, {args.samples, args.horizon, args.dim});
  check.array("x", args.x, {args.samples, args.horizon, args.dim});
}

inline void check_flow_step(const Checks& check, const frt_flow_step_args& args) {
  check_flow_output(check.in("output"), args.output);
  check_flow_update(check.in("update"), args.update);
  const int64_t rows = bounded_product({args.update.samples, args.update.horizon});
  check.equal("output.rows", args.output.rows, bounded_product({args.update.branches, rows}));
  check.equal("update.dim", args.update.dim, args.output.dim);
  check.require(args.update.v == args.output.v, "update.v", "is not output.v");
  if (!args.next.h) return;
  check_flow_input(check.in("next"), args.next);
  check.equal("next.rows", args.next.rows, rows);
  check.equal("next.dim", args.next.dim, args.update.dim);
  check.require(args.next.x == args.update.x, "next.x", "is not update.x");
}

}  // namespace frt
