// SPDX-License-Identifier: Apache-2.0
// frt/operator_checks.hpp - the checks of operators whose arguments mean the same on every backend.
// A backend that takes less says so afterwards, with FRT_ERR_UNSUPPORTED. Header-only.  [setup]
#pragma once

#include <frt/ops/elementwise.h>
#include <frt/ops/gated_delta.h>
#include <frt/ops/moe.h>
#include <frt/checks.hpp>
#include <frt/gated_delta.hpp>
#include <frt/weights.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace frt {

namespace detail {

// The size of one element as far as alignment goes.
inline int64_t whole_bytes(frt_dtype dtype) {
  return std::max<int64_t>(1, dtype_bits(dtype) / 8);
}

// Scales or zero points; NONE: the format has none.
inline void check_side(const Checks& check, const std::string& argument, frt_dtype dtype,
                       const void* data) {
  if (dtype == FRT_DTYPE_NONE) return;
  check.pointer(argument.c_str(), data);
  check.aligned(argument, data, whole_bytes(dtype));
}

inline void check_stride(const Checks& check, const std::string& argument, frt_dtype dtype,
                         int64_t stride) {
  if (dtype == FRT_DTYPE_NONE) return;
  check.positive(argument.c_str(), stride);
  check.require(stride % whole_bytes(dtype) == 0, argument.c_str(),
                "is not a multiple of the element's size");
}

}  // namespace detail

// A complete matrix in a format that one of the kernel's patterns fits.
inline void check_weight(const Checks& check, const char* argument, const frt_weight& weight,
                         std::span<const frt_weight_format> patterns) {
  const std::string name = argument;
  if (!weight_taken(patterns, weight.format)) {
    check.fail(name + ".format", "is " + weight_text(weight.format) +
                                     ", which this kernel does not take; convert it at load");
  }
  check.positive((name + ".rows").c_str(), weight.rows);
  check.positive((name + ".cols").c_str(), weight.cols);
  check.pointer((name + ".data").c_str(), weight.data);
  check.aligned(name + ".data", weight.data, 16);
  detail::check_side(check, name + ".scale", weight.format.scale, weight.scale);
  detail::check_side(check, name + ".zero", weight.format.zero, weight.zero);
  check.require(weight.format != kWeightNvfp4 || weight.cols % 16 == 0, (name + ".cols").c_str(),
                "is " + std::to_string(weight.cols) + ", expected a multiple of 16 for NVFP4");
}

// The same of every expert.
inline void check_expert_weight(const Checks& check, const char* argument,
                                const frt_expert_weight& weight,
                                std::span<const frt_weight_format> patterns) {
  const std::string name = argument;
  check_weight(check, (name + ".expert").c_str(), weight.expert, patterns);
  const frt_weight_format& format = weight.expert.format;
  check.at_least((name + ".data_stride").c_str(), weight.data_stride,
                 weight_bytes(format, weight.expert.rows, weight.expert.cols).data);
  detail::check_stride(check, name + ".data_stride", format.data, weight.data_stride);
  detail::check_stride(check, name + ".scale_stride", format.scale, weight.scale_stride);
  detail::check_stride(check, name + ".zero_stride", format.zero, weight.zero_stride);
}

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
  check.range("keep_window", args.keep_window, 0, 1);
  check.require(args.keep_window == 0 || args.sequences.rows <= FRT_DELTA_KEEP_ROWS,
                "sequences.rows", "is more than the 16 that a kept window allows");
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
  check.range("keep_state", args.keep_state, 0, 1);
  check.require(args.keep_state == 0 || args.sequences.rows <= FRT_DELTA_KEEP_ROWS,
                "sequences.rows", "is more than the 16 that a kept state allows");
}

inline void check_gated_delta_commit(const Checks& check, const frt_gated_delta_commit_args& args) {
  check.positive("layer_count", args.layer_count);
  check.pointer("layers", args.layers);
  check.require(args.conv.dtype == args.delta.dtype, "conv.dtype", "is not delta.dtype");
  check.require(args.conv.c == args.delta.c, "delta.c", "is not conv.c");
  check.require(
      args.conv.channels == 2LL * args.delta.key_heads * args.delta.key_dim +
                                static_cast<int64_t>(args.delta.value_heads) * args.delta.value_dim,
      "conv.channels", "is not 2 * key_heads * key_dim + value_heads * value_dim");
  check.require(args.delta.sequences.rows <= FRT_DELTA_KEEP_ROWS, "sequences.rows",
                "is more than the 16 that a commit takes");
  for (int32_t layer = 0; layer < args.layer_count; ++layer) {
    check_causal_conv(check, commit_conv(args, layer));
    check_gated_delta(check, commit_delta(args, layer));
  }
}

}  // namespace frt
