// SPDX-License-Identifier: Apache-2.0
// tensor_map.hpp - maps for bulk tensor copies (sm_90 on): boxes of a matrix to shared memory, in
// rows of 128 bytes swizzled by 128 bytes, as the tensor cores read them. What a box has outside
// of the matrix arrives as zeros.
//
// Rows of heads are a tensor of three dimensions, so that zeros, and not the next head, follow a
// head; a box may have several heads of a row, one after the other.
#pragma once

#include <cuda.h>
#include <frt/base.h>

#include <cstdint>

#include "../../device.hpp"

namespace frt::cuda {

struct BoxedMatrix {
  const void* data;  // at a multiple of 16 bytes
  int64_t cols, rows;
  int64_t row_stride;                // bytes, a multiple of 16
  int box_rows;                      // at most 256; a box has 128 bytes of each
  frt_dtype dtype = FRT_DTYPE_BF16;  // or FRT_DTYPE_F8_E4M3
  int64_t matrices = 0;              // a map of three dimensions, if not 0
  int64_t matrix_stride = 0;         // bytes, a multiple of 16
};

// Up to five dimensions of pairs of bytes, the first contiguous and 128 bytes of it in a box.
// Others may overlap, and need not grow.
struct BoxedTensor {
  const void* data;  // at a multiple of 16 bytes
  int rank;
  uint64_t sizes[5];
  uint64_t strides[4];  // bytes, multiples of 16, of the second dimension on
  uint32_t box[5];
};

struct BoxedHeads {     // of bf16
  const void* data;     // at a multiple of 16 bytes
  int64_t head_dim;     // a multiple of 8
  int64_t heads, rows;  // heads of a row are contiguous
  int64_t row_stride;   // bytes, a multiple of 16
  int box_columns;      // 64, or 16: rows of 32 bytes, swizzled by 32 bytes
  int box_heads, box_rows;
};

// Throw frt::Error, naming `what`.  [driver]
CUtensorMap make_tensor_map(Device& device, const BoxedMatrix& matrix, const char* what);
CUtensorMap make_boxed_tensor_map(Device& device, const BoxedTensor& tensor, const char* what);
CUtensorMap make_heads_map(Device& device, const BoxedHeads& heads, const char* what);

}  // namespace frt::cuda
