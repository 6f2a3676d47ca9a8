// SPDX-License-Identifier: Apache-2.0
// gemm_tile.cuh - products of many rows with kernels of our own, for what cuBLASLt does not
// take: f32 activations or weights, rows that are not aligned, machines without the library.
#pragma once

#include <frt/backend.h>

#include <cstdint>

#include "../../stream.hpp"

namespace frt::cuda {

// y = x W^T with plain numbers. Any sizes, strides and alignments.
struct TileProduct {
  frt_dtype x_dtype, weight_dtype, y_dtype;  // f32, bf16
  bool accumulate;                           // y +=
  int32_t rows, outputs, inputs;
  const int32_t* row_count;  // (1) device, or NULL: rows beyond are not computed
  const void* x;             // (rows, x_stride)
  int64_t x_stride;          // elements
  const void* weight;        // (outputs, weight_stride)
  int64_t weight_stride;
  void* y;  // (rows, y_stride)
  int64_t y_stride;
};

// bf16 by bf16 on the tensor cores, everything else in f32 arithmetic.  [driver]
void tile_product(Stream& stream, const TileProduct& product);

}  // namespace frt::cuda
