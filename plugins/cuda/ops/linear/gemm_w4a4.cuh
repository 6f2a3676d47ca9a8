// SPDX-License-Identifier: Apache-2.0
// gemm_w4a4.cuh - products of many rows with NVFP4 weights and activations rounded to NVFP4 as well
// (W4A4).
#pragma once

#include <cstddef>
#include <cstdint>

#include "../common/pieces.hpp"
#include "fp4_tile.hpp"
#include "product.hpp"

namespace frt::cuda {

// The rows of x in NVFP4 (common/fp4_numbers.hpp), in memory of the caller.
struct Fp4Rows {
  int32_t rows, inputs;
  const int32_t* row_count;  // (1) device, or NULL: rows beyond are left out
  uint8_t* values;           // (rows, inputs / 2), the even ones low; aligned to 16
  uint8_t* scale;            // (rows, scale_stride); aligned to 16
  float* row_scale;          // (rows)

  // A row's scales, ended by up to 15 bytes that are not read.
  __host__ __device__ int64_t scale_stride() const { return (inputs / 16 + 15) / 16 * 16; }
  // Takes the memory for `rows` of `inputs`.
  void take(Cutter& cutter);
};

// Whether the weight's format, the sizes and the alignments allow it; y has any alignment.
bool w4a4_gemm_supports(const Product& product);

// Rounds f32 or bf16 `x`, whose rows are aligned to 16 bytes.  [driver]
void quantise_fp4_rows(Stream& stream, frt_dtype x_dtype, const void* x, int64_t x_stride,
                       const Fp4Rows& out);

// y of `product` from its x as it was rounded. The scales of NVFP4 weights have no sign.  [driver]
void w4a4_gemm(Stream& stream, const Product& product, const Fp4Rows& x);

}  // namespace frt::cuda
