// SPDX-License-Identifier: Apache-2.0
// row_norm.hpp - one row through a norm of any kind (frt/ops/row_norm.h), for every operator that
// has one in it. Implemented in row_norm.cpp.
#pragma once

#include <frt/ops/row_norm.h>

#include <cstdint>

namespace frt::cpu {

// The vectors (3, width) of row `row`.  [hot]
inline const float* modulation_of(const frt_modulation& modulation, int64_t row) noexcept {
  const bool clean = modulation.clean_rows && row % modulation.period < *modulation.clean_rows;
  return clean ? modulation.clean : modulation.rows;
}

// y = norm(x) of row `row`; types f32 and bf16; y may be x. `reference`: plain loops
// (Device::reference_numerics()).  [hot]
void norm_row(bool reference, const frt_norm& norm, int64_t row, int64_t width, frt_dtype x_dtype,
              const void* x, frt_dtype y_dtype, void* y) noexcept;

}  // namespace frt::cpu
