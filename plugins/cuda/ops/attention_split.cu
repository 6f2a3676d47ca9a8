// SPDX-License-Identifier: Apache-2.0
// Attention of a few rows per sequence (decode, verify): positions split over blocks.
//
// Floor: every key and value row is read once, 2 * kv_heads * head_dim * bytes per position (27B,
// bf16: 4 KB; 8192 positions in 7.2 us at 4.65 TB/s). At short contexts latency is all there is.
//
// A block takes one split of the positions for one key/value head and eight of its queries (a
// query is a row and a head of the group: one row of six or eight heads fills a block). Its warps
// take 16 positions at a time, each with its own running maximum and sums, and no barrier between
// them: keys and values go from memory straight into the registers of the tensor core fragments,
// 16 bytes a lane, and the next tile is loaded while this one is multiplied, so a warp has 8 to
// 16 KB in flight. That the loaded elements fit the fragments is a matter of naming:
//   scores^T (position, query) = K q^T: lane (g, t) loads 16 bytes of row g; which of the
//     dimensions are called k = 2t, 2t+1 .. is free as long as q says the same (fill_queries).
//   o^T (dim, query) = V^T p^T: lane (g, t) loads 16 bytes of rows 2t, 2t+1, 2t+8, 2t+9; two rows'
//     words are interleaved to pairs of positions; which dimension is called row g is free, too.
//   p^T comes out of the first product by rows and goes into the second by columns: movmatrix.
// FP8 codes are widened to bf16 in registers.
//
// The warps' results are merged in shared memory, the splits' by a second kernel, in a fixed order.
// Where splits begin depends on the positions a row sees alone (split_length), so a row's bits
// depend neither on its batch nor on the rows beside it.
//
// With an append (the fused form) each block norms and rotates its own queries, and the block whose
// split holds a new position makes its key and value, stores them and then reads them back.
#include <algorithm>

#include "attention.hpp"
#include "attention_mma.cuh"
#include "attention_rows.cuh"

namespace frt::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kQueries = 8;      // of a block
constexpr int kTile = 16;        // positions a warp takes at a time
constexpr int kLeastSplit = 64;  // positions
constexpr int kSplitStep = 32;

struct SplitArgs {
  frt_attention_args attention;
  frt_attention_append_args append;  // of the fused form
  int fused;
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

// Element [i] of kWords registers that lie `bytes` apart in memory, 16 (or 8) bytes at a time.
template <int kWords, int kLoad>
__device__ __forceinline__ void load_words(uint32_t (&to)[kWords], const std::byte* from,
                                           int step) {
#pragma unroll
  for (int i = 0; i < kWords / kLoad; ++i) {
    if constexpr (kLoad == 4) {
      const uint4 v = __ldcg(reinterpret_cast<const uint4*>(from + i * step));
      to[4 * i] = v.x;
      to[4 * i + 1] = v.y;
      to[4 * i + 2] = v.z;
      to[4 * i + 3] = v.w;
    } else {
      const uint2 v = __ldcg(reinterpret_cast<const uint2*>(from + i * step));
      to[2 * i] = v.x;
      to[2 * i + 1] = v.y;
    }
  }
}

// What of a cache row a lane holds.
template <int kDim, class KV>
struct Shape {
  static constexpr int kBytes = kDim * static_cast<int>(sizeof(KV));    // of a row
  static constexpr int kKeyWords = kBytes / 16;                         // of a row, four lanes
  static constexpr int kValueWords = kBytes / 32;                       // of a row, eight lanes
  static constexpr int kValueLoad = kValueWords < 4 ? kValueWords : 4;  // words of one load
  static constexpr int kValueElements = kValueLoad * 4 / static_cast<int>(sizeof(KV));
  static constexpr int kPitch = kDim + 4;  // floats of a query's sums in shared memory
  static constexpr int kSumFloats = kWarps * kQueries * kPitch;
};

// The positions [start, stop) a block takes for rows [row, row_end) of its sequence.
struct Range {
  int row, row_end;
  int start, stop;
};

struct Sequence {
  int length, position, slot;
};

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
  range.start = range.stop = 0;
  if (range.row < range.row_end) {
    const int length = length_of(range.row);
    range.start = split * length;
    range.stop =
        min(range.start + length, seen_positions(sequence.position, range.row_end - 1, max_rows));
  }
  return range;
}

// Sums of one block and one range, by warp.
template <int kDim, class KV>
struct Sums {
  float o[kDim / 16][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};  // of queries 2t, 2t+1
  float sum[2] = {};                          // over the positions this lane scores
};

