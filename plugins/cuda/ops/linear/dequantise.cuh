// SPDX-License-Identifier: Apache-2.0
// dequantise.cuh - dequantises a weight matrix to f32 or bf16.
#pragma once

#include <cstdint>

#include "../../stream.hpp"
#include "../common/weight.hpp"

namespace frt::cuda {

// Outputs [first, first + count) of `weight`, any format but BF16 and F32, into `plain` (count,
// weight.cols), contiguous, f32 or bf16.  [driver]
void dequantise(Stream& stream, const Weight& weight, int32_t first, int32_t count,
                frt_dtype plain_dtype, void* plain);

}  // namespace frt::cuda
