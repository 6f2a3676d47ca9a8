// SPDX-License-Identifier: Apache-2.0
// flow_layers_attention.cuh - the attention of the persistent kernel of an expert's layers
// (sm_90a): some dozens of rows of queries, their own keys and values, and a context of 600 to 1000
// more.
//
// A cluster takes tiles of kQueries queries of one key/value head, numbered row * group + head; its
// eight blocks divide the keys, the context's and the rows' own ones alike. Both products are
// turned round, so that what each block has alone is the first factor and lies in registers:
//   scores (keys x queries) = K Q^T        a warp has 16 keys of up to 128
//   sums (columns x queries) = V^T P^T     a warp has 16 columns of each 64 of its warpgroup's half
// Keys of the context go from memory into registers and values into shared memory before the
// barrier behind which queries exist; behind it there are the queries, copied by all threads into
// the order of the tensor cores, and a few rows of keys and values.
//
// Registers of K are loaded 16 bytes at a time, so a lane has eight neighbouring columns where the
// product wants four pairs: within 32 columns the inner dimension has another order, and queries
// are stored in it.
//
// Nobody reads another block's memory: maxima and totals, then sums are stored asynchronously into
// the memory of the block that merges them (an eighth of the queries each, in the order of ranks),
// and complete a barrier there. Before a cluster's second tile each of its blocks tells the others
// that it has no more need of what came for the first. What a block sends costs more than anything
// else (16 bytes a cycle), so its sums travel in bf16.
//
// Floor: 50 rows, 8 heads, 642 keys: 0.26 GFLOP, 0.3 us on 104 processors; latency.
#pragma once

#include <cfloat>

#include "attention_wgmma.cuh"
#include "convert_values.cuh"
#include "flow_layers_parts.cuh"
#include "flow_layers_sync.cuh"

namespace frt::cuda {

// Of one layer. Sequence b has `rows` rows; it sees them all, and the first context_length[c] rows
// of context c = b / sequences_per_context. Query head h has key/value head h / (heads / kv_heads).
// All rows lie as frt_dense_attention_args says, aligned to 16 bytes; scale > 0.
struct FlowAttention {
  float scale;
  float y_scale;  // above 0: y is e4m3
  int count, rows, heads, kv_heads;
  int context_rows, sequences_per_context;
  const int32_t* context_length;
  const bf16 *q, *k, *v, *context_k, *context_v;
  int64_t q_stride, kv_stride, context_stride, y_stride;  // elements
  void* y;
};

// What a block's first tile is. Keys are this block's part.
struct FlowAttentionTile {
  int first, last;  // queries
  int head;         // key/value head
  int sequence;
  bool lone;                   // the cluster has no other keys to look at
  int context, all;            // keys of the context, and all
  int64_t context_at, own_at;  // elements to the first of the context's and of the rows' own
};

// Of a block, in shared memory for the whole launch.
struct FlowAttentionShared {
  uint64_t barriers[3];  // nobody needs the tile before; maxima and totals; sums
  FlowAttentionTile tile;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// One thread, before the block knows of the barriers.
__device__ __forceinline__ void attention_init(FlowAttentionShared& shared) {
  barrier_init(shared.barriers, kFlowCluster);
  barrier_init(shared.barriers + 1, 1);
  barrier_init(shared.barriers + 2, 1);
}

template <int kDim>
class FlowAttentionPhase {
 public:
  static constexpr int kQueries = 32;
  static constexpr int kKeys = 128;  // of a block at once
  // Shared memory: queries, then weights; values and a row of zeros; sums to merge; the rest.
  static constexpr uint32_t kStride = (kDim + 8) * 2;
  static constexpr uint32_t kValues = kQueries * kDim * 2;
  static constexpr uint32_t kWarpBytes = kDim;  // of a warp's sums
  static constexpr uint32_t kSums = kValues + (kKeys + 1) * kStride;
  static constexpr uint32_t kTops = kSums + kFlowCluster * 8 * kWarpBytes;
  static constexpr uint32_t kShares = kTops + 8 * kQueries * 4;
  static constexpr uint32_t kBytes = kShares + kQueries * 8;
  static_assert(kBytes <= 112 * 1024 && kSums % 16 == 0);

  // One thread, once for all layers, which share all but pointers.
  static __device__ __forceinline__ void start(const FlowAttention& a, const FlowPlace& place,
                                               FlowAttentionShared& shared) {
    const Works works = works_of(a, place);
    shared.tile.first = shared.tile.last = 0;
    if (place.cluster < works.count) shared.tile = locate(a, place, works, place.cluster);
  }

