// SPDX-License-Identifier: Apache-2.0
// split_rows.cuh - of split.cu: which positions a block takes, its queries as
// operands, and the new rows that the fused variant makes: normed, rotated, into the cache and into
// the block's own shared memory.
#pragma once

#include "attention.hpp"
#include "rows.cuh"
#include "split.cuh"

namespace frt::cuda::split {

constexpr int kWarps = 4;
constexpr int kQueries = 8;  // of a block
constexpr int kTile = 16;    // positions a warp takes at a time, from a multiple on
static_assert(FRT_PAGE_ROWS_LEAST % kTile == 0);
constexpr int kLeastSplit = 64;  // positions
constexpr int kSplitStep = 32;

struct SplitArgs {
  frt_attention_args attention;
  frt_attention_append_args append;  // of the fused variant
  int fused;
  int early;       // caches and sequences may be read before pdl_wait(): Stream::early_reads_safe()
  int group;       // heads of a key/value head
  int blocks;      // of one split
  int most;        // splits a row may have
  int room;        // splits there is room for: all that max_rows positions can have
  float* parts;    // (count * rows, heads, room, head_dim): sums of weighted values
  float2* states;  // (count * rows, heads, room): largest score in base 2, sum of weights
};

// Positions per split for a row that sees `seen`.
__host__ __device__ inline int split_length(int seen, int most) {
  const int even = (seen + most - 1) / most;
  const int length = (even + kSplitStep - 1) / kSplitStep * kSplitStep;
  return length < kLeastSplit ? kLeastSplit : length;
}

// The positions [start, stop) a block takes for rows [row, row_end) of its sequence.
struct Range {
  int row, row_end;
  int start, stop;
  int length;  // of a split
};

struct Sequence {
  int length, position, slot;
};

__device__ __forceinline__ Sequence load_sequence(const frt_sequences& sequences, int b) {
  return {min(__ldcg(sequences.length + b), sequences.rows), __ldcg(sequences.position + b),
          __ldcg(sequences.slot + b)};
}

// The first frequency that this lane turns by: a constant.
__device__ __forceinline__ float first_frequency(const SplitArgs& p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return p.fused && lane < p.append.rotary_dim / 2 ? p.append.inv_freq[lane] : 0.0f;
}

// Rows of different split length go one after the other (part 0, part 1); there are at most two
// such lengths among the rows of a block, because lengths change every most * kSplitStep positions.
__device__ __forceinline__ Range range_of(const SplitArgs& p, const Sequence& sequence, int row,
                                          int row_end, int split, int part) {
  const int max_rows = p.attention.max_rows;
  const auto length_of = [&](int r) {
    return split_length(seen_positions(sequence.position, r, max_rows), p.most);
  };
  int middle = row_end;
  while (middle > row && length_of(middle - 1) != length_of(row)) --middle;
  Range range;
  range.row = part == 0 ? row : middle;
  range.row_end = part == 0 ? middle : row_end;
  range.start = range.stop = range.length = 0;
  if (range.row < range.row_end) {
    range.length = length_of(range.row);
    range.start = split * range.length;
    range.stop = min(range.start + range.length,
                     seen_positions(sequence.position, range.row_end - 1, max_rows));
  }
  return range;
}

// Shared memory of a block.
template <int kDim, class KV>
struct alignas(16) Shared {
  static constexpr int kPitch = kDim + 4;  // floats between the sums of two queries
  uint4 queries[kDim];                     // (kDim / 32, lane): fragments
  float2 states[kWarps][kQueries];         // largest score, sum
  union {
    float sums[kWarps][kQueries][kPitch];
    struct {  // before there are sums
      float2 turns[kWarps][kMostTurns];
      alignas(16) std::byte keys[kSplitRows][Shape<kDim, KV>::kBytes];  // new rows
      alignas(16) std::byte values[kSplitRows][Shape<kDim, KV>::kBytes];
    } fresh;
  };
};

// The rotation of the row that a warp has made last, in shared memory.
struct Turns {
  float2* at;
  float frequency;  // of first_frequency()
  int row;

