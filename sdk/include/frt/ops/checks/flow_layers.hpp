// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/flow_layers.hpp - the checks of frt/ops/flow_layers.h. What they take, the
// operators that a layer is made of (frt/flow_layers.hpp) take, too. Header-only.  [setup]
#pragma once

#include <frt/ops/flow_layers.h>
#include <frt/checks.hpp>
#include <frt/ops/checks/row_norm.hpp>
#include <frt/ops/checks/weight.hpp>

#include <cstdint>
#include <span>

namespace frt {

namespace detail {

inline void check_flow_layer(const Checks& check, const frt_flow_layers_args& args,
                             const frt_flow_layer& layer,
                             std::span<const frt_weight_format> formats) {
  const int64_t q_width = int64_t{args.heads} * args.head_dim;
  const int64_t k_width = int64_t{args.kv_heads} * args.head_dim;
  const auto matrix = [&](const char* member, const frt_weight& weight, int64_t outputs,
                          int64_t inputs, const char* scale_member, float scale) {
    const Checks inside = check.in(member);
    check_weight(inside, weight, formats);
    inside.equal("rows", weight.rows, outputs);
    inside.equal("cols", weight.cols, inputs);
    check.scale(scale_member, scale, member, weight);
  };
  matrix("query", layer.query, q_width, args.width, "qkv_scale", layer.qkv_scale);
  matrix("key_value", layer.key_value, 2 * k_width, args.width, "qkv_scale", layer.qkv_scale);
  matrix("output", layer.output, args.width, q_width, "output_scale", layer.output_scale);
  matrix("gate", layer.gate, args.hidden, args.width, "hidden_scale", layer.hidden_scale);
  matrix("up", layer.up, args.hidden, args.width, "hidden_scale", layer.hidden_scale);
  matrix("down", layer.down, args.width, args.hidden, "down_scale", layer.down_scale);
  check.result_scale("down_scale", layer.down_scale, "hidden_scale", layer.hidden_scale);
  check_modulation(check.in("attention_norm"), layer.attention_norm, args.width);
  check_modulation(check.in("hidden_norm"), layer.hidden_norm, args.width);
  if (args.context_rows == 0) return;
  const int64_t rows = int64_t{args.count / args.sequences_per_context} * args.context_rows;
  check.array("context_k", layer.context_k, args.dtype, {rows, args.context_stride});
  check.array("context_v", layer.context_v, args.dtype, {rows, args.context_stride});
}

}  // namespace detail

inline void check_flow_layers(const Checks& check, const frt_flow_layers_args& args,
                              std::span<const frt_weight_format> formats) {
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("dtype", args.dtype);
  check.positive("layer_count", args.layer_count);
  check.positive("count", args.count);
  check.positive("rows", args.rows);
  check.total_rows("count", args.count, args.rows);
  check.positive("width", args.width);
  check.positive("hidden", args.hidden);
  check.positive("heads", args.heads);
  check.positive("kv_heads", args.kv_heads);
  check.multiple("heads", args.heads, args.kv_heads, "kv_heads");
  check.positive("head_dim", args.head_dim);
  check.require(args.head_dim % 2 == 0, "head_dim", "is odd");
  check.positive("positions", args.positions);
  check.array("table", args.table, {args.positions, args.head_dim});
  check.array("layers", args.layers, {args.layer_count});
  const int64_t rows = int64_t{args.count} * args.rows;
  check.array("x", args.x, args.x_dtype, {rows, args.width});
  check.array("normed", args.normed, args.dtype, {rows, args.width});
  check.array("q", args.q, args.dtype, {rows, args.heads, args.head_dim});
  check.array("kv", args.kv, args.dtype, {rows, 2, args.kv_heads, args.head_dim});
  check.array("y", args.y, args.dtype, {rows, args.heads, args.head_dim});
  check.array("gate", args.gate, args.dtype, {rows, args.hidden});
  check.array("h", args.h, args.dtype, {rows, args.hidden});
  check.at_least("context_rows", args.context_rows, 0);
  if (args.context_rows > 0) {
    check.positive("sequences_per_context", args.sequences_per_context);
    check.multiple("count", args.count, args.sequences_per_context, "sequences_per_context");
    check.array("context_length", args.context_length, {args.count / args.sequences_per_context});
    check.at_least("context_stride", args.context_stride, int64_t{args.kv_heads} * args.head_dim);
  }
  for (int32_t i = 0; i < args.layer_count; ++i) {
    detail::check_flow_layer(check.in("layers", i), args, args.layers[i], formats);
  }
}

}  // namespace frt