  // Asks for what does not depend on the rows: all threads that compute, together. From then on the
  // area belongs to this phase.
  __device__ __forceinline__ void prefetch(const FlowAttention& a, const FlowPlace& place,
                                           uint32_t area, FlowAttentionShared& shared) {
    tile_ = shared.tile;
    if (tile_.first < tile_.last) begin(a, place, true, area, shared.barriers);
  }

  // The attention itself, once queries, keys and values are there.
  template <class Sync>
  __device__ __forceinline__ void run(const FlowAttention& a, const FlowPlace& place, uint32_t area,
                                      FlowAttentionShared& shared, uint32_t& parity, Sync& sync) {
    if (tile_.first >= tile_.last) return;
    uint64_t* barriers = shared.barriers;
    int work = place.cluster;
    bool told = false;
    while (true) {
      scores_and_sums(a, place, told, area, barriers, parity, sync);
      const bool more = tile_.first + kQueries < tile_.last;  // with these keys
      if (!more && tile_.lone) break;
      const Works works = works_of(a, place);
      if (!more && work + place.clusters >= works.count) break;
      next(place, barriers, sync);
      told = true;
      if (more) {
        tile_.first += kQueries;
      } else {
        work += place.clusters;
        tile_ = locate(a, place, works, work);
      }
      begin(a, place, !more || tile_.all > kKeys, area, barriers);
    }
  }

 private:
  static constexpr int kSteps = kDim / 16;   // of the scores' inner dimension
  static constexpr int kPairs = 4;           // pairs of queries of a lane
  static constexpr int kTiles = kDim / 128;  // 64 columns of values, of a warpgroup
  static constexpr int kUnits = kDim / 64;   // of 16 bytes, of a thread's queries
  static constexpr int kOwn = 4;             // queries that a block merges
  static constexpr int kFewKeys = 96;        // two images and a prompt
  static constexpr int kValueSteps = (kKeys + 15) / 16;

  // Tiles of one head that share their keys, one after the other, are a work.
  struct Works {
    int tiles, of_head, of_sequence, count;
  };

  uint4 k_[kSteps / 2][2];  // 8 columns of each 32 of this lane's two keys
  const bf16* q_;           // what this thread loads
  FlowAttentionTile tile_;

  static __device__ __forceinline__ Works works_of(const FlowAttention& a, const FlowPlace& place) {
    Works works;
    const int tiles = (a.rows * (a.heads / a.kv_heads) + kQueries - 1) / kQueries;
    const int all = tiles * a.kv_heads * a.count;
    works.tiles = (all + place.clusters - 1) / place.clusters;
    works.of_head = (tiles + works.tiles - 1) / works.tiles;
    works.of_sequence = works.of_head * a.kv_heads;
    works.count = works.of_sequence * a.count;
    return works;
  }
  static __device__ __forceinline__ int context_of(const FlowAttention& a, int sequence) {
    if (a.context_rows == 0) return 0;
    const int length = __ldg(a.context_length + sequence / a.sequences_per_context);
    return max(0, min(length, a.context_rows));
  }

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

  // Keys of the context into registers, from the at-th of the block's on. Whose row is behind the
  // last has any: its scores count for nothing.
  __device__ __forceinline__ void load_context_keys(const FlowAttention& a, const FlowPlace& place,
                                                    int at) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    const int there = min(tile_.context - at, kKeys), n = warp * 16 + lane / 4;
    if (warp * 16 >= there) return;
    const bf16* from = a.context_k + tile_.context_at + lane % 4 * 8;
    const bf16* first = from + (at + min(n, there - 1)) * a.context_stride;
    const bf16* second = from + (at + min(n + 8, there - 1)) * a.context_stride;
#pragma unroll
    for (int i = 0; i < kSteps / 2; ++i) {
      k_[i][0] = load_stream(first + i * 32);
      k_[i][1] = load_stream(second + i * 32);
    }
  }
  // The same rows of the sequence itself.
  __device__ __forceinline__ void load_own_keys(const FlowAttention& a, const FlowPlace& place,
                                                int at) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    const int keys = min(tile_.all - at, kKeys), own = max(0, tile_.context - at);  // [own, keys)
    if (warp * 16 >= keys || warp * 16 + 16 <= own) return;
    const int n = warp * 16 + lane / 4;
    const bf16* first = a.k + tile_.own_at + (at + n - tile_.context) * a.kv_stride + lane % 4 * 8;
    const bf16* second = first + 8 * a.kv_stride;
#pragma unroll
    for (int i = 0; i < kSteps / 2; ++i) {
      load_fresh(k_[i][0], first + i * 32, n >= own && n < keys);
      load_fresh(k_[i][1], second + i * 32, n + 8 >= own && n + 8 < keys);
    }
  }

