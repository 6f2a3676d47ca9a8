// SPDX-License-Identifier: Apache-2.0
// row_norm.cuh - modulations on the device, and the norm of rows as a part of other operators.
#pragma once

#include <frt/ops/row_norm.h>

#include <cstdint>

#include "../../stream.hpp"

namespace frt::cuda {

// The condition of row `row`: (3, width) scale, shift, gate. Reads device memory that other kernels
// write.
__device__ __forceinline__ const float* modulation_of(const frt_modulation& modulation, int row) {
  if (!modulation.clean_rows) return modulation.rows;
  return row % modulation.period < *modulation.clean_rows ? modulation.clean : modulation.rows;
}

// y = norm(x), checked arguments. With y_scale y is f8_e4m3 (frt/ops/dense.h).  [driver]
void normalise_rows(Stream& stream, const frt_row_norm_args& args, float y_scale = 0);

}  // namespace frt::cuda
