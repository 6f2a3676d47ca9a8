// SPDX-License-Identifier: Apache-2.0
// dense.hpp - the kernels of frt.dense_attention/1; arguments are checked already.
#pragma once

#include <frt/ops/dense_attention.h>

#include "../../device.hpp"
#include "../../stream.hpp"

namespace frt::cuda {

using DenseAttentionCall = const frt_dense_attention_args;

// Tiles on mma.sync: bf16, head sizes up to 256 in multiples of 8, everything aligned to 16 bytes.
bool dense_tiles_support(Device& device, DenseAttentionCall& args);
void launch_dense_tiles(Stream& stream, DenseAttentionCall& args);  // [driver]

// The same with heads of 128 or 256, where queries are few and keys many: blocks of a cluster share
// the keys.
bool dense_short_supports(Device& device, DenseAttentionCall& args);
void launch_dense_short(Stream& stream, DenseAttentionCall& args);  // [driver]
// Tiles on wgmma (sm90/dense_tiles.cu): heads of 256 and many queries.
inline constexpr int kDenseWgmmaSharedBytes = 230400;
bool dense_wgmma_supports(Device& device, DenseAttentionCall& args);
void launch_dense_wgmma(Stream& stream, DenseAttentionCall& args);  // [driver]
// All keys of a head at once on wgmma (sm90/dense_whole.cu): heads of 65 to 80, at most 256 rows
// and no context, a key/value head for each head.
inline constexpr int kDenseWholeSharedBytes = 93184;
bool dense_whole_supports(Device& device, DenseAttentionCall& args);
void launch_dense_whole(Stream& stream, DenseAttentionCall& args);  // [driver]

}  // namespace frt::cuda