  // Values from `from` on to rows [first, last) of shared memory.
  template <int kUnroll>
  static __device__ __forceinline__ void copy_values(const FlowPlace& place, const bf16* from,
                                                     int64_t stride, int first, int last,
                                                     uint32_t area) {
    constexpr int kPieces = kDim / 8;  // of a row
    const int piece = place.tid % kPieces;
    from += piece * 8;
    const uint32_t to = area + kValues + piece * 16;
#pragma unroll kUnroll
    for (int row = first + place.tid / kPieces; row < last; row += kFlowThreads / kPieces) {
      copy_async(to + row * kStride, from + (row - first) * stride);
    }
  }
  __device__ __forceinline__ void copy_context_values(const FlowAttention& a,
                                                      const FlowPlace& place, int at,
                                                      uint32_t area) {
    copy_values<4>(place, a.context_v + tile_.context_at + at * a.context_stride, a.context_stride,
                   0, min(tile_.context - at, kKeys), area);
  }

  static __device__ __forceinline__ FlowAttentionTile locate(const FlowAttention& a,
                                                             const FlowPlace& place,
                                                             const Works& works, int work) {
    FlowAttentionTile tile;
    tile.lone = works.count <= place.clusters;
    tile.sequence = work / works.of_sequence;
    tile.head = work / works.of_head % a.kv_heads;
    tile.first = work % works.of_head * works.tiles * kQueries;
    tile.last = min(tile.first + works.tiles * kQueries, a.rows * (a.heads / a.kv_heads));
    const int context = context_of(a, tile.sequence);
    const int context0 = context * place.rank / kFlowCluster;
    const int own0 = a.rows * place.rank / kFlowCluster;
    tile.context = context * (place.rank + 1) / kFlowCluster - context0;
    tile.all = tile.context + a.rows * (place.rank + 1) / kFlowCluster - own0;
    const int64_t c = a.context_rows > 0 ? tile.sequence / a.sequences_per_context : 0;
    tile.context_at = (c * a.context_rows + context0) * a.context_stride + tile.head * kDim;
    tile.own_at =
        (static_cast<int64_t>(tile.sequence) * a.rows + own0) * a.kv_stride + tile.head * kDim;
    return tile;
  }

  // A tile, `fresh` where its values are not there yet.
  __device__ __forceinline__ void begin(const FlowAttention& a, const FlowPlace& place, bool fresh,
                                        uint32_t area, uint64_t* barriers) {
    // The same in all lanes, which the compiler must see: products depend on it.
    tile_.all = __shfl_sync(~0u, tile_.all, 0);
    const int group = a.heads / a.kv_heads,
              query = min(tile_.first + place.tid / 8, tile_.last - 1);
    q_ = a.q + (tile_.sequence * a.rows + query / group) * a.q_stride +
         static_cast<int64_t>(tile_.head * group + query % group) * kDim + place.tid % 8 * 8;
    if (place.tid == 0) {
      barrier_expect(barriers + 1, kQueries * 8);
      barrier_expect(barriers + 2, kQueries * kDim * 2);
    }
    if (place.tid < kDim / 8) {
      store_words(area + kValues + kKeys * kStride + place.tid * 16, make_uint4(0, 0, 0, 0));
    }
    load_context_keys(a, place, 0);
    if (fresh) copy_context_values(a, place, 0, area);
  }

