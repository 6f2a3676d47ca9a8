// SPDX-License-Identifier: Apache-2.0
// dense.cuh - the parts of dense_tiles.cu around its products: what a
// block works on, copies into the rings, weights from scores, rows of y from sums.
#pragma once

#include "../../common/arch.cuh"
#include "../../common/cluster.cuh"
#include "../../common/launch.cuh"
#include "../../common/mbarrier.cuh"
#include "../../common/mma.cuh"
#include "../../common/tensor_map.hpp"
#include "../dense.hpp"
#include "../dense_y.cuh"
#include "wgmma.cuh"

namespace frt::cuda::wgmma_attention {

inline constexpr int kDim = 256;
inline constexpr int kThreads = 384;  // one group fetches
inline constexpr int kQueries = 64;
inline constexpr int kKeys = 64;
inline constexpr int kColumns = 64;  // of a copy: rows of 128 bytes
inline constexpr int kCluster = 4;   // blocks that share keys; each copies its part of the columns
inline constexpr int kTileBytes = kKeys * kDim * 2;
inline constexpr int kStages = 3;           // of a ring, at most
inline constexpr int kLeastQueries = 1024;  // fewer: attention/dense_tiles.cu
inline constexpr std::size_t kSharedBytes = (1 + 2 * kStages) * kTileBytes + 1024;
// Where groups have queries of their own, these take the place of a stage of values.
template <bool kApart>
inline constexpr int kValueStages = kApart ? kStages - 1 : kStages;

struct Maps {
  CUtensorMap q;                           // (columns, heads, rows): boxes of a tile's queries
  CUtensorMap k, v, context_k, context_v;  // (columns, kv heads, rows): boxes of 64 rows
};

#if FRT_ARCH_WGMMA

inline constexpr int kGroup = 128;
inline constexpr int kBlockBytes = kKeys * kColumns * 2;
inline constexpr float kNone = -1e30f;  // below every score

// A ring of tiles of keys or of values; its barriers are in shared memory.
struct Ring {
  uint64_t full[kStages], empty[kStages];
};
struct Barriers {
  uint64_t queries, turns[2], cleared[2];
  Ring keys, values;
};
// How both groups' sums of a row become one: the maximum and total of each, the factor of each.
struct Ends {
  float2 group[2][kQueries];
  float share[2][kQueries];  // one behind the other, as queries of their own are
};

// What one block works on.
struct Work {
  int kv_head, b, group;
  int first, last;  // queries [first, last] of sequence b; none if last < first
  int context, length;
  int context_tiles, tiles;  // of keys: those of the context come first; at least one
  __device__ __forceinline__ Work(const frt_dense_attention_args& a, int queries) {
    kv_head = static_cast<int>(blockIdx.y);
    b = static_cast<int>(blockIdx.z);
    length = a.length ? max(0, min(a.length[b], a.rows)) : a.rows;
    group = a.heads / a.kv_heads;
    first = static_cast<int>(blockIdx.x) * queries;
    last = min(first + queries, length * group) - 1;
    context = 0;
    if (a.context_rows > 0) {
      context = max(0, min(a.context_length[b / a.sequences_per_context], a.context_rows));
    }
    context_tiles = (context + kKeys - 1) / kKeys;
    tiles = max(1, context_tiles + (length + kKeys - 1) / kKeys);
  }
};

__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, int column, int head,
                                         int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(column), "r"(head), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
// To the same place in every block of the cluster.
__device__ __forceinline__ void share_box(uint32_t to, const CUtensorMap& map, int column, int head,
                                          int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(column), "r"(head), "r"(row), "r"(shared_address(barrier)),
      "h"(static_cast<uint16_t>((1 << kCluster) - 1))
      : "memory");
}

// ---- fetching ----------------------------------------------------------------------------------