// The index of the 16 bytes of query `n` that hold dimensions 8u .. 8u+7: fragments of one lane lie
// together, those of a warp side by side.
template <class KV>
__device__ __forceinline__ int query_unit(int n, int u) {
  if constexpr (sizeof(KV) == 2) {
    return u / 4 * 32 + n * 4 + u % 4;
  } else {
    return (u / 8 * 2 + u % 2) * 32 + n * 4 + u % 8 / 2;
  }
}

template <int kDim, class KV>
__device__ __forceinline__ void load_keys(uint32_t (&k)[2][Shape<kDim, KV>::kKeyWords],
                                          const std::byte* keys, int64_t stride, int first,
                                          int stop) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // Rows behind the range are read as its last one: their weights are 0.
    const int position = min(first + g + 8 * i, stop - 1);
    load_words<Shape<kDim, KV>::kKeyWords, 4>(k[i], keys + position * stride + t * 16, 64);
  }
}

template <int kDim, class KV>
__device__ __forceinline__ void load_values(uint32_t (&v)[4][Shape<kDim, KV>::kValueWords],
                                            const std::byte* values, int64_t stride, int first,
                                            int stop) {
  using S = Shape<kDim, KV>;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int position = min(first + 2 * t + i % 2 + 8 * (i / 2), stop - 1);
    load_words<S::kValueWords, S::kValueLoad>(
        v[i], values + position * stride + g * (S::kValueLoad * 4), S::kValueLoad * 32);
  }
}

// scores^T = K q^T for 16 positions.
template <int kDim, class KV>
__device__ __forceinline__ void score(float (&s)[4],
                                      const uint32_t (&k)[2][Shape<kDim, KV>::kKeyWords],
                                      const uint4* queries) {
  float c[4][4] = {};  // four chains, so that the products' latencies overlap
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) {
    const uint4 q = queries[i * 32 + threadIdx.x % 32];
    if constexpr (sizeof(KV) == 2) {
      multiply_16x8x16(c[i * 2 % 4], k[0][4 * i], k[1][4 * i], k[0][4 * i + 1], k[1][4 * i + 1],
                       q.x, q.y);
      multiply_16x8x16(c[i * 2 % 4 + 1], k[0][4 * i + 2], k[1][4 * i + 2], k[0][4 * i + 3],
                       k[1][4 * i + 3], q.z, q.w);
    } else {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t low = k[0][2 * i + j], high = k[1][2 * i + j];
        multiply_16x8x16(
            c[i * 2 % 4 + j], widen_e4m3(__byte_perm(low, 0, 0x1000)),
            widen_e4m3(__byte_perm(high, 0, 0x1000)), widen_e4m3(__byte_perm(low, 0, 0x3020)),
            widen_e4m3(__byte_perm(high, 0, 0x3020)), j == 0 ? q.x : q.z, j == 0 ? q.y : q.w);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] = (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]);
}

// o^T += V^T p^T for 16 positions.
template <int kDim, class KV>
__device__ __forceinline__ void add_values(float (&o)[kDim / 16][4],
                                           const uint32_t (&v)[4][Shape<kDim, KV>::kValueWords],
                                           uint32_t p0, uint32_t p1) {
  if constexpr (sizeof(KV) == 2) {
#pragma unroll
    for (int m = 0; m < kDim / 16; ++m) {
      multiply_16x8x16(o[m], __byte_perm(v[0][m], v[1][m], 0x5410),
                       __byte_perm(v[0][m], v[1][m], 0x7632), __byte_perm(v[2][m], v[3][m], 0x5410),
                       __byte_perm(v[2][m], v[3][m], 0x7632), p0, p1);
    }
  } else {
    // Byte j of two rows' words in the upper bytes of the halves.
    const auto pair = [](uint32_t a, uint32_t b, int j) {
      return widen_e4m3(__byte_perm(a, b, static_cast<uint32_t>((4 + j) << 12 | j << 4)));
    };
#pragma unroll
    for (int m = 0; m < kDim / 16; ++m) {
      const int w = m / 2, j = m % 2 * 2;
      multiply_16x8x16(o[m], pair(v[0][w], v[1][w], j), pair(v[0][w], v[1][w], j + 1),
                       pair(v[2][w], v[3][w], j), pair(v[2][w], v[3][w], j + 1), p0, p1);
    }
  }
}

