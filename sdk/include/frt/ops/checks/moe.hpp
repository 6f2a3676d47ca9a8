// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/moe.hpp - the checks of frt/ops/moe.h. Header-only.  [setup]
#pragma once

#include <frt/ops/moe.h>
#include <frt/checks.hpp>
#include <frt/ops/checks/linear.hpp>
#include <frt/ops/checks/weight.hpp>

#include <cstdint>
#include <span>

namespace frt {

namespace detail {

// What the experts of a block share with those of an operator of its own: sizes, choice, matrices.
template <class Args>
void check_choice(const Checks& check, const Args& args) {
  check.at_least("rows", args.rows, 0);
  check.positive("experts", args.experts);
  check.range("experts_per_token", args.experts_per_token, 1, args.experts);
  check.require(int64_t{args.rows} * args.experts_per_token <= INT32_MAX, "rows",
                "times experts_per_token is 2^31 or more");
  check.array_or_null("row_count", args.row_count, {1});
  check.array("ids", args.ids, {args.rows, args.experts_per_token});
  check.array("weights", args.weights, {args.rows, args.experts_per_token});
}
template <class Args>
void check_experts(const Checks& check, const Args& args, int32_t inputs,
                   std::span<const frt_weight_format> formats) {
  const frt_weight& gate = args.gate.expert;
  check_expert_weight(check.in("gate"), args.gate, args.experts, formats);
  check.equal("gate.expert.cols", gate.cols, inputs);
  check_expert_weight(check.in("up"), args.up, args.experts, formats);
  check_expert_weight(check.in("down"), args.down, args.experts, formats);
  check.equal("up.expert.rows", args.up.expert.rows, gate.rows);
  check.equal("up.expert.cols", args.up.expert.cols, gate.cols);
  check.equal("down.expert.rows", args.down.expert.rows, gate.cols);
  check.equal("down.expert.cols", args.down.expert.cols, gate.rows);
  check.array("x", args.x, args.dtype, {args.rows, gate.cols});
  check.array("y", args.y, args.dtype, {args.rows, gate.cols});
}

}  // namespace detail

inline void check_moe_route(const Checks& check, const frt_moe_route_args& args) {
  detail::check_choice(check, args);
  check.array("logits", args.logits, {args.rows, args.experts});
}

inline void check_moe_experts(const Checks& check, const frt_moe_experts_args& args,
                              std::span<const frt_weight_format> formats) {
  check.dtype("dtype", args.dtype);
  detail::check_choice(check, args);
  detail::check_experts(check, args, args.gate.expert.cols, formats);
}

inline void check_moe_combine(const Checks& check, const frt_moe_combine_args& args) {
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.positive("width", args.width);
  check.array_or_null("row_count", args.row_count, {1});
  check.array("routed", args.routed, args.dtype, {args.rows, args.width});
  check.array("shared", args.shared, args.dtype, {args.rows, args.width});
  check.array("gate", args.gate, {args.rows});
  check.array("y", args.y, args.dtype, {args.rows, args.width});
}

inline void check_moe_block(const Checks& check, const frt_moe_block_args& args,
                            std::span<const frt_weight_format> formats) {
  check_weight(check.in("router"), args.router, formats);
  const int32_t inputs = args.router.cols;
  detail::check_normed_rows(check, args, inputs);
  detail::check_choice(check, args);
  check.equal("router.rows", args.router.rows, args.experts);
  check.array("logits", args.logits, {args.rows, args.experts});
  detail::check_experts(check, args, inputs, formats);

  const int32_t width = args.shared_gate_weight.rows;
  check.at_least("shared_gate_weight.rows", width, 0);
  if (width == 0) return;
  const auto matrix = [&](const char* member, const frt_weight& weight, int32_t rows,
                          int32_t cols) {
    const Checks inside = check.in(member);
    check_weight(inside, weight, formats);
    inside.equal("rows", weight.rows, rows);
    inside.equal("cols", weight.cols, cols);
  };
  matrix("shared_gate_weight", args.shared_gate_weight, width, inputs);
  matrix("shared_up_weight", args.shared_up_weight, width, inputs);
  matrix("shared_down_weight", args.shared_down_weight, inputs, width);
  matrix("shared_expert_gate", args.shared_expert_gate, 1, inputs);
  check.array("shared_hidden", args.shared_hidden, args.dtype, {args.rows, 2, width});
  check.array("shared_y", args.shared_y, args.dtype, {args.rows, inputs});
  check.array("shared_scale", args.shared_scale, {args.rows});
}

}  // namespace frt
