// SPDX-License-Identifier: Apache-2.0
// dense.hpp - the kernels of frt.dense_attention/1; arguments are checked already.
#pragma once

#include <frt/ops/dense_attention.h>

#include <frt/checks.hpp>

#include "../../device.hpp"
#include "../../stream.hpp"

namespace frt::cuda {

// Throws for what frt.rope/1 does not take.
void check_rope(const Checks& check, const frt_rope_args& args);

// bf16, head sizes up to 256 in multiples of 8, everything aligned to 16 bytes.
bool dense_tiles_support(const frt_dense_attention_args& args);
void launch_dense_tiles(Stream& stream, const frt_dense_attention_args& args);  // [driver]

// The same with heads of 128 or 256, where queries are few and keys many; sm_90 on.
bool dense_short_supports(const Device& device, const frt_dense_attention_args& args);
void launch_dense_short(Stream& stream, const frt_dense_attention_args& args);  // [driver]
// Hopper only: the same for heads of 256 and many queries; y in bf16.
bool dense_hopper_supports(const Device& device, const frt_dense_attention_args& args);
void launch_dense_hopper(Stream& stream, const frt_dense_attention_args& args);  // [driver]
// Hopper only: heads of 65 to 80, at most 256 rows and no context, a key/value head for each head.
bool dense_whole_supports(const Device& device, const frt_dense_attention_args& args);
void launch_dense_whole(Stream& stream, const frt_dense_attention_args& args);  // [driver]

}  // namespace frt::cuda