// The queries of a block as fragments in shared memory, already rotated or by rotating them here.
template <int kDim, class KV>
__device__ __forceinline__ void fill_queries(const SplitArgs& p, int b, int kv_head, int first,
                                             int count, bool write, uint4* queries, float* work) {
  const frt_attention_args& args = p.attention;
  const int group = args.heads / args.kv_heads;
  const auto place = [&](int n, int64_t& row, int& head) {
    row = static_cast<int64_t>(b) * args.sequences.rows + (first + n) / group;
    head = kv_head * group + (first + n) % group;
  };
  if (!p.fused) {
    constexpr int kUnits = kDim / 8;
    const int n = threadIdx.x / kUnits, u = threadIdx.x % kUnits;
    if (n >= kQueries) return;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (n < count) {
      int64_t row;
      int head;
      place(n, row, head);
      value = __ldcg(reinterpret_cast<const uint4*>(static_cast<const bf16*>(args.q) +
                                                    (row * args.heads + head) * kDim) +
                     u);
    }
    queries[query_unit<KV>(n, u)] = value;
    return;
  }
  const int n = threadIdx.x / 32, u = threadIdx.x % 32;
  uint4 value = make_uint4(0, 0, 0, 0);
  if (n < count) {
    int64_t row;
    int head;
    place(n, row, head);
    float* x = work + n * kDim;
    rotate_vector<8>(p.append,
                     static_cast<const bf16*>(p.append.q) + row * p.append.q_row_stride +
                         head * p.append.q_head_stride,
                     p.append.q_norm, args.sequences.position[b] + (first + n) / group, x);
    if (u < kDim / 8) {
      value =
          make_uint4(pack_bf16(x[8 * u], x[8 * u + 1]), pack_bf16(x[8 * u + 2], x[8 * u + 3]),
                     pack_bf16(x[8 * u + 4], x[8 * u + 5]), pack_bf16(x[8 * u + 6], x[8 * u + 7]));
      if (write) {
        reinterpret_cast<uint4*>(static_cast<bf16*>(p.append.q_out) +
                                 (row * args.heads + head) * kDim)[u] = value;
      }
    }
    __syncwarp();
  }
  if (u < kDim / 8) queries[query_unit<KV>(n, u)] = value;
}

// Keys and values of the new rows in [start, stop). Blocks of other queries of the same split store
// the same bits at the same places.
__device__ __forceinline__ void append_rows(const SplitArgs& p, const Sequence& sequence, int b,
                                            int kv_head, const Range& range, float* work) {
  const int warp = threadIdx.x / 32;
  int task = 0;
  for (int q = max(0, range.start - sequence.position); q < sequence.length; ++q) {
    const int position = sequence.position + q;
    if (position >= range.stop) break;
    if (position < 0) continue;
    const int64_t row = static_cast<int64_t>(b) * p.append.sequences.rows + q;
    // From the last warp down: the first ones have queries to rotate.
    if (kWarps - 1 - task++ % kWarps == warp) {
      store_key<8, bf16>(p.append, row, sequence.slot, position, kv_head,
                         work + warp * p.append.head_dim);
    }
    if (kWarps - 1 - task++ % kWarps == warp) {
      store_value<8, bf16>(p.append, row, sequence.slot, position, kv_head);
    }
  }
}

// y = o * factor, times sigmoid(gate): four elements.
__device__ __forceinline__ void store_result(const frt_attention_args& args, int64_t row, int head,
                                             int at, float4 o, float factor) {
  float value[4] = {o.x * factor, o.y * factor, o.z * factor, o.w * factor};
  if (args.gate) {
    const auto gate =
        load_vector<bf16, 4>(static_cast<const bf16*>(args.gate) + row * args.gate_row_stride +
                             head * args.gate_head_stride + at);
#pragma unroll
    for (int i = 0; i < 4; ++i) value[i] *= sigmoid(to_float(gate.values[i]));
  }
  store_floats<4>(static_cast<bf16*>(args.y) + (row * args.heads + head) * args.head_dim + at,
                  value, 1.0f);
}

