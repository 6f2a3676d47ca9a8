// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/gated_delta.hpp - the checks of frt/ops/gated_delta.h. Header-only.  [setup]
#pragma once

#include <frt/ops/gated_delta.h>
#include <frt/checks.hpp>

#include <cstdint>

namespace frt {

namespace detail {

// Of each operator its sizes, then the memory that the layers of a commit share, then what each of
// them has of its own: a layer is the operator's arguments or a frt_gated_delta_layer.
inline void check_conv_sizes(const Checks& check, const frt_causal_conv_args& args) {
  check.dtype("dtype", args.dtype);
  check.sequences(args.sequences);
  check.positive("channels", args.channels);
  check.range("width", args.width, 2, 8);
  check.range("keep_window", args.keep_window, 0, 1);
}
inline void check_conv_shared(const Checks& check, const frt_causal_conv_args& args) {
  check.slot_stride("slot_stride", args.slot_stride, args.dtype,
                    int64_t{args.width - 1} * args.channels);
  check.array("c", args.c, args.dtype, {args.sequences.count, args.sequences.rows, args.channels});
}
template <class Layer>
void check_conv_layer(const Checks& check, const frt_causal_conv_args& args, const Layer& layer) {
  check.array("u", layer.u, args.dtype, {args.sequences.count, args.sequences.rows, args.channels});
  check.require(layer.u != args.c, "u", "is c; the convolution cannot work in place");
  check.array("conv_weight", layer.conv_weight, {args.width, args.channels});
  check.array("window", layer.window, args.dtype, {args.width - 1, args.channels});
}

// Of c: queries and keys, which are as wide, and values.
inline int64_t delta_channels(const frt_gated_delta_args& args) {
  return bounded_product({2, args.key_heads, args.key_dim}) +
         bounded_product({args.value_heads, args.value_dim});
}
inline void check_delta_sizes(const Checks& check, const frt_gated_delta_args& args) {
  check.dtype("dtype", args.dtype);
  check.sequences(args.sequences);
  check.positive("key_heads", args.key_heads);
  check.positive("value_heads", args.value_heads);
  check.multiple("value_heads", args.value_heads, args.key_heads, "key_heads");
  check.positive("key_dim", args.key_dim);
  check.positive("value_dim", args.value_dim);
  check.positive("chunk", args.chunk);
  check.range("keep_state", args.keep_state, 0, 1);
}
inline void check_delta_shared(const Checks& check, const frt_gated_delta_args& args) {
  check.slot_stride("slot_stride", args.slot_stride, FRT_DTYPE_F32,
                    bounded_product({args.value_heads, args.key_dim, args.value_dim}));
  const int64_t rows = int64_t{args.sequences.count} * args.sequences.rows;
  check.array("c", args.c, args.dtype, {rows, delta_channels(args)});
  check.array("o", args.o, args.dtype, {rows, args.value_heads, args.value_dim});
}
template <class Layer>
void check_delta_layer(const Checks& check, const frt_gated_delta_args& args, const Layer& layer) {
  const int64_t rows = int64_t{args.sequences.count} * args.sequences.rows;
  check.array("a", layer.a, args.dtype, {rows, args.value_heads});
  check.array("b", layer.b, args.dtype, {rows, args.value_heads});
  check.array("decay", layer.decay, {args.value_heads});
  check.array("dt_bias", layer.dt_bias, {args.value_heads});
  check.array("state", layer.state, FRT_DTYPE_F32,
              {args.value_heads, args.key_dim, args.value_dim});
}

// The sizes of both, and whether the convolution's rows are those of the delta rule.
inline void check_conv_and_delta(const Checks& check, const frt_causal_conv_args& conv,
                                 const frt_gated_delta_args& delta) {
  check_conv_sizes(check.in("conv"), conv);
  check_delta_sizes(check.in("delta"), delta);
  check.require(conv.dtype == delta.dtype, "conv.dtype", "is not delta.dtype");
  check.equal("delta.sequences.count", delta.sequences.count, conv.sequences.count);
  check.equal("delta.sequences.rows", delta.sequences.rows, conv.sequences.rows);
  check.equal("conv.channels", conv.channels, delta_channels(delta));
  check.require(conv.c == delta.c, "delta.c", "is not conv.c");
}

}  // namespace detail

inline void check_causal_conv(const Checks& check, const frt_causal_conv_args& args) {
  detail::check_conv_sizes(check, args);
  check.require(args.keep_window == 0 || args.sequences.rows <= FRT_DELTA_KEEP_ROWS,
                "sequences.rows", "is more than the 16 that a kept window allows");
  detail::check_conv_shared(check, args);
  detail::check_conv_layer(check, args, args);
}

inline void check_gated_delta(const Checks& check, const frt_gated_delta_args& args) {
  detail::check_delta_sizes(check, args);
  check.require(args.keep_state == 0 || args.sequences.rows <= FRT_DELTA_KEEP_ROWS,
                "sequences.rows", "is more than the 16 that a kept state allows");
  detail::check_delta_shared(check, args);
  detail::check_delta_layer(check, args, args);
}

inline void check_gated_delta_block(const Checks& check, const frt_gated_delta_block_args& args) {
  detail::check_conv_and_delta(check, args.conv, args.delta);
  check_causal_conv(check.in("conv"), args.conv);
  check_gated_delta(check.in("delta"), args.delta);
  const frt_gated_delta_args& delta = args.delta;
  const int64_t rows = int64_t{delta.sequences.count} * delta.sequences.rows;
  check.array("z", args.z, delta.dtype, {rows, delta.value_heads, delta.value_dim});
  check.array("norm_weight", args.norm_weight, {delta.value_dim});
  check.array("y", args.y, delta.dtype, {rows, delta.value_heads, delta.value_dim});
}

inline void check_gated_delta_commit(const Checks& check, const frt_gated_delta_commit_args& args) {
  check.positive("layer_count", args.layer_count);
  check.array("layers", args.layers, {args.layer_count});
  detail::check_conv_and_delta(check, args.conv, args.delta);
  check.require(args.conv.sequences.rows <= FRT_DELTA_KEEP_ROWS, "conv.sequences.rows",
                "is more than the 16 that a commit takes");
  detail::check_conv_shared(check.in("conv"), args.conv);
  detail::check_delta_shared(check.in("delta"), args.delta);
  for (int32_t i = 0; i < args.layer_count; ++i) {
    const Checks layer = check.in("layers", i);
    detail::check_conv_layer(layer, args.conv, args.layers[i]);
    detail::check_delta_layer(layer, args.delta, args.layers[i]);
  }
}

}  // namespace frt
