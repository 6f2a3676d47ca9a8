// SPDX-License-Identifier: Apache-2.0
// Dense attention of many rows on Hopper's warpgroup products, heads of 256: a language model's
// prefix of images and text.
//
// Queries are numbered as in attention/dense_tiles.cu: row * group + head of one key/value head. A
// block has 64 of them, or, where that were more blocks than run at the same time, twice 64. Tiles
// of 64 keys and of 64 values go round in two rings, each fetched by a thread; two groups of four
// warps have every other tile, or each has 64 queries and all tiles. They take turns at the tensor
// cores: while one multiplies, the other makes weights. Each keeps its own maxima and sums in
// registers; at the end they leave them in shared memory, and warps make rows of them. Sums are
// scaled to a new maximum only where a weight would be more than 2^8.
//
// Four blocks of a cluster have the same keys: each copies 64 of the 256 columns of a tile, to all.
// L2 gives an SM 30 to 50 bytes a cycle; a tile of 64 queries alone would eat 64.
//
// Floor: 542 rows, 8 heads, one key/value head: 68 tiles of queries, so 68 SMs, and 9 tiles
// of keys of 1024 cycles: 5.3 us. Shared memory is busy for longer, 1280 cycles a tile: 64 KB come,
// and the products read 96. (128 queries a block move less, but leave half of the SMs idle
// here; for two such sequences, 19 us instead of 26.) Dividing the keys among all SMs costs
// what it saves: sums of 64 KB a tile cross the cluster.
#include "../../common/arch.cuh"
#include "dense.cuh"

#include <algorithm>

namespace frt::cuda {
namespace {

using namespace wgmma_attention;

#if FRT_ARCH_WGMMA

// Starts the scores of a tile of keys.
__device__ __forceinline__ void start_scores(float (&s)[kKeys / 8][4], uint32_t queries,
                                             uint32_t keys) {
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    const uint32_t column = static_cast<uint32_t>(d / 4 * kBlockBytes + d % 4 * 32);
    multiply_64x64x16(s, matrix_descriptor(queries + column, 16),
                      matrix_descriptor(keys + column, 16), d > 0);
  }
}

// Starts adding a tile of values.
__device__ __forceinline__ void start_sums(float (&o)[kDim / 8][4],
                                           const uint32_t (&p)[kKeys / 16][4], uint32_t values) {
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i) {
    multiply_64x256x16(o, p[i][0], p[i][1], p[i][2], p[i][3],
                       matrix_descriptor(values + i * 16 * 128, kBlockBytes));
  }
}