// A map is 128 bytes of parameters: the first copy would wait for them.
__device__ __forceinline__ void ask_for_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// `tiles` of 64 queries, one behind the other.
__device__ __forceinline__ void fetch_queries(const CUtensorMap& map,
                                              const frt_dense_attention_args& a, uint32_t queries,
                                              int tiles, uint64_t* barrier) {
  const int group = a.heads / a.kv_heads;
  const int each = kQueries / group;  // rows
  int row = static_cast<int>(blockIdx.z) * a.rows + static_cast<int>(blockIdx.x) * tiles * each;
  barrier_expect(barrier, tiles * kTileBytes);
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile, row += each, queries += kTileBytes) {
#pragma unroll
    for (int i = 0; i < kDim / kColumns; ++i) {
      copy_box(queries + i * kBlockBytes, map, i * kColumns, static_cast<int>(blockIdx.y) * group,
               row, barrier);
    }
  }
}

// All tiles of keys, or of values.
template <int kRingStages>
__device__ __forceinline__ void fetch_tiles(const CUtensorMap& own, const CUtensorMap& context,
                                            const frt_dense_attention_args& a, uint32_t tiles,
                                            Ring& ring) {
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  const auto copy = [&](const CUtensorMap& map, int row, int stage) {
    barrier_expect(ring.full + stage, kTileBytes);
#pragma unroll
    for (int i = 0; i < kDim / kColumns / kCluster; ++i) {
      const int block = i * kCluster + rank;
      share_box(tiles + stage * kTileBytes + block * kBlockBytes, map, block * kColumns,
                static_cast<int>(blockIdx.y), row, ring.full + stage);
    }
  };
  // Where there is no context, the first tile is known before the lengths.
  const int row0 = static_cast<int>(blockIdx.z) * a.rows;
  const bool known = a.context_rows == 0;
  if (known) copy(own, row0, 0);
  const Work w(a, kQueries);
#pragma unroll 1
  for (int tile = known ? 1 : 0; tile < w.tiles; ++tile) {
    const int stage = tile % kRingStages;
    if (tile >= kRingStages) barrier_wait(ring.empty + stage, (tile / kRingStages - 1) & 1);
    if (tile >= w.context_tiles) {
      copy(own, row0 + (tile - w.context_tiles) * kKeys, stage);
    } else {
      copy(context, w.b / a.sequences_per_context * a.context_rows + tile * kKeys, stage);
    }
  }
}

// ---- multiplying -------------------------------------------------------------------------------

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The tensor cores go from one group to the other: this one's turns, one warp's lane each arrives.
class Turns {
 public:
  __device__ __forceinline__ Turns(uint64_t (&barriers)[2], int group)
      : own_(barriers + group), other_(barriers + 1 - group) {}
  __device__ __forceinline__ void take() {
    barrier_wait(own_, parity_);
    parity_ ^= 1;
  }
  __device__ __forceinline__ void pass() const {
    if (threadIdx.x % 32 == 0) barrier_arrive(other_);
  }

 private:
  uint64_t *own_, *other_;
  uint32_t parity_ = 0;
};

// The scores of a tile with `valid` keys become weights in base 2, relative to `largest`; where one
// would be above 2^8, the warp takes the new maxima, and true says that what was added up so far is
// to be multiplied by `shrink`.
__device__ __forceinline__ bool soften(float (&s)[kKeys / 8][4], float (&largest)[2],
                                       float (&sum)[2], float (&shrink)[2], float scale,
                                       int valid) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (valid < kKeys) {
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i * 8 + 2 * (lane % 4) + j % 2 >= valid) s[i][j] = -INFINITY;
      }
    }
  }
  constexpr float kRoom = 8;
  float top[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    top[h] = s[0][2 * h];
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
      top[h] = fmaxf(top[h], fmaxf(s[i][2 * h], s[i][2 * h + 1]));
    }
    top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
    top[h] = scale * fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
  }
  const bool more =
      __any_sync(~0u, top[0] > largest[0] + kRoom || top[1] > largest[1] + kRoom) != 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float now = more ? fmaxf(top[h], largest[h]) : largest[h];
    shrink[h] = exp2_of(largest[h] - now);
    largest[h] = now;
    float parts[4] = {};
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
      for (int j = 2 * h; j < 2 * h + 2; ++j) {
        s[i][j] = exp2_of(__fmaf_rn(s[i][j], scale, -now));
        parts[i % 2 * 2 + j % 2] += s[i][j];
      }
    }
    sum[h] = sum[h] * shrink[h] + ((parts[0] + parts[1]) + (parts[2] + parts[3]));
  }
  return more;
}

