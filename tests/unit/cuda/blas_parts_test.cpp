// SPDX-License-Identifier: Apache-2.0
// The number of parts of a sum that cuBLASLt adds. Runs without a device.
#include "blas_parts.hpp"

#include <doctest/doctest.h>

using frt::cuda::blas_parts;

TEST_CASE("the number of parts of a sum is the fastest or near it, by measurement on an H200") {
  struct Measured {
    int32_t rows, outputs, inputs, parts;
  };
  for (const Measured& shape : {
           Measured{32, 1024, 5120, 8},
           {32, 2048, 4096, 4},
           {32, 2048, 512, 1},
           {32, 5120, 6144, 1},
           {32, 5120, 17408, 1},
           {32, 8192, 2048, 1},
           {32, 17408, 5120, 1},
           {64, 1024, 5120, 4},
           {64, 2048, 4096, 2},
           {64, 5120, 17408, 1},
           {256, 32, 1024, 1},
           {256, 48, 5120, 8},
           {256, 64, 2048, 4},
           {1024, 48, 5120, 4},
           {1024, 64, 2048, 4},
       }) {
    CAPTURE(shape.rows);
    CAPTURE(shape.outputs);
    CAPTURE(shape.inputs);
    CHECK(blas_parts(shape.rows, shape.outputs, shape.inputs) == shape.parts);
  }
}

TEST_CASE("many rows and outputs are added in one part, however long the sum") {
  CHECK(blas_parts(128, 65, 1 << 30) == 1);
  CHECK(blas_parts(1 << 30, 1 << 30, 1 << 30) == 1);
  CHECK(blas_parts(1 << 30, 1, 1 << 30) == 1);
  CHECK(blas_parts(32, 1, 1 << 30) == 8);
  CHECK(blas_parts(32, 1, 1) == 1);
}
