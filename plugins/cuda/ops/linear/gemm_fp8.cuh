// SPDX-License-Identifier: Apache-2.0
// gemm_fp8.cuh - products of many rows with activations rounded to FP8 as well (W8A8).
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../blas.hpp"
#include "product.hpp"

namespace frt::cuda {

// The rows of x in e4m3 with their scales, in memory of the caller.
struct Fp8Rows {
  BlasTypes types;  // which scales
  int32_t rows, inputs;
  void* values;  // (rows, inputs)
  float* scale;  // kFp8Block: (inputs / 128, rows); kFp8Channel: (rows)

  static std::size_t value_bytes(int32_t rows, int32_t inputs);
  static std::size_t scale_bytes(BlasTypes types, int32_t rows, int32_t inputs);
};

// Whether the weight's format, the sizes and the alignments allow it; `types` is then set.
bool fp8_gemm_supports(const Product& product, BlasTypes& types);

// Rounds the first `out.rows` rows of bf16 `x`: value / scale, scale = largest magnitude / 448 of
// each row, or of each 128 values of a row.  [driver]
void quantise_rows(Stream& stream, const void* x, int64_t x_stride, const Fp8Rows& out);

// The weight's scales as the library wants them: f32, blocks padded to a multiple of four. `room`
// has fp8_scale_bytes(weight); it is written only where the scales are not already so.  [driver]
std::size_t fp8_scale_bytes(const Weight& weight);
const float* fp8_weight_scales(Stream& stream, const Weight& weight, float* room);

}  // namespace frt::cuda
