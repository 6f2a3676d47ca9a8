// SPDX-License-Identifier: Apache-2.0
// dense_attention.hpp - the kernels of frt.dense_attention/1; arguments are checked already.
#pragma once

#include <frt/ops/dense_attention.h>

#include "../stream.hpp"

namespace frt::cuda {

// bf16, head sizes up to 256 in multiples of 8, everything aligned to 16 bytes.
bool dense_tiles_take(const frt_dense_attention_args& args);
void launch_dense_tiles(Stream& stream, const frt_dense_attention_args& args);  // [driver]

}  // namespace frt::cuda