template <int kDim, class KV>
__global__ void __launch_bounds__(kWarps * 32, 1)
    split_kernel(const __grid_constant__ SplitArgs p) {
  using S = Shape<kDim, KV>;
  extern __shared__ uint4 shared[];
  uint4* queries = shared;                                           // (kDim / 32, 32)
  float* sums = reinterpret_cast<float*>(shared + kDim);             // (warp, query, kPitch)
  float2* states = reinterpret_cast<float2*>(sums + S::kSumFloats);  // (warp, query)
  const frt_attention_args& args = p.attention;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int group = args.heads / args.kv_heads;
  const int blocks = (args.sequences.rows * group + kQueries - 1) / kQueries;
  const int first = static_cast<int>(blockIdx.x) % blocks * kQueries;
  const int split = static_cast<int>(blockIdx.x) / blocks;
  const int kv_head = blockIdx.y, b = blockIdx.z;
  pdl_trigger();
  pdl_wait();

  Sequence sequence;
  sequence.length = active_length(args.sequences, b);
  sequence.position = args.sequences.position[b];
  sequence.slot = args.sequences.slot[b];
  const int count = min(kQueries, sequence.length * group - first);
  if (count <= 0) return;
  const int row = first / group, row_end = (first + count - 1) / group + 1;
  int part = 0;
  Range range = range_of(p, sequence, row, row_end, split, 0);
  if (range.start >= range.stop) {
    part = 1;
    range = range_of(p, sequence, row, row_end, split, 1);
    if (range.start >= range.stop) return;
  }

  const int64_t stride = static_cast<int64_t>(args.kv_heads) * S::kBytes;
  const int64_t base = sequence.slot * args.slot_stride + kv_head * S::kBytes;
  const std::byte* keys = static_cast<const std::byte*>(args.keys) + base;
  const std::byte* values = static_cast<const std::byte*>(args.values) + base;
  uint32_t k[2][S::kKeyWords];
  uint32_t v[4][S::kValueWords];
  // What stands in the cache already is under way while the queries are made.
  int next = range.start + warp * kTile;
  const bool early = !p.fused || min(next + kTile, range.stop) <= sequence.position;
  if (early && next < range.stop) {
    load_keys<kDim, KV>(k, keys, stride, next, range.stop);
    load_values<kDim, KV>(v, values, stride, next, range.stop);
  }
  fill_queries<kDim, KV>(p, b, kv_head, first, count, split == 0, queries, sums);
  if (p.fused) {
    append_rows(p, sequence, b, kv_head, range, sums);
    if (part == 0) {
      const Range other = range_of(p, sequence, row, row_end, split, 1);
      append_rows(p, sequence, b, kv_head, other, sums);
    }
  }
  __syncthreads();
  if (!early && next < range.stop) {
    load_keys<kDim, KV>(k, keys, stride, next, range.stop);
    load_values<kDim, KV>(v, values, stride, next, range.stop);
  }

  const float scale = args.scale * (sizeof(KV) == 1 ? args.k_scale : 1.0f) * 1.4426950408889634f;
  while (true) {
    int visible[2];  // positions that queries 2t, 2t+1 see
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int n = 2 * t + i, r = (first + n) / group;
      const bool ours = n < count && r >= range.row && r < range.row_end;
      visible[i] = ours ? seen_positions(sequence.position, r, args.max_rows) : 0;
    }
    Sums<kDim, KV> state;
    while (next < range.stop) {
      const int position = next;
      next += kWarps * kTile;
      float s[4];
      score<kDim, KV>(s, k, queries);
      if (next < range.stop) load_keys<kDim, KV>(k, keys, stride, next, range.stop);
      float shrink[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s[i] = position + g < visible[i] ? s[i] * scale : -INFINITY;
        s[2 + i] = position + g + 8 < visible[i] ? s[2 + i] * scale : -INFINITY;
        float now = fmaxf(s[i], s[2 + i]);
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
          now = fmaxf(now, __shfl_xor_sync(~0u, now, offset));
        }
        now = fmaxf(now, state.largest[i]);
        const float from = now == -INFINITY ? 0.0f : now;
        shrink[i] = exp2_fast(state.largest[i] - from);
        state.largest[i] = now;
        s[i] = exp2_fast(s[i] - from);
        s[2 + i] = exp2_fast(s[2 + i] - from);
        state.sum[i] = state.sum[i] * shrink[i] + (s[i] + s[2 + i]);
      }
#pragma unroll
      for (int m = 0; m < kDim / 16; ++m) {
        state.o[m][0] *= shrink[0];
        state.o[m][1] *= shrink[1];
        state.o[m][2] *= shrink[0];
        state.o[m][3] *= shrink[1];
      }
      add_values<kDim, KV>(state.o, v, transpose_8x8(pack_bf16(s[0], s[1])),
                           transpose_8x8(pack_bf16(s[2], s[3])));
      if (next < range.stop) load_values<kDim, KV>(v, values, stride, next, range.stop);
    }

    // Merge the warps that had a tile.
    const int warps = min(kWarps, (range.stop - range.start + kTile - 1) / kTile);
    if (warp < warps) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
          state.sum[i] += __shfl_xor_sync(~0u, state.sum[i], offset);
        }
        const int n = 2 * t + i;
        if (g == 0) states[warp * kQueries + n] = make_float2(state.largest[i], state.sum[i]);
        float* to = sums + (warp * kQueries + n) * S::kPitch;
        // Tile m of the products holds dimensions 2 (m % half), + 1 of the lane's elements.
        constexpr int kHalf = S::kValueElements / 2;