  // The queries, and this block's keys and values of the sequence itself.
  __device__ __forceinline__ void load_rows(const FlowAttention& a, const FlowPlace& place, int at,
                                            uint32_t area) {
    uint4 q[kUnits];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) q[i] = load_fresh(q_ + i * 64);
    const int own = max(0, tile_.context - at);
    copy_values<1>(place, a.v + tile_.own_at + (at + own - tile_.context) * a.kv_stride,
                   a.kv_stride, own, min(tile_.all - at, kKeys), area);
    copies_commit();
    load_own_keys(a, place, at);
    // Word j of a unit of 16 bytes goes to unit j of four.
    const int n = place.tid / 8, unit = place.tid % 8;
    const uint32_t to = area + n * 128 + unit % 4 * 4;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const uint32_t words[4] = {q[i].x, q[i].y, q[i].z, q[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        store_word(to + i * (kQueries * 128) + ((unit / 4 * 4 + j) ^ n % 8) * 16, words[j]);
      }
    }
    copies_wait<0>();
  }

  // This warp's columns of all values.
  static __device__ __forceinline__ void load_values(uint32_t (&v)[kValueSteps][kTiles][4],
                                                     const FlowPlace& place, int keys,
                                                     uint32_t area) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    const int column = (warp / 4 * kTiles * 4 + warp % 4) * 16 + lane / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < kValueSteps; ++i) {
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

  // Of query j of a lane's eight, from the lane that knows it.
  static __device__ __forceinline__ float known(float value, int j) {
    return __shfl_sync(~0u, value, 4 * j + static_cast<int>(threadIdx.x) % 4);
  }

  // One tile. `told`: other blocks may still need the tile before.
  template <class Sync>
  __device__ __forceinline__ void scores_and_sums(const FlowAttention& a, const FlowPlace& place,
                                                  bool told, uint32_t area, uint64_t* barriers,
                                                  uint32_t& parity, Sync& sync) {
    const int lane = place.tid % 32, warp = __shfl_sync(~0u, place.tid / 32, 0), group = warp / 4;
    const float scale = a.scale * 1.4426950408889634f;  // scores in base 2
    float o[kTiles][kPairs][4] = {};
    // Of the query that this lane is asked for; the total of this warp's keys.
    float largest = -INFINITY, total = 0;

    int at = 0;
    do {
      if (at > 0) {
        publish_to_products();
        sync.block();  // nobody needs the weights before
        load_context_keys(a, place, at);
        copy_context_values(a, place, at, area);
      }
      load_rows(a, place, at, area);
      const int keys = min(tile_.all - at, kKeys);
      publish_to_products();
      sync.block();

      float s[kPairs][4];
      if (group * 64 < keys) {
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
      }
      uint32_t v[kValueSteps][kTiles][4];
      load_values(v, place, keys, area);
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
      store_word(area + kTops + place.tid * 4, __float_as_uint(top[0]));
      sync.block();
      float tops[8];
#pragma unroll
      for (int w = 0; w < 8; ++w) tops[w] = load_float(area + kTops + (w * 32 + lane) * 4);
      float now = fmaxf(fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3])),
                        fmaxf(fmaxf(tops[4], tops[5]), fmaxf(tops[6], tops[7])));
      now = fmaxf(largest, keys > 0 ? now * scale : -INFINITY);
      const float shrink = at > 0 ? exp2_fast(largest - now) : 0.0f;
      largest = now;
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
      const float finite = fmaxf(largest, -FLT_MAX);  // there may be no keys
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
      if (at < tile_.all) products_wait<0>();