__device__ __forceinline__ void pack(uint32_t (&p)[kKeys / 16][4], const float (&s)[kKeys / 8][4]) {
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i) {
    p[i][0] = pack_bf16(s[2 * i][0], s[2 * i][1]);
    p[i][1] = pack_bf16(s[2 * i][2], s[2 * i][3]);
    p[i][2] = pack_bf16(s[2 * i + 1][0], s[2 * i + 1][1]);
    p[i][3] = pack_bf16(s[2 * i + 1][2], s[2 * i + 1][3]);
  }
}

// Zeros for the values from `first` on: what lies there may be NaN, and weights of zero would not
// help. By `threads` threads, this one's number is `number`, which meet at `cleared`.
__device__ __forceinline__ void clear_values(uint32_t values, int first, int number, int threads,
                                             uint64_t* cleared, uint32_t& parity) {
  const int each = (kKeys - first) * (kColumns / 8);  // of 16 bytes, of a block of columns
#pragma unroll 1
  for (int i = number; i < each * (kDim / kColumns); i += threads) {
    const uint32_t at = values + i / each * kBlockBytes + first * (kColumns * 2) + i % each * 16;
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
  }
  publish_to_products();
  barrier_arrive(cleared);
  barrier_wait(cleared, parity);
  parity ^= 1;
}

// What follows is executed once: code that is not in a loop takes longer to fetch than to run.

inline constexpr int kSumRow = kDim + 8;  // words: pairs of eight rows have no bank conflicts

// A group's sums to `room`, and by which factors both groups' are to be multiplied.
template <bool kApart>
__device__ __forceinline__ void leave(float* room, const float (&o)[kDim / 8][4], Ends& ends,
                                      int group, float scale) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp * 16 + lane / 4;
  float* at = room + row * kSumRow + 2 * (lane % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h, at += 8 * kSumRow) {
    if (lane % 4 == 0) {
      const float2 own = ends.group[group][row + 8 * h];
      if constexpr (kApart) {
        ends.share[group][row + 8 * h] = __fdividef(scale, own.y);
      } else {
        const float2 other = ends.group[1 - group][row + 8 * h];
        const float most = fmaxf(own.x, other.x), factor = exp2_of(own.x - most);
        ends.share[group][row + 8 * h] =
            __fdividef(scale * factor, factor * own.y + exp2_of(other.x - most) * other.y);
      }
    }
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      *reinterpret_cast<float2*>(at + i * 8) = make_float2(o[i][2 * h], o[i][2 * h + 1]);
    }
  }
}

// Rows of y from what both groups have left; a warp has every eighth row, a lane eight columns.
template <bool kApart>
__device__ __forceinline__ void merge(const frt_dense_attention_args& a, const Work& w,
                                      const float* room, const Ends& ends) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int shift = __ffs(w.group) - 1;
#pragma unroll 2
  for (int n = warp; n < (kApart ? 2 : 1) * kQueries; n += 8) {
    const int query = w.first + n;
    const float* first = room + n * kSumRow + 4 * lane;
    const float factor = ends.share[0][n];
    float4 x[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      x[i] = *reinterpret_cast<const float4*>(first + i * (kDim / 2));
      x[i] = make_float4(factor * x[i].x, factor * x[i].y, factor * x[i].z, factor * x[i].w);
      if constexpr (!kApart) {
        const float other = ends.share[1][n];
        const float4 z =
            *reinterpret_cast<const float4*>(first + kQueries * kSumRow + i * (kDim / 2));
        x[i] = make_float4(x[i].x + other * z.x, x[i].y + other * z.y, x[i].z + other * z.z,
                           x[i].w + other * z.w);
      }
    }
    if (query > w.last) break;
    const int64_t y = static_cast<int64_t>(w.b * a.rows + (query >> shift)) * a.y_stride +
                      (w.kv_head * w.group + (query & (w.group - 1))) * kDim + 4 * lane;
    store_four(a, y, x[0]);
    store_four(a, y + kDim / 2, x[1]);
  }
}

#endif  // FRT_ARCH_WGMMA

}  // namespace frt::cuda::wgmma_attention
