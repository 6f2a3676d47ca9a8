// SPDX-License-Identifier: Apache-2.0
// tiles.cuh - what the kernels of tiles.cu and attention/sm90/tiles.cu share: a
// tile of queries, the softmax of its scores, its way to memory.
//
// Queries of a tile are rows and heads of one key/value group, numbered row * group + head. A warp
// has sixteen of them in the layout of m16n8 accumulators (common/mma.cuh): lane 4 g + t holds
// columns 8 i + 2 t, + 1 of rows g and g + 8. Tiles of positions begin at multiples of 64 whatever
// the row, and are walked from 0: a row's bits depend on what it sees, not on its place in a tile,
// a chunk or a bucket. What a row does not see has weight 0 and leaves maximum and sums alone.
#pragma once

#include "../common/mma.cuh"
#include "rows.cuh"

namespace frt::cuda {

constexpr int kPositions = 64;  // of a tile of keys and values

struct QueryTile {
  int group, first, last;  // queries [first, last]; none if last < first
  int64_t row0;            // of the sequence
  int head0;
  int stop, diagonal;  // positions the last query sees; those that all see
  int seen[2];         // positions that queries g and g + 8 of this lane's warp see
  float scale;         // of scores, base 2
  int64_t stride;      // bytes from row to row of the cache
  int head_bytes;      // from a row's start to this key/value head
  SlotRows rows;

  // From the tile of position 0, and to the next tile.
  __device__ __forceinline__ void begin(PageWalk<kPositions>& walk) const {
    walk.begin(rows, rows.page(0), 0, stop, stride, head_bytes);
  }
  __device__ __forceinline__ void advance(PageWalk<kPositions>& walk, int position) const {
    walk.advance(rows, position, stop, stride, head_bytes);
  }
};

// Tile `index` of `queries` queries of sequence `b`.
template <int kDim, class KV>
__device__ __forceinline__ QueryTile query_tile(const frt_attention_args& args, int index,
                                                int queries, int kv_head, int b) {
  QueryTile tile{.rows = SlotRows(args.pages, args.sequences.slot[b])};
  tile.group = args.heads / args.kv_heads;
  tile.first = index * queries;
  tile.last = min(tile.first + queries, active_length(args.sequences, b) * tile.group) - 1;
  if (tile.last < tile.first) return tile;
  tile.row0 = static_cast<int64_t>(b) * args.sequences.rows;
  tile.head0 = kv_head * tile.group;
  const int position = args.sequences.position[b];
  const auto seen = [&](int query) {
    return seen_positions(position, min(query, tile.last) / tile.group, args.max_rows);
  };
  tile.stop = seen(tile.last);
  tile.diagonal = seen(tile.first);
  const int own =
      tile.first + static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  tile.seen[0] = seen(own);
  tile.seen[1] = seen(own + 8);
  tile.scale = args.scale * (sizeof(KV) == 1 ? args.k_scale : 1.0f) * 1.4426950408889634f;
  tile.stride = static_cast<int64_t>(args.kv_heads) * kDim * static_cast<int>(sizeof(KV));
  tile.head_bytes = kv_head * kDim * static_cast<int>(sizeof(KV));
  return tile;
}

// The vector of query `n` of the tile; those behind the last are read as that one, and dropped in
// the end.
template <int kDim>
__device__ __forceinline__ const bf16* query_vector(const frt_attention_args& args,
                                                    const QueryTile& tile, int n) {
  const int query = min(tile.first + n, tile.last);
  const int64_t vector =
      (tile.row0 + query / tile.group) * args.heads + tile.head0 + query % tile.group;
  return static_cast<const bf16*>(args.q) + vector * kDim;
}

// A lane's 16-byte units of rows first, first + step ..: rows behind the last visible one are not
// read, some row before them is instead (their weights are 0).
class RowWalk {
 public:
  __device__ __forceinline__ RowWalk(const std::byte* from, int64_t stride, int first, int stop)
      : at_(from + min(first, stop - 1) * stride), left_(stop - first) {}
  __device__ __forceinline__ const std::byte* at() const { return at_; }
  __device__ __forceinline__ void advance(int rows, int64_t step) {
    left_ -= rows;
    if (left_ > 0) at_ += step;
  }