#pragma unroll
      for (int d = 0; d < kTiles; ++d) pin(o[d]);
    } while (at < tile_.all);

    if (told) {
      wait_for_cluster(barriers, parity >> 1 & 1);
      parity ^= 2;
    }
    send_shares(place, area, barriers, sync, total, largest);
    // The first columns are on their way while the others are multiplied.
    products_wait<kTiles - 1>();
    pin(o[0]);
    send_sums(place, area, barriers, 0, o[0]);
    if constexpr (kTiles == 2) {
      products_wait<0>();
      pin(o[1]);
      send_sums(place, area, barriers, 1, o[1]);
    }
    merge(a, place, area, barriers, parity & 1);
    parity ^= 1;
  }

  // Maxima and totals, to who merges them: two numbers of each query.
  template <class Sync>
  static __device__ __forceinline__ void send_shares(const FlowPlace& place, uint32_t area,
                                                     uint64_t* barriers, Sync& sync, float total,
                                                     float largest) {
    const int lane = place.tid % 32;
    store_word(area + kTops + place.tid * 4, __float_as_uint(total));
    sync.block();
    if (place.tid >= 32) return;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) sum += load_float(area + kTops + (w * 32 + lane) * 4);
    const int query = lane / 8 * 8 + lane % 4 * 2 + lane / 4 % 2, rank = query / kOwn;
    send(address_of(area + kShares + (place.rank * kOwn + query % kOwn) * 8, rank),
         __float_as_uint(largest), __float_as_uint(sum),
         address_of(shared_address(barriers + 1), rank));
  }

  // A lane's sums of tile d: of two queries, 2 (t % 2) and the next of those that rank 2 i + t / 2
  // merges.
  static __device__ __forceinline__ void send_sums(const FlowPlace& place, uint32_t area,
                                                   uint64_t* barriers, int d,
                                                   const float (&o)[kPairs][4]) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    const uint32_t to = area + kSums + (place.rank * 8 + warp) * kWarpBytes + d * 128 +
                        (lane / 4 * 2 + lane % 2) * 8;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int rank = 2 * i + lane % 4 / 2;
      send(address_of(to, rank), pack_bf16(o[i][0], o[i][1]), pack_bf16(o[i][2], o[i][3]),
           address_of(shared_address(barriers + 2), rank));
    }
  }

  __device__ __forceinline__ void merge(const FlowAttention& a, const FlowPlace& place,
                                        uint32_t area, uint64_t* barriers, uint32_t parity) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    // Of the two queries of this lane's sums.
    float factors[kFlowCluster][2];
    wait_for_cluster(barriers + 1, parity);
    {
      float4 shares[kFlowCluster];
      float most[2] = {-INFINITY, -INFINITY}, total[2] = {};
#pragma unroll
      for (int r = 0; r < kFlowCluster; ++r) {
        shares[r] = load_floats(area + kShares + (r * kOwn + lane % 2 * 2) * 8);
        most[0] = fmaxf(most[0], shares[r].x);
        most[1] = fmaxf(most[1], shares[r].z);
      }
#pragma unroll
      for (int r = 0; r < kFlowCluster; ++r) {
        factors[r][0] = exp2_fast(shares[r].x - most[0]);
        factors[r][1] = exp2_fast(shares[r].z - most[1]);
        total[0] += factors[r][0] * shares[r].y;
        total[1] += factors[r][1] * shares[r].w;
      }
      const float inverse = a.y_scale > 0 ? 1.0f / a.y_scale : 1.0f;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float each = inverse / total[h];
#pragma unroll
        for (int r = 0; r < kFlowCluster; ++r) factors[r][h] *= each;
      }
    }
    // Where this lane's results go once matrices are turned round: query lane / 4 % 4 of the
    // block's own, two columns of tile lane / 16.
    const int heads = a.heads / a.kv_heads,
              query = tile_.first + place.rank * kOwn + lane / 4 % kOwn;
    const bool there = query < tile_.last && lane / 16 < kTiles;
    const int64_t to = (tile_.sequence * a.rows + query / heads) * a.y_stride +
                       static_cast<int64_t>(tile_.head * heads + query % heads) * kDim +
                       (warp / 4 * kTiles + lane / 16) * 64 + warp % 4 * 16 + lane % 4 * 2;
    // Lanes read tile t / 2, t = lane % 4, so that a matrix has both tiles.
    const uint32_t from = area + kSums + warp * kWarpBytes +
                          (kTiles == 1 ? 0 : lane % 4 / 2 * 128) + (lane / 4 * 2 + lane % 2) * 8;
    float low[2] = {}, high[2] = {};
    wait_for_cluster(barriers + 2, parity);
#pragma unroll
    for (int r = 0; r < kFlowCluster; ++r) {
      const uint2 sums = load_pair(from + r * 8 * kWarpBytes);
      low[0] += factors[r][0] * __uint_as_float(sums.x << 16);
      low[1] += factors[r][1] * __uint_as_float(sums.x & 0xFFFF0000u);
      high[0] += factors[r][0] * __uint_as_float(sums.y << 16);
      high[1] += factors[r][1] * __uint_as_float(sums.y & 0xFFFF0000u);
    }
    if (a.y_scale > 0) {
      const uint32_t codes =
          transpose_8x8(uint32_t{e4m3_bits(low[0])} | uint32_t{e4m3_bits(high[0])} << 8 |
                        uint32_t{e4m3_bits(low[1])} << 16 | uint32_t{e4m3_bits(high[1])} << 24);
      if (!there) return;
      auto* bytes = static_cast<uint8_t*>(a.y) + to;
      *reinterpret_cast<uint16_t*>(bytes) = static_cast<uint16_t>(__byte_perm(codes, 0, 0x20));
      *reinterpret_cast<uint16_t*>(bytes + 8) = static_cast<uint16_t>(__byte_perm(codes, 0, 0x31));
    } else {
      const uint32_t lower = transpose_8x8(pack_bf16(low[0], low[1]));
      const uint32_t upper = transpose_8x8(pack_bf16(high[0], high[1]));
      if (!there) return;
      auto* values = static_cast<bf16*>(a.y) + to;
      *reinterpret_cast<uint32_t*>(values) = lower;
      *reinterpret_cast<uint32_t*>(values + 8) = upper;
    }
  }
};

#endif

}  // namespace frt::cuda