  __device__ __forceinline__ void make(const frt_attention_append_args& args, int position,
                                       int wanted) {
    if (row == wanted) return;
    row = wanted;
    __syncwarp();
    make_turns(args, position + wanted, static_cast<int>(threadIdx.x) % 32, 32, at, &frequency);
    __syncwarp();
  }
};

// The queries of a block as fragments in shared memory.
template <int kDim, class KV>
__device__ __forceinline__ void fill_queries(const SplitArgs& p, int b, int kv_head, int first,
                                             int count, uint4* queries) {
  const frt_attention_args& args = p.attention;
  const int group = args.heads / args.kv_heads;
  constexpr int kUnits = kDim / 8;
  for (int at = threadIdx.x; at < kQueries * kUnits; at += kWarps * 32) {
    const int n = at / kUnits, u = at % kUnits;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (n < count) {
      const int64_t row = static_cast<int64_t>(b) * args.sequences.rows + (first + n) / group;
      const int head = kv_head * group + (first + n) % group;
      value = __ldcg(reinterpret_cast<const uint4*>(static_cast<const bf16*>(args.q) +
                                                    (row * args.heads + head) * kDim) +
                     u);
    }
    queries[query_unit<KV>(n, u)] = value;
  }
}

// The same, normed and rotated here, in two steps. A warp has the queries warp, warp + kWarps.
constexpr int kWarpQueries = kQueries / kWarps;

template <int kDim>
__device__ __forceinline__ void load_queries(const SplitArgs& p, int b, int kv_head, int first,
                                             int count, uint4 (&raw)[kWarpQueries]) {
  const frt_attention_append_args& args = p.append;
  const int group = args.heads / args.kv_heads;
#pragma unroll
  for (int i = 0; i < kWarpQueries; ++i) {
    const int n = threadIdx.x / 32 + i * kWarps, query = first + n;
    const int64_t row = static_cast<int64_t>(b) * args.sequences.rows + query / group;
    raw[i] = n < count ? load_lane(static_cast<const bf16*>(args.q) + row * args.q_row_stride +
                                       (kv_head * group + query % group) * args.q_head_stride,
                                   kDim)
                       : make_uint4(0, 0, 0, 0);
  }
}

// `write`: to q_out, too.
template <int kDim, class KV>
__device__ __forceinline__ void rotate_queries(const SplitArgs& p, int b, int kv_head, int first,
                                               int count, int position, bool write,
                                               const uint4 (&raw)[kWarpQueries],
                                               const LaneNorm& norm, uint4* queries, Turns& turns) {
  const frt_attention_append_args& args = p.append;
  const int group = args.heads / args.kv_heads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kWarpQueries; ++i) {
    const int n = warp + i * kWarps, query = first + n;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (n < count) {
      turns.make(args, position, query / group);
      float x[8];
      dequantise_lane(raw[i], x);
      rotate_lanes(args, norm, turns.at, x);
      value = make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
                         pack_bf16(x[6], x[7]));
      if (write && lane < kDim / 8) {
        const int64_t row = static_cast<int64_t>(b) * args.sequences.rows + query / group;
        reinterpret_cast<uint4*>(static_cast<bf16*>(args.q_out) +
                                 (row * args.heads + kv_head * group + query % group) *
                                     kDim)[lane] = value;
      }
    }
    if (lane < kDim / 8) queries[query_unit<KV>(n, lane)] = value;
  }
}

// The new keys and values in a block's range, shared out to its warps one by one, a key and a value
// of each row. From the last warp down: the first ones have more queries to rotate.
class NewRows {
 public:
  __device__ __forceinline__ NewRows(const SplitArgs& p, const Sequence& sequence, int b,
                                     int kv_head, const Range& range, const LaneNorm& k_norm)
      : args_(p.append),
        k_norm_(k_norm),
        sequence_(sequence),
        kv_head_(kv_head),
        first_(max(0, range.start - sequence.position)),
        end_(min(sequence.length, range.stop - sequence.position)),
        task_(kWarps - 1 - static_cast<int>(threadIdx.x) / 32),
        from_((static_cast<int64_t>(b) * p.append.sequences.rows * p.append.kv_heads + kv_head) *
              p.append.head_dim) {}

  // Asks for the key or value that is this warp's next.
  __device__ __forceinline__ void load() {
    if (row() >= end_) return;
    const auto* tensor = static_cast<const bf16*>(key() ? args_.k : args_.v);
    raw_ = load_lane(tensor + from_ + static_cast<int64_t>(row()) * args_.kv_heads * args_.head_dim,
                     args_.head_dim);
  }
  // To the cache and to shared memory, one after the other. Blocks of other queries of the same
  // split store the same bits at the same places.
  template <int kDim, class KV>
  __device__ __forceinline__ void store(Shared<kDim, KV>& shared, Turns& turns) {
    for (; row() < end_; task_ += kWarps, load()) {
      float x[8];
      dequantise_lane(raw_, x);
      if (key()) {
        turns.make(args_, sequence_.position, row());
        rotate_lanes(args_, k_norm_, turns.at, x);
      }
      const int at = static_cast<int>(threadIdx.x) % 32 * 8;
      if (at >= kDim) continue;
      const float scale = key() ? args_.k_scale : args_.v_scale;
      auto* kept = key() ? shared.fresh.keys[row()] : shared.fresh.values[row()];
      store_floats<8>(reinterpret_cast<KV*>(kept) + at, x, scale);
      const SlotRows rows(args_.pages, sequence_.slot);
      const int position = sequence_.position + row(), page = rows.page(position);
      if (page < 0) continue;
      const int64_t row_bytes = static_cast<int64_t>(args_.kv_heads) * Shape<kDim, KV>::kBytes;
      std::byte* place = static_cast<std::byte*>(key() ? args_.keys : args_.values) +
                         rows.base(page, position, row_bytes) + position * row_bytes;
      store_floats<8>(reinterpret_cast<KV*>(place) + kv_head_ * kDim + at, x, scale);
    }
  }

 private:
  __device__ __forceinline__ int row() const { return first_ + task_ / 2; }
  __device__ __forceinline__ bool key() const { return task_ % 2 == 0; }

  const frt_attention_append_args& args_;
  const LaneNorm& k_norm_;
  const Sequence& sequence_;
  int kv_head_, first_, end_, task_;
  int64_t from_;
  uint4 raw_ = make_uint4(0, 0, 0, 0);
};

}  // namespace frt::cuda::split
