// SPDX-License-Identifier: Apache-2.0
// frt/gated_delta.hpp - what frt.gated_delta_commit/1 is composed of. Header-only.
#pragma once

#include <frt/ops/gated_delta.h>

#include <cstdint>

namespace frt {

// The arguments of causal_conv and gated_delta for one layer of a commit.
inline frt_causal_conv_args commit_conv(const frt_gated_delta_commit_args& args, int32_t layer) {
  frt_causal_conv_args conv = args.conv;
  conv.u = args.layers[layer].u;
  conv.conv_weight = args.layers[layer].conv_weight;
  conv.window = args.layers[layer].window;
  conv.keep_window = 0;
  return conv;
}
inline frt_gated_delta_args commit_delta(const frt_gated_delta_commit_args& args, int32_t layer) {
  frt_gated_delta_args delta = args.delta;
  delta.a = args.layers[layer].a;
  delta.b = args.layers[layer].b;
  delta.decay = args.layers[layer].decay;
  delta.dt_bias = args.layers[layer].dt_bias;
  delta.state = args.layers[layer].state;
  delta.keep_state = 0;
  return delta;
}

}  // namespace frt