 private:
  const std::byte* at_;
  int left_;  // rows from here to the last visible one
};

// Of queries g and g + 8 of a warp's sixteen.
struct RunningSums {
  float largest[2] = {-INFINITY, -INFINITY};  // in base 2
  float sum[2] = {};                          // of weights, over the positions of this lane
};

// Scores of positions at .. to weights. `shrink`: by what the sums of values so far shrink to the
// new maximum.
__device__ __forceinline__ void soften(float (&s)[kPositions / 8][4], RunningSums& state,
                                       const QueryTile& tile, int at, float (&shrink)[2]) {
  const int t = threadIdx.x % 4;
  if (at + kPositions > tile.diagonal) {
#pragma unroll
    for (int i = 0; i < kPositions / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (at + i * 8 + 2 * t + j % 2 >= tile.seen[j / 2]) s[i][j] = -INFINITY;
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float now = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
    for (int i = 1; i < kPositions / 8; ++i) {
      now = fmaxf(now, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
    }
    now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
    now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
    now = fmaxf(now * tile.scale, state.largest[h]);
    shrink[h] = exp2_fast(state.largest[h] - now);
    state.largest[h] = now;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPositions / 8; ++i) {
#pragma unroll
      for (int j = 2 * h; j < 2 * h + 2; ++j) {
        s[i][j] = exp2_fast(__fmaf_rn(s[i][j], tile.scale, -now));
        sum += s[i][j];
      }
    }
    state.sum[h] = state.sum[h] * shrink[h] + sum;
  }
}

template <int kDim>
__device__ __forceinline__ void rescale(float (&o)[kDim / 8][4], const float (&shrink)[2]) {
#pragma unroll
  for (int i = 0; i < kDim / 8; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) o[i][j] *= shrink[j / 2];
  }
}

// Sixteen queries of each warp to memory, by way of shared memory (f32, 16 x kDim a warp), so that
// gates are read and results written 16 bytes a lane.
template <int kDim>
__device__ __forceinline__ void store_tile(const frt_attention_args& args, const QueryTile& tile,
                                           const float (&o)[kDim / 8][4], const RunningSums& state,
                                           float v_scale, float4* shared) {
  constexpr int kUnits = kDim / 4;  // float4 of a row
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float4* own = shared + warp * 16 * kUnits;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = state.sum[h];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float factor = v_scale / sum;
    const int n = g + 8 * h;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      const int unit = (2 * i + t / 2) ^ (n & 7);
      reinterpret_cast<float2*>(own + n * kUnits + unit)[t % 2] =
          make_float2(o[i][2 * h] * factor, o[i][2 * h + 1] * factor);
    }
  }
  __syncwarp();
  for (int at = lane; at < 16 * kUnits / 2; at += 32) {
    const int n = at / (kUnits / 2), unit = at % (kUnits / 2) * 2;
    const int query = tile.first + warp * 16 + n;
    if (query > tile.last) break;
    const int64_t row = tile.row0 + query / tile.group;
    const int head = tile.head0 + query % tile.group;
    const float4 low = own[n * kUnits + (unit ^ (n & 7))];
    const float4 high = own[n * kUnits + ((unit + 1) ^ (n & 7))];
    float value[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (args.gate) {
      const auto gate =
          load_vector<bf16, 8>(static_cast<const bf16*>(args.gate) + row * args.gate_row_stride +
                               head * args.gate_head_stride + unit * 4);
#pragma unroll
      for (int i = 0; i < 8; ++i) value[i] *= sigmoid(to_float(gate.values[i]));
    }
    store_floats<8>(static_cast<bf16*>(args.y) + (row * args.heads + head) * kDim + unit * 4, value,
                    1.0f);
  }
}

}  // namespace frt::cuda
