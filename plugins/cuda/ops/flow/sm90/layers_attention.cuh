// SPDX-License-Identifier: Apache-2.0
// layers_attention.cuh - the attention of the persistent kernel of an expert's layers
// (sm_90a): some dozens of rows of queries, their own keys and values, and a context of 600 to 1000
// more.
//
// A cluster takes tiles of kQueries queries of one key/value head (layers_tiles.cuh); its
// eight blocks divide the keys, the context's and the rows' own ones alike. Both products are
// turned round, so that what each block has alone is the first factor and lies in registers:
//   scores (keys x queries) = K Q^T        a warp has 16 keys of up to 128
//   sums (columns x queries) = V^T P^T     a warp has 16 columns of each 64 of its warpgroup's half
// Keys of the context go from memory into registers and values into shared memory before the
// barrier behind which queries exist; behind it there are the queries, which lie in the order in
// which the tensor cores multiply what a lane loads of a key, and a few rows of keys and values.
// The blocks' sums are put together in layers_merge.cuh. Before a cluster's second tile each
// of its blocks tells the others that it has no more need of what came for the first.
//
// Every instruction here runs once a layer: what counts is how many there are in a row, and how
// often a warp waits.
//
// Floor: 50 rows, 8 heads, 642 keys: 0.26 GFLOP, 0.3 us on 104 SMs; latency.
#pragma once

#include <cfloat>

#include "../../attention/sm90/wgmma.cuh"
#include "../../common/arch.cuh"
#include "../../common/mma.cuh"
#include "layers_merge.cuh"
#include "layers_parts.cuh"
#include "layers_tiles.cuh"

namespace frt::cuda {

#if FRT_ARCH_WGMMA_OR_HOST

template <int kDim>
class FlowAttentionPhase {
  using Merge = FlowMerge<kDim>;
  static constexpr int kQueries = kFlowQueries;

 public:
  static constexpr int kKeys = 128;  // of a block at once
  // Shared memory: queries, then weights; values and a row of zeros; sums to merge; the rest.
  static constexpr uint32_t kStride = (kDim + 8) * 2;
  static constexpr uint32_t kValues = kQueries * kDim * 2;
  static constexpr uint32_t kSums = kValues + (kKeys + 1) * kStride;
  static constexpr uint32_t kTops = kSums + Merge::kSumBytes;
  static constexpr uint32_t kShares = kTops + 8 * kQueries * 4;
  static constexpr uint32_t kBytes = kShares + Merge::kShareBytes;
  static_assert(kSums % 16 == 0 && kShares % 16 == 0);

  // One thread, once for all layers, which share all but pointers.
  static __device__ __forceinline__ void start(const FlowAttention& a, const FlowPlace& place,
                                               FlowAttentionShared& shared) {
    const FlowWorks works = works_of(a, place, kQueries);
    shared.tile.first = shared.tile.last = 0;
    if (place.cluster < works.count) {
      shared.tile = tile_of(a, place, works, place.cluster, kQueries, kDim);
    }
  }

  // All threads that compute, once they have arrived at the grid's barrier behind which queries,
  // keys and values are there: waits for it, having asked for what does not depend on the rows. The
  // area belongs to this phase.
  template <class Sync>
  __device__ __forceinline__ void run(const FlowAttention& a, const FlowPlace& place, uint32_t area,
                                      FlowAttentionShared& shared, uint32_t& parity, Sync& sync) {
    tile_ = shared.tile;
    if (tile_.first >= tile_.last) return sync.wait();
    begin(a, place, area, shared.barriers);
    sync.wait();
    uint64_t* barriers = shared.barriers;
    int work = place.cluster;
    bool told = false;
    while (true) {
      scores_and_sums(a, place, told, area, barriers, parity, sync);
      const bool more = tile_.first + kQueries < tile_.last;  // with these keys
      if (!more && tile_.lone) break;
      const FlowWorks works = works_of(a, place, kQueries);
      if (!more && work + place.clusters >= works.count) break;
      next(place, barriers, sync);
      told = true;
      if (more) {
        tile_.first += kQueries;
      } else {
        work += place.clusters;
        tile_ = tile_of(a, place, works, work, kQueries, kDim);
      }
      begin(a, place, area, barriers);
      sync.block();
    }
  }