template <bool kApart>
__device__ __forceinline__ void multiply(const frt_dense_attention_args& a, uint32_t queries,
                                         uint32_t keys, uint32_t values, float* room,
                                         Barriers& barriers, Ends& ends) {
  const int group = static_cast<int>(threadIdx.x) / kGroup - 1;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // A stage is free for all who copy to it. Publishes nothing: a release would wait for memory.
  const auto release = [&](uint64_t* empty) {
    if (lane >= kCluster) return;
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"(shared_address(empty)), "r"(lane));
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
  };
  pdl_wait();
  const Work w(a, (kApart ? 2 : 1) * kQueries);
  if constexpr (kApart) queries += group * kTileBytes;
  constexpr int kVStages = kValueStages<kApart>;
  const float scale = a.scale * 1.4426950408889634f;  // scores in base 2
  float o[kDim / 8][4] = {}, s[kKeys / 8][4] = {};
  float largest[2] = {kNone, kNone}, sum[2] = {}, shrink[2];
  uint32_t p[kKeys / 16][4], clear_parity = 0;
  const auto valid = [&](int tile) {
    return tile < w.context_tiles ? w.context - tile * kKeys
                                  : w.length - (tile - w.context_tiles) * kKeys;
  };
  const auto await_keys = [&](int tile) {
    barrier_wait(barriers.keys.full + tile % kStages, tile / kStages & 1);
    return keys + tile % kStages * kTileBytes;
  };
  const auto await_values = [&](int tile) {
    const int stage = tile % kVStages;
    barrier_wait(barriers.values.full + stage, tile / kVStages & 1);
    if (valid(tile) < kKeys) {
      clear_values(values + stage * kTileBytes, valid(tile),
                   static_cast<int>(threadIdx.x) - (kApart ? 1 : 1 + group) * kGroup,
                   kApart ? 2 * kGroup : kGroup, barriers.cleared + (kApart ? 0 : group),
                   clear_parity);
    }
    return values + stage * kTileBytes;
  };
  barrier_wait(&barriers.queries, 0);
  const auto scale_sums = [&] {
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) o[i][j] *= shrink[j / 2];
    }
  };
  // A turn is passed on only where the other group has one to come, and never twice before it is
  // taken.
  Turns turns(barriers.turns, group);
  if (group == 1) turns.pass();
  if constexpr (kApart) {
    // Turns: values of a tile and scores of the next one, of one group, of the other.
    int tile = 0;
    const uint32_t first = await_keys(tile);
    products_fence();
    start_scores(s, queries, first);
    products_commit();
    products_wait<0>();
    pin(s);
    release(barriers.keys.empty);
    soften(s, largest, sum, shrink, scale, valid(tile));
    pack(p, s);
#pragma unroll 1
    for (; tile + 1 < w.tiles; ++tile) {
      const uint32_t next = await_keys(tile + 1), own = await_values(tile);
      turns.take();
      products_fence();
      start_scores(s, queries, next);
      products_commit();
      start_sums(o, p, own);
      products_commit();
      turns.pass();
      products_wait<1>();
      pin(s);
      release(barriers.keys.empty + (tile + 1) % kStages);
      const bool more = soften(s, largest, sum, shrink, scale, valid(tile + 1));
      products_wait<0>();
      pin(o);
      release(barriers.values.empty + tile % kVStages);
      pack(p, s);
      if (more) scale_sums();
    }
    const uint32_t own = await_values(tile);
    turns.take();
    products_fence();
    start_sums(o, p, own);
    products_commit();
    if (group == 0) turns.pass();
  } else {
    // Turns: scores of tile 0, of tile 1, values of tile 0, of tile 1, scores of tile 2 ...
#pragma unroll 1
    for (int tile = group; tile < w.tiles; tile += 2) {
      const uint32_t own_keys = await_keys(tile);
      turns.take();
      products_fence();
      start_scores(s, queries, own_keys);
      products_commit();
      if (group == 1 || tile + 1 < w.tiles) turns.pass();
      products_wait<0>();  // and for the values of the tile before
      pin(s);
      pin(o);
      release(barriers.keys.empty + tile % kStages);
      if (tile >= 2) release(barriers.values.empty + (tile - 2) % kVStages);
      if (soften(s, largest, sum, shrink, scale, valid(tile))) scale_sums();
      pack(p, s);
      const uint32_t own = await_values(tile);
      if (group == 1 || tile + 1 < w.tiles) turns.take();
      products_fence();
      start_sums(o, p, own);
      products_commit();
      if (tile + 1 < w.tiles) turns.pass();
    }
  }
  products_wait<0>();
  pin(o);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    if (lane % 4 == 0) {
      ends.group[group][warp * 16 + lane / 4 + 8 * h] = make_float2(largest[h], sum[h]);
    }
  }
  __syncthreads();  // and nobody needs the rings
  leave<kApart>(room + group * (kQueries * kSumRow), o, ends, group, result_factor(a));
  __syncthreads();
  merge<kApart>(a, w, room, ends);
}

// Who is there, who is done: cluster_barrier() without what was written.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}

#endif  // FRT_ARCH_WGMMA

