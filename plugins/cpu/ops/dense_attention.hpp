// SPDX-License-Identifier: Apache-2.0
// dense_attention.hpp - one tile of frt.dense_attention/1: some rows of one sequence, for all query
// heads of one key/value head.
#pragma once

#include <frt/ops/dense_attention.h>

#include <algorithm>
#include <cstdint>

#include "attention.hpp"

namespace frt::cpu {

// Valid rows of sequence `b`, and of the context it sees.  [hot]
inline int64_t dense_length(const frt_dense_attention_args& args, int64_t b) noexcept {
  return args.length ? std::clamp(args.length[b], 0, args.rows) : args.rows;
}
inline int64_t context_length(const frt_dense_attention_args& args, int64_t b) noexcept {
  if (args.context_rows == 0) return 0;
  return std::clamp(args.context_length[b / args.sequences_per_context], 0, args.context_rows);
}

// Sizes of working memory, in floats.
struct DenseAttentionLayout {
  explicit DenseAttentionLayout(const frt_dense_attention_args& args) noexcept
      : group(args.heads / args.kv_heads),
        tile_rows(std::max<int64_t>(1, std::min<int64_t>(args.rows, 96 / group))) {
    const int64_t dim = args.head_dim;
    const int64_t tile = tile_rows * group * (2 * dim + kBlock + 3) + 2 * kBlock * dim;
    const int64_t plain = static_cast<int64_t>(args.context_rows) + args.rows + dim;
    work = (std::max(tile, plain) + 15) / 16 * 16;
  }
  int64_t group;      // query heads per key/value head
  int64_t tile_rows;  // rows of one tile
  int64_t work;       // floats of one task
};

// Rows [first, first + tile_rows) of sequence `b` for one key/value head.  [hot]
void attend_dense_tile(const frt_dense_attention_args& args, const DenseAttentionLayout& layout,
                       int64_t b, int64_t kv_head, int64_t first, float* work) noexcept;

}  // namespace frt::cpu