 private:
  static constexpr int kSteps = kDim / 16;      // of the scores' inner dimension
  static constexpr int kPairs = Merge::kPairs;  // pairs of queries of a lane
  static constexpr int kTiles = Merge::kTiles;  // 64 columns of values, of a warpgroup
  static constexpr int kFewKeys = 96;           // two images and a prompt
  static constexpr int kValueSteps = kKeys / 16;
  static constexpr int kPieces = kDim / 8;  // of 16 bytes, of a row

  uint4 k_[kSteps / 2][2];  // 8 columns of each 32 of this lane's two keys
  // What this thread asks for behind the barrier: a query, and where the key of its lane is.
  const bf16* q_;
  int64_t own_;
  FlowAttentionTile tile_;

  // Another tile: nobody of the block needs the one before, and the cluster is told.
  template <class Sync>
  static __device__ __forceinline__ void next(const FlowPlace& place, uint64_t* barriers,
                                              Sync& sync) {
    publish_to_products();
    sync.block();
    if (place.tid < kFlowCluster) {
      asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                       address_of(shared_address(barriers), place.tid))
                   : "memory");
    }
  }

  // Keys and values of the context, of the block's keys from the at-th on: keys into registers.
  // Where there is no key, a lane has any row: its scores count for nothing. No branch and no
  // selection, which would wait for what is on its way.
  __device__ __forceinline__ void load_context_keys(const FlowAttention& a, const FlowPlace& place,
                                                    int at) {
    const int lane = place.tid % 32, last = max(0, tile_.all - tile_.own - 1);
    const int n = at - tile_.own + place.tid / 32 * 16 + lane / 4;
    const bf16* from = (a.context_rows > 0 ? a.context_k : a.k) + tile_.context_at + lane % 4 * 8;
    const bf16* first = from + max(0, min(n, last)) * a.context_stride;
    const bf16* second = from + max(0, min(n + 8, last)) * a.context_stride;
#pragma unroll
    for (int i = 0; i < kSteps / 2; ++i) {
      k_[i][0] = load_stream(first + i * 32);
      k_[i][1] = load_stream(second + i * 32);
    }
  }
  __device__ __forceinline__ void copy_context_values(const FlowAttention& a,
                                                      const FlowPlace& place, int at,
                                                      uint32_t area) {
    const int skipped = max(0, tile_.own - at), row = skipped + place.tid / kPieces;
    copy_values(a.context_v + tile_.context_at + (at + row - tile_.own) * a.context_stride,
                a.context_stride, place, row, min(tile_.all - at, kKeys), area);
  }
  // This thread's pieces of rows of values: of each so many, from row `row` before `last`.
  static __device__ __forceinline__ void copy_values(const bf16* from, int64_t stride,
                                                     const FlowPlace& place, int row, int last,
                                                     uint32_t area) {
    constexpr int kRows = kFlowThreads / kPieces;
    from += place.tid % kPieces * 8;
    uint32_t to = area + kValues + row * kStride + place.tid % kPieces * 16;
#pragma unroll 1
    for (; row < last; row += kRows, to += kRows * kStride, from += kRows * stride) {
      copy_async(to, from);
    }
  }

  // A tile.
  __device__ __forceinline__ void begin(const FlowAttention& a, const FlowPlace& place,
                                        uint32_t area, uint64_t* barriers) {
    // The same in all lanes, which the compiler must see: products depend on it.
    tile_.all = __shfl_sync(~0u, tile_.all, 0);
    copy_context_values(a, place, 0, area);
    load_context_keys(a, place, 0);
    copies_commit();
    const int group = a.heads / a.kv_heads,
              query = min(tile_.first + place.tid / 8, tile_.last - 1);
    q_ = a.q + (tile_.sequence * a.rows + query / group) * a.q_stride +
         static_cast<int64_t>(tile_.head * group + query % group) * kDim + place.tid % 8 * 8;
    own_ = tile_.own_at + place.tid % 32 / 4 * a.kv_stride + place.tid % 4 * 8;
    if (place.tid == 0) Merge::expect(barriers);
    if (place.tid < kDim / 8) {
      store_words(area + kValues + kKeys * kStride + place.tid * 16, make_uint4(0, 0, 0, 0));
    }
    copies_wait<0>();
  }

  __device__ __forceinline__ void copy_queries(const FlowAttention& a, const FlowPlace& place,
                                               uint32_t area) {
    const int n = place.tid / 8;
    const uint32_t to = area + n * 128 + (place.tid % 8 ^ n % 8) * 16;
#pragma unroll
    for (int i = 0; i < kDim / 64; ++i) copy_async(to + i * (kQueries * 128), q_ + i * 64);
  }
  // Values and keys of the sequence itself: of the first sixteen keys of the block.
  __device__ __forceinline__ void copy_own_values(const FlowAttention& a, const FlowPlace& place,
                                                  uint32_t area) {
    const int row = place.tid / kPieces;
    copy_values(a.v + tile_.own_at + row * a.kv_stride, a.kv_stride, place, row, tile_.own, area);
  }
  __device__ __forceinline__ void load_own_keys(const FlowAttention& a, const FlowPlace& place) {
    // No branch, behind which all would wait.
    const int key = place.tid < 32 ? place.tid / 4 : kKeys;
    const bf16 *first = a.k + own_, *second = first + 8 * a.kv_stride;
#pragma unroll
    for (int i = 0; i < kSteps / 2; i += 4) {
      load_fresh(k_[i][0], k_[i + 1][0], k_[i + 2][0], k_[i + 3][0], first + i * 32,
                 key < tile_.own);
      load_fresh(k_[i][1], k_[i + 1][1], k_[i + 2][1], k_[i + 3][1], second + i * 32,
                 key + 8 < tile_.own);
    }
  }

  // This warp's columns of the values of keys 16 kFirst to 16 kLast, zeros from `keys` on.
  template <int kFirst, int kLast>
  static __device__ __forceinline__ void load_values(uint32_t (&v)[kValueSteps][kTiles][4],
                                                     const FlowPlace& place, int keys,
                                                     uint32_t area) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    const int column = (warp / 4 * kTiles * 4 + warp % 4) * 16 + lane / 8 % 2 * 8;
