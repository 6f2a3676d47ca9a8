// SPDX-License-Identifier: Apache-2.0
// attention.hpp - the variants of attention on this backend, and which arguments each supports.
// attention.cpp has the tables. What runs depends on types, shapes and `rows` only, never on what
// is in the batch.
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

// What the variants of an append, of attention and of both are given.
using AppendCall = const frt_attention_append_args;
using AttentionCall = const frt_attention_args;
struct AttentionBlockCall {
  frt_attention_append_args append;
  frt_attention_args attention;
};

// As the kernels want it: pages.stride is bytes from slot to slot where there are no pages, and
// pages.rows is 0.
template <class Args>
Args with_row_stride(Args args) {
  if (!args.pages.table) args.pages = {nullptr, args.slot_stride, 0, 0};
  return args;
}

// All arguments are checked before and come from with_row_stride().  [driver]
void launch_append_rows(Stream& stream, AppendCall& args);  // fast_append(args)
void launch_append_general(Stream& stream, AppendCall& args);
void launch_general(Stream& stream, AttentionCall& args);
// fast_attention(args). With `append`, its rows are normed, rotated and stored first, in the same
// launch: fast_append(*append).
void launch_split(Stream& stream, const frt_attention_args& args,
                  const frt_attention_append_args* append);
// fast_attention(args).
void launch_tiles(Stream& stream, AttentionCall& args);
// Tiles on wgmma (sm90/tiles.cu): fast_attention(args), heads of this size.
inline constexpr int32_t kWgmmaTilesDim = 256;
inline constexpr int kWgmmaTilesSharedBytes = 230400;
void launch_wgmma_tiles(Stream& stream, AttentionCall& args);

}  // namespace frt::cuda
