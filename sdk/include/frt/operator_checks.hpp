// SPDX-License-Identifier: Apache-2.0
// frt/operator_checks.hpp - the checks of operators whose arguments mean the same on every backend.
// A backend that takes less says so afterwards, with FRT_ERR_UNSUPPORTED. Header-only.  [setup]
#pragma once

#include <frt/ops/elementwise.h>
#include <frt/ops/gated_delta.h>
#include <frt/checks.hpp>

namespace frt {

inline void check_binary(const Checks& check, const frt_binary_args& args) {
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.positive("width", args.width);
  check.pointer("a", args.a);
  check.pointer("b", args.b);
  check.pointer("y", args.y);
  check.at_least("a_stride", args.a_stride, args.width);
  check.at_least("b_stride", args.b_stride, args.width);
  check.at_least("y_stride", args.y_stride, args.width);
}

inline void check_causal_conv(const Checks& check, const frt_causal_conv_args& args) {
  check.dtype("dtype", args.dtype);
  check.sequences(args.sequences);
  check.positive("channels", args.channels);
  check.range("width", args.width, 2, 8);
  check.pointer("u", args.u);
  check.pointer("conv_weight", args.conv_weight);
  check.pointer("window", args.window);
  check.pointer("c", args.c);
  check.require(args.c != args.u, "c", "is u; the convolution cannot work in place");
}

inline void check_gated_delta(const Checks& check, const frt_gated_delta_args& args) {
  check.dtype("dtype", args.dtype);
  check.sequences(args.sequences);
  check.positive("key_heads", args.key_heads);
  check.positive("value_heads", args.value_heads);
  check.require(args.value_heads % args.key_heads == 0, "value_heads",
                "is not a multiple of key_heads");
  check.positive("key_dim", args.key_dim);
  check.positive("value_dim", args.value_dim);
  check.positive("chunk", args.chunk);
  check.pointer("c", args.c);
  check.pointer("a", args.a);
  check.pointer("b", args.b);
  check.pointer("decay", args.decay);
  check.pointer("dt_bias", args.dt_bias);
  check.pointer("state", args.state);
  check.pointer("o", args.o);
}

}  // namespace frt
