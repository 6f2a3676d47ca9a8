// SPDX-License-Identifier: Apache-2.0
// unpack.cuh - widening a packed weight matrix to plain numbers.
#pragma once

#include <cstdint>

#include "../stream.hpp"
#include "weight.hpp"

namespace frt::cuda {

// Outputs [first, first + count) of `weight`, any format but BF16 and F32, into `plain` (count,
// weight.cols), packed, f32 or bf16.  [driver]
void unpack(Stream& stream, const Weight& weight, int32_t first, int32_t count,
            frt_dtype plain_dtype, void* plain);

}  // namespace frt::cuda