#pragma unroll
    for (int i = kFirst; i < kLast; ++i) {
      const int key = i * 16 + lane / 16 * 8 + lane % 8;
      const uint32_t from = area + kValues + (key < keys ? key : kKeys) * kStride + column * 2;
#pragma unroll
      for (int d = 0; d < kTiles; ++d) load_matrices_transposed(v[i][d], from + d * 128);
    }
  }

  template <int kCount>
  static __device__ __forceinline__ void multiply_values(
      float (&o)[kTiles][kPairs][4], const uint32_t (&v)[kValueSteps][kTiles][4], uint32_t area) {
    const uint64_t columns = matrix_descriptor(area, 16);
    products_fence();
#pragma unroll
    for (int d = 0; d < kTiles; ++d) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        multiply_registers(o[d], v[i][d], columns + (i / 4 * (kQueries * 128) + i % 4 * 32) / 16,
                           true);
      }
      products_commit();
    }
  }

  // Of query j of those that a lane has scores of, from the lane that knows it.
  static __device__ __forceinline__ float known(float value, int j) {
    return __shfl_sync(~0u, value, 4 * j + static_cast<int>(threadIdx.x) % 4);
  }

  // One tile. `told`: other blocks may still need the tile before.
  template <class Sync>
  __device__ __forceinline__ void scores_and_sums(const FlowAttention& a, const FlowPlace& place,
                                                  bool told, uint32_t area, uint64_t* barriers,
                                                  uint32_t& parity, Sync& sync) {
    copy_queries(a, place, area);
    load_own_keys(a, place);
    copy_own_values(a, place, area);
    copies_commit();
    const int lane = place.tid % 32, warp = __shfl_sync(~0u, place.tid / 32, 0), group = warp / 4;
    const float scale = a.scale * 1.4426950408889634f;  // scores in base 2
    const uint32_t tops = area + kTops + lane * 4;
    float o[kTiles][kPairs][4] = {};
    // Of the query that this lane is asked for; the total of this warp's keys.
    float largest = -INFINITY, total = 0;

    int at = 0;
    while (true) {
      const int keys = min(tile_.all - at, kKeys);
      uint32_t v[kValueSteps][kTiles][4];
      load_values<1, kValueSteps>(v, place, keys, area);  // while queries come
      copies_wait<0>();
      publish_to_products();
      sync.block();

      float s[kPairs][4];
      const uint64_t columns = matrix_descriptor(area, 16);
      products_fence();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const uint4 &low = k_[i / 2][0], &high = k_[i / 2][1];
        const uint32_t k[4] = {i % 2 == 0 ? low.x : low.z, i % 2 == 0 ? high.x : high.z,
                               i % 2 == 0 ? low.y : low.w, i % 2 == 0 ? high.y : high.w};
        multiply_registers(s, k, columns + (i / 4 * (kQueries * 128) + i % 4 * 32) / 16, i > 0);
      }
      products_commit();
      load_values<0, 1>(v, place, keys, area);
      products_wait<0>();
      pin(s);

      if (warp * 16 + 16 > keys) {
        const int key = warp * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          if (key >= keys) s[i][0] = s[i][1] = -INFINITY;
          if (key + 8 >= keys) s[i][2] = s[i][3] = -INFINITY;
        }
      }
      float top[2 * kPairs];
