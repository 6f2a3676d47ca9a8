// SPDX-License-Identifier: Apache-2.0
// attention.hpp - the fast forms of append and attention, by task.
//
// Rows of a sequence that has at most kSplitRows of them (decode, verify) are computed split by
// split over the positions (attention_split.cpp), longer ones in tiles of queries
// (attention_tile.cpp). Which form and which splits are used depends on the sequence's own length
// and position only, so a row's value depends on neither the batch nor the number of workers.
#pragma once

#include <frt/ops/attention.h>

#include <algorithm>
#include <cstdint>

namespace frt::cpu {

inline constexpr int32_t kSplitRows = 16;
inline constexpr int64_t kMostSplits = 32;
inline constexpr int64_t kLeastSplit = 256;  // positions
inline constexpr int64_t kBlock = 64;        // positions taken together, from a multiple on
static_assert(FRT_PAGE_ROWS_LEAST % kBlock == 0);

// Positions per split for a row that sees `seen` positions: doubled until the splits are few.
inline int64_t split_length(int64_t seen) noexcept {
  int64_t length = kLeastSplit;
  while (seen > length * kMostSplits) length *= 2;
  return length;
}
inline int64_t split_count(int64_t seen) noexcept {
  const int64_t length = split_length(seen);
  return (seen + length - 1) / length;
}

// Bytes from `keys` (or `values`) to row `position` of a slot, and -1 where the slot has no page.
// The rows that follow up to the next multiple of kBlock lie behind it.  [hot]
inline int64_t row_offset(const frt_page_table& pages, int64_t slot_stride, int64_t slot,
                          int64_t position, int64_t row_bytes) noexcept {
  if (!pages.table) return slot * slot_stride + position * row_bytes;
  const int64_t page = pages.table[slot * pages.slot_pages + position / pages.rows];
  return page < 0 ? -1 : page * pages.stride + position % pages.rows * row_bytes;
}

// The same for a row that is read: it has a page, or what is read does not matter.  [hot]
template <class Args>
int64_t read_offset(const Args& args, int64_t b, int64_t position, int64_t row_bytes) noexcept {
  return std::max<int64_t>(
      0, row_offset(args.pages, args.slot_stride, args.sequences.slot[b], position, row_bytes));
}

// Positions that row `q` of sequence `b` attends to.
inline int64_t seen_positions(const frt_attention_args& args, int64_t b, int64_t q) noexcept {
  return std::clamp<int64_t>(args.sequences.position[b] + q + 1, 1, args.max_rows);
}

// Sizes and places of working memory, in floats. Part (row of the splits, head, split): its largest
// score, its sum, its sum of values.
struct AttentionLayout {
  explicit AttentionLayout(const frt_attention_args& args) noexcept
      : group(args.heads / args.kv_heads),
        split_rows(std::min(args.sequences.rows, kSplitRows)),
        splits(std::min(kMostSplits, (args.max_rows + kLeastSplit - 1) / kLeastSplit)),
        part((args.head_dim + 2 + 15) / 16 * 16),
        tile_rows(std::max<int64_t>(1, std::min<int64_t>(args.sequences.rows, 96 / group))),
        parts(args.sequences.count * split_rows * args.heads * splits * part) {
    const int64_t dim = args.head_dim;
    const int64_t split_queries = split_rows * group;
    const int64_t split_work = split_queries * (dim + kBlock + 1);
    const int64_t tile_queries = tile_rows * group;
    const int64_t tile_work = tile_queries * (2 * dim + kBlock + 3) + 2 * kBlock * dim;
    const int64_t most =
        args.sequences.rows > kSplitRows ? std::max(split_work, tile_work) : split_work;
    work = (most + 15) / 16 * 16;
  }

  float* part_of(float* base, const frt_attention_args& args, int64_t b, int64_t row, int64_t head,
                 int64_t split) const noexcept {
    return base + (((b * split_rows + row) * args.heads + head) * splits + split) * part;
  }

  int64_t group;       // query heads per key/value head
  int64_t split_rows;  // rows per sequence that parts are kept for
  int64_t splits;      // the most there can be
  int64_t part;        // floats of one part: (head_dim) then largest, sum
  int64_t tile_rows;   // rows of one tile
  int64_t parts;       // floats of all parts
  int64_t work;        // floats of one task's working memory
};

// Row `q` of sequence `b`: all heads of q, k, v. `work`: rotary_dim + head_dim floats.  [hot]
void append_row(const frt_attention_append_args& args, int64_t b, int64_t q, float* work) noexcept;

// Split `split` of all rows of sequence `b` for one key/value head, into the parts. Rows with a
// single split are finished at once.  [hot]
void attend_split(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
                  int64_t kv_head, int64_t split, float* parts, float* work) noexcept;

// y of one row and query head from its parts.  [hot]
void finish_splits(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
                   int64_t row, int64_t head, float* parts) noexcept;

// Rows [first, first + tile_rows) of sequence `b` for one key/value head.  [hot]
void attend_tile(const frt_attention_args& args, const AttentionLayout& layout, int64_t b,
                 int64_t kv_head, int64_t first, float* work) noexcept;

}  // namespace frt::cpu
