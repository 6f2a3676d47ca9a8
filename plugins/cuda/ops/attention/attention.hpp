// SPDX-License-Identifier: Apache-2.0
// attention.hpp - the variants of attention on this backend, and who takes which arguments.
//
//   split    few rows per sequence (decode, verify): the positions are split over blocks
//   tiles    many rows (prefill): tiles of queries against tiles of positions, tensor cores; in a
//            portable form and one for sm_90
//   general  everything else (f32 activations, f32 cache, any head size): simple and slower
//
// Which variant runs depends on types, shapes and `rows` only, never on what is in the batch.
#pragma once

#include <frt/ops/attention.h>

#include "../../stream.hpp"

namespace frt::cuda {

// Sequences of at most this many rows are split over the positions.
inline constexpr int32_t kSplitRows = 16;

// bf16 activations, bf16 or FP8 cache, head size 64, 128 or 256, addresses aligned to 16 bytes.
bool fast_attention(const frt_attention_args& args) noexcept;
// bf16, at most 256 dimensions in eights, of which a multiple of 16 rotates, the same alignment.
bool fast_append(const frt_attention_append_args& args) noexcept;

// As the kernels want it: blocks.stride is bytes from slot to slot where there are no blocks, and
// blocks.rows is 0.
template <class Args>
Args with_row_stride(Args args) {
  if (!args.blocks.table) args.blocks = {nullptr, args.slot_stride, 0, 0};
  return args;
}

// All arguments are checked before and come from with_row_stride().  [driver]
void launch_append(Stream& stream, const frt_attention_append_args& args);
void launch_general(Stream& stream, const frt_attention_args& args);
// fast_attention(args). With `append`, its rows are normed, rotated and stored first, in the same
// launch: fast_append(*append).
void launch_split(Stream& stream, const frt_attention_args& args,
                  const frt_attention_append_args* append);
// fast_attention(args).
void launch_tiles(Stream& stream, const frt_attention_args& args);
// Whether the variant for Hopper supports arguments that fast_attention() takes.
bool hopper_tiles(const Device& device, const frt_attention_args& args) noexcept;
void launch_hopper_tiles(Stream& stream, const frt_attention_args& args);

}  // namespace frt::cuda