#pragma unroll
      for (int j = 0; j < 2 * kPairs; ++j) top[j] = fmaxf(s[j / 2][j % 2], s[j / 2][2 + j % 2]);
      reduce_lanes<FlowMaximum>(top);
      store_word(tops + warp * 128, __float_as_uint(top[0]));
      sync.block();
      float now = load_float(tops);
#pragma unroll
      for (int w = 1; w < 8; ++w) now = fmaxf(now, load_float(tops + w * 128));
      now = fmaxf(largest, keys > 0 ? now * scale : -INFINITY);
      const float shrink = at > 0 ? exp2_fast(largest - now) : 0.0f;
      largest = now;
      const float finite = fmaxf(now, -FLT_MAX);  // there may be no keys
      if (at > 0) {
#pragma unroll
        for (int j = 0; j < 2 * kPairs; ++j) {
          const float factor = known(shrink, j);
#pragma unroll
          for (int d = 0; d < kTiles; ++d) {
            o[d][j / 2][j % 2] *= factor;
            o[d][j / 2][2 + j % 2] *= factor;
          }
        }
      }
      float sums[2 * kPairs];
#pragma unroll
      for (int j = 0; j < 2 * kPairs; ++j) {
        const float base = known(finite, j);
        float &low = s[j / 2][j % 2], &high = s[j / 2][2 + j % 2];
        low = exp2_fast(__fmaf_rn(low, scale, -base));
        high = exp2_fast(__fmaf_rn(high, scale, -base));
        sums[j] = low + high;
      }
      const uint32_t to = area + group * (kQueries * 128) + (lane / 16 * 8 + lane % 8) * 128 +
                          ((warp % 4 * 2 + lane / 8 % 2) ^ lane % 8) * 16;
#pragma unroll
      for (int i = 0; i < kPairs; i += 2) {
        store_matrices_transposed(to + i * 1024, pack_bf16(s[i][0], s[i][1]),
                                  pack_bf16(s[i][2], s[i][3]), pack_bf16(s[i + 1][0], s[i + 1][1]),
                                  pack_bf16(s[i + 1][2], s[i + 1][3]));
      }
      publish_to_products();
      sync.block();

      if (keys <= kFewKeys) {
        multiply_values<kFewKeys / 16>(o, v, area);
      } else {
        multiply_values<kValueSteps>(o, v, area);
      }
      reduce_lanes<FlowSum>(sums);
      total = total * shrink + sums[0];
      at += kKeys;
      if (at >= tile_.all) break;
      products_wait<0>();
#pragma unroll
      for (int d = 0; d < kTiles; ++d) pin(o[d]);
      publish_to_products();
      sync.block();  // nobody needs weights and values any more
      copy_context_values(a, place, at, area);
      copy_queries(a, place, area);
      copies_commit();
      load_context_keys(a, place, at);
      copies_wait<0>();
      sync.block();
    }

    if (told) {
      barrier_wait(barriers, parity >> 1 & 1);
      parity ^= 2;
    }
    // Totals of the block.
    store_word(tops + warp * 128, __float_as_uint(total));
    sync.block();
    if (warp == 0) {
      total = load_float(tops);
#pragma unroll
      for (int w = 1; w < 8; ++w) total += load_float(tops + w * 128);
      Merge::send_shares(place, area + kShares, barriers, largest, total);
    }
    // The first columns are on their way while the others are multiplied.
    products_wait<kTiles - 1>();
    pin(o[0]);
    Merge::send_sums(place, area + kSums, barriers, 0, o[0]);
    if constexpr (kTiles == 2) {
      products_wait<0>();
      pin(o[1]);
      Merge::send_sums(place, area + kSums, barriers, 1, o[1]);
    }
    Merge::merge(a, tile_, place, area + kSums, area + kShares, barriers, parity & 1);
    parity ^= 1;
  }
};

#endif

}  // namespace frt::cuda
