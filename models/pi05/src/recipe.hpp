// SPDX-License-Identifier: Apache-2.0
// recipe.hpp - what the parts of the computation share: arguments of operators that many layers
// fill in alike. Of recipe.cpp and vision.cpp only.
#pragma once

#include "engine.hpp"

namespace frt::pi05 {

inline constexpr float kEpsilon = 1e-6f;

inline std::int32_t i32(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

inline frt_norm rms(const float* weight) {
  frt_norm norm{};
  norm.kind = FRT_NORM_RMS;
  norm.epsilon = kEpsilon;
  norm.weight = weight;
  return norm;
}

inline frt_norm layer_norm(const float* weight, const float* bias) {
  frt_norm norm = rms(weight);
  norm.kind = FRT_NORM_LAYER;
  norm.bias = bias;
  return norm;
}

inline frt_norm adaptive(const frt_modulation& modulation) {
  frt_norm norm{};
  norm.kind = FRT_NORM_ADAPTIVE;
  norm.epsilon = kEpsilon;
  norm.modulation = modulation;
  return norm;
}

// The norm of a fused operator by itself.
template <class Args>
frt_row_norm_args norm_of(const Args& args, std::int64_t width) {
  frt_row_norm_args norm{};
  norm.x_dtype = args.x_dtype;
  norm.y_dtype = args.dtype;
  norm.rows = args.rows;
  norm.width = i32(width);
  norm.row_count = args.row_count;
  norm.norm = args.norm;
  norm.x = args.x;
  norm.y = args.normed;
  norm.x_stride = norm.y_stride = width;
  return norm;
}

}  // namespace frt::pi05