#pragma unroll
        for (int m = 0; m < kDim / 16; m += 2) {
          const int at = m / kHalf * 8 * S::kValueElements + g * S::kValueElements + m % kHalf * 2;
          *reinterpret_cast<float4*>(to + at) = make_float4(
              state.o[m][i], state.o[m][2 + i], state.o[m + 1][i], state.o[m + 1][2 + i]);
        }
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * (kDim / 4); i += kWarps * 32) {
      const int n = i / (kDim / 4), at = i % (kDim / 4) * 4;
      const int r = (first + n) / group;
      if (r < range.row || r >= range.row_end) continue;
      const int seen = seen_positions(sequence.position, r, args.max_rows);
      if (range.start >= seen) continue;
      float most = -INFINITY;
      for (int w = 0; w < warps; ++w) most = fmaxf(most, states[w * kQueries + n].x);
      float4 o = make_float4(0, 0, 0, 0);
      float sum = 0;
      for (int w = 0; w < warps; ++w) {
        const float2 state_of = states[w * kQueries + n];
        const float weight = exp2_fast(state_of.x - most);
        const float4 one =
            *reinterpret_cast<const float4*>(sums + (w * kQueries + n) * S::kPitch + at);
        sum += state_of.y * weight;
        o.x += one.x * weight;
        o.y += one.y * weight;
        o.z += one.z * weight;
        o.w += one.w * weight;
      }
      const int64_t out = static_cast<int64_t>(b) * args.sequences.rows + r;
      const int head = kv_head * group + (first + n) % group;
      if (seen <= split_length(seen, p.most)) {
        const float v_scale = sizeof(KV) == 1 ? args.v_scale : 1.0f;
        store_result(args, out, head, at, o, v_scale / sum);
      } else {
        const int64_t index = (out * args.heads + head) * p.room + split;
        *reinterpret_cast<float4*>(p.parts + index * kDim + at) = o;
        if (at == 0) p.states[index] = make_float2(most, sum);
      }
    }
    if (part == 1) return;
    part = 1;
    range = range_of(p, sequence, row, row_end, split, 1);
    if (range.start >= range.stop) return;
    __syncthreads();  // the sums are free again
    next = range.start + warp * kTile;
    if (next < range.stop) {
      load_keys<kDim, KV>(k, keys, stride, next, range.stop);
      load_values<kDim, KV>(v, values, stride, next, range.stop);
    }
  }
}

// Merges the splits of a row and head, in their order within each of the kLanes columns' strands,
// and the strands in theirs.
constexpr int kMergeThreads = 256;
constexpr int kMostSplits = 64;

template <int kDim>
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ SplitArgs p) {
  constexpr int kColumns = kDim / 4;
  constexpr int kStrands = kMergeThreads / kColumns;
  constexpr int kAhead = 8;
  __shared__ float weights[kMostSplits];
  __shared__ float4 strands[kMergeThreads];
  const frt_attention_args& args = p.attention;
  const int head = blockIdx.x, row = blockIdx.y, b = blockIdx.z;
  const int lane = threadIdx.x % 32;
  pdl_trigger();
  pdl_wait();
  if (row >= active_length(args.sequences, b)) return;
  const int seen = seen_positions(args.sequences.position[b], row, args.max_rows);
  const int length = split_length(seen, p.most);
  const int splits = (seen + length - 1) / length;
  if (splits < 2) return;
  const int64_t out = static_cast<int64_t>(b) * args.sequences.rows + row;
  const int64_t index = (out * args.heads + head) * p.room;

  const int column = threadIdx.x % kColumns, strand = threadIdx.x / kColumns;
  const float4* parts = reinterpret_cast<const float4*>(p.parts + index * kDim) + column;
  float4 ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int s = strand + i * kStrands;
    ahead[i] = s < splits ? __ldcg(parts + s * kColumns) : make_float4(0, 0, 0, 0);
  }
  float2 state[kMostSplits / 32];
  float most = -INFINITY;