// Grid: (tiles of queries, rounded up to clusters, kv heads, sequences), clusters along x. kApart:
// groups have queries of their own.
template <bool kApart>
__global__ void __launch_bounds__(kThreads, 1)
    dense_wgmma_attention_kernel(const __grid_constant__ Maps maps,
                                 const __grid_constant__ frt_dense_attention_args a) {
#if FRT_ARCH_WGMMA
  extern __shared__ float4 shared[];
  __shared__ Barriers barriers;
  __shared__ Ends ends;
  pdl_trigger();
  const uint32_t queries = (shared_address(shared) + 1023) / 1024 * 1024;
  constexpr int kTiles = kApart ? 2 : 1;  // of queries
  const uint32_t keys = queries + kTiles * kTileBytes, values = keys + kStages * kTileBytes;
  if (threadIdx.x == 0) {
    barrier_init(&barriers.queries, 1);
    for (int group = 0; group < 2; ++group) {
      barrier_init(barriers.turns + group, kGroup / 32);
      barrier_init(barriers.cleared + group, kTiles * kGroup);
    }
    for (int i = 0; i < kStages; ++i) {
      for (Ring* ring : {&barriers.keys, &barriers.values}) {
        barrier_init(ring->full + i, 1);
        barrier_init(ring->empty + i, kTiles * 4 * kCluster);  // the warps that have the tile
      }
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    ask_for_map(maps.q);
    ask_for_map(maps.k);
    ask_for_map(maps.v);
  }
  __syncthreads();
  cluster_meet();
  if (threadIdx.x < kGroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    pdl_wait();
    if (threadIdx.x == 0) {
      fetch_tiles<kStages>(maps.k, maps.context_k, a, keys, barriers.keys);
    } else if (threadIdx.x == 32) {
      fetch_tiles<kValueStages<kApart>>(maps.v, maps.context_v, a, values, barriers.values);
    } else if (threadIdx.x == 64) {
      fetch_queries(maps.q, a, queries, kTiles, &barriers.queries);
    }
    __syncwarp();
    __syncthreads();  // the two of multiply()
    __syncthreads();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float* room =
        reinterpret_cast<float*>(reinterpret_cast<char*>(shared) + (keys - shared_address(shared)));
    multiply<kApart>(a, queries, keys, values, room, barriers, ends);
  }
  cluster_meet();  // nobody leaves while others copy to its memory
#endif
}

}  // namespace

static_assert(kSharedBytes == kDenseWgmmaSharedBytes);

bool dense_wgmma_supports(Device& device, DenseAttentionCall& args) {
  const int group = args.heads / args.kv_heads;
  return args.head_dim == kDim && int64_t{args.rows} * group >= kLeastQueries &&
         kQueries % group == 0 && dense_tiles_support(device, args) &&
         (args.y_scale == 0 || args.y_stride % 16 == 0) &&
         int64_t{args.count} * std::max(args.rows, args.context_rows) <= INT32_MAX;
}

void launch_dense_wgmma(Stream& stream, DenseAttentionCall& args) {
  const int group = args.heads / args.kv_heads;
  const auto describe = [&](const void* data, int heads, int64_t rows, int64_t stride,
                            int box_heads) {
    const BoxedHeads boxed{data,       kDim,     heads,     rows,
                           stride * 2, kColumns, box_heads, kQueries / box_heads};
    return make_heads_map(stream.device(), boxed, "dense attention");
  };
  const int64_t rows = int64_t{args.count} * args.rows;
  Maps maps{};
  maps.q = describe(args.q, args.heads, rows, args.q_stride, group);
  maps.k = describe(args.k, args.kv_heads, rows, args.kv_stride, 1);
  maps.v = describe(args.v, args.kv_heads, rows, args.kv_stride, 1);
  if (args.context_rows > 0) {
    const int64_t all = int64_t{args.count / args.sequences_per_context} * args.context_rows;
    maps.context_k = describe(args.context_k, args.kv_heads, all, args.context_stride, 1);
    maps.context_v = describe(args.context_v, args.kv_heads, all, args.context_stride, 1);
  }
  const int64_t all = int64_t{args.rows} * group, blocks = int64_t{args.kv_heads} * args.count;
  const bool apart = ceil_div(all, kQueries * kCluster) * kCluster * blocks >
                     stream.device().properties().multiprocessors;
  const int64_t tiles = ceil_div(all, (apart ? 2 : 1) * kQueries);
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(tiles, kCluster) * kCluster),
                       static_cast<unsigned>(args.kv_heads), static_cast<unsigned>(args.count)),
                  dim3(kThreads), kSharedBytes, kCluster};
  launch(stream, grid,
         apart ? dense_wgmma_attention_kernel<true> : dense_wgmma_attention_kernel<false>, maps,
         args);
}

}  // namespace frt::cuda