#pragma unroll
  for (int i = 0; i < kMostSplits / 32; ++i) {
    const int s = lane + 32 * i;
    state[i] = s < splits ? __ldcg(p.states + index + s) : make_float2(-INFINITY, 0);
    most = fmaxf(most, state[i].x);
  }
  most = warp_max(most);
  float total = 0;
#pragma unroll
  for (int i = 0; i < kMostSplits / 32; ++i) {
    const float weight = exp2_fast(state[i].x - most);
    if (threadIdx.x < 32) weights[lane + 32 * i] = weight;
    total += weight * state[i].y;
  }
  total = warp_sum(total);
  __syncthreads();

  float4 o = make_float4(0, 0, 0, 0);
  const auto add = [&](const float4& one, float weight) {
    o.x += one.x * weight;
    o.y += one.y * weight;
    o.z += one.z * weight;
    o.w += one.w * weight;
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int s = strand + i * kStrands;
    if (s < splits) add(ahead[i], weights[s]);
  }
  for (int s = strand + kAhead * kStrands; s < splits; s += kStrands) {
    add(__ldcg(parts + s * kColumns), weights[s]);
  }
  strands[threadIdx.x] = o;
  __syncthreads();
  if (strand != 0) return;
#pragma unroll
  for (int i = 1; i < kStrands; ++i) add(strands[i * kColumns + column], 1.0f);
  const float v_scale = args.kv_dtype == FRT_DTYPE_F8_E4M3 ? args.v_scale : 1.0f;
  store_result(args, out, head, column * 4, o, v_scale / total);
}

template <int kDim, class KV>
void launch_shape(Stream& stream, const SplitArgs& p, int blocks) {
  using S = Shape<kDim, KV>;
  Grid grid;
  grid.blocks =
      dim3(static_cast<unsigned>(blocks * p.room), static_cast<unsigned>(p.attention.kv_heads),
           static_cast<unsigned>(p.attention.sequences.count));
  grid.threads = dim3(kWarps * 32);
  grid.shared_bytes =
      kDim * sizeof(uint4) + S::kSumFloats * sizeof(float) + kWarps * kQueries * sizeof(float2);
  launch(stream, grid, split_kernel<kDim, KV>, p);
  if (p.room < 2) return;
  Grid merge;
  merge.blocks = dim3(static_cast<unsigned>(p.attention.heads),
                      static_cast<unsigned>(p.attention.sequences.rows),
                      static_cast<unsigned>(p.attention.sequences.count));
  merge.threads = dim3(kMergeThreads);
  launch(stream, merge, merge_kernel<kDim>, p);
}

template <int kDim>
void launch_dim(Stream& stream, const SplitArgs& p, int blocks) {
  if (p.attention.kv_dtype == FRT_DTYPE_BF16) {
    launch_shape<kDim, bf16>(stream, p, blocks);
  } else {
    launch_shape<kDim, f8e4m3>(stream, p, blocks);
  }
}

}  // namespace

void launch_split(Stream& stream, const frt_attention_args& args,
                  const frt_attention_append_args* append) {
  SplitArgs p{};
  p.attention = args;
  p.fused = append != nullptr;
  if (append) p.append = *append;
  // Enough blocks to fill a large device at one sequence, few enough that merging is cheap.
  p.most = std::clamp(128 / args.kv_heads, 16, kMostSplits);
  p.room = static_cast<int>(std::min<int64_t>(p.most, ceil_div(args.max_rows, kLeastSplit)));
  const int64_t states =
      static_cast<int64_t>(args.sequences.count) * args.sequences.rows * args.heads * p.room;
  if (p.room > 1) {
    const std::size_t parts = static_cast<std::size_t>(states * args.head_dim) * sizeof(float);
    auto* scratch = static_cast<std::byte*>(
        stream.scratch(parts + static_cast<std::size_t>(states) * sizeof(float2)));
    p.parts = reinterpret_cast<float*>(scratch);
    p.states = reinterpret_cast<float2*>(scratch + parts);
  }
  const int group = args.heads / args.kv_heads;
  const int blocks = static_cast<int>(ceil_div(args.sequences.rows * group, kQueries));
  switch (args.head_dim) {
    case 64:
      return launch_dim<64>(stream, p, blocks);
    case 128:
      return launch_dim<128>(stream, p, blocks);
    default:
      return launch_dim<256>(stream, p, blocks);
  }
}

}  // namespace frt::cuda
