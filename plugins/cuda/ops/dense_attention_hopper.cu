// SPDX-License-Identifier: Apache-2.0
// Dense attention of many rows on Hopper's warpgroup products, heads of 256: a language model's
// prefix of images and text.
//
// Queries are numbered as in dense_attention_tiles.cu: row * group + head of one key/value head. A
// block has 64 of them. Tiles of 64 keys and 64 values go round in a ring, fetched by one thread;
// two groups of four warps take tiles in turn, so one multiplies while the other makes weights.
// Each keeps its own maximum and sums in registers; at the end they exchange halves of the columns
// and each writes one.
//
// Four blocks of a cluster have the same keys: each copies 64 of the 256 columns of a tile, to all.
// L2 gives a processor 30 to 50 bytes a cycle; a tile of 64 queries alone would eat 64.
//
// Floor: 542 rows, 8 heads, one key/value head: 68 tiles of queries, so 68 processors, and 9 tiles
// of keys of 1024 cycles: 5.3 us. Dividing the keys among all processors costs what it saves: sums
// of 64 KB a tile cross the cluster.
#include <algorithm>

#include "attention_mma.cuh"
#include "attention_wgmma.cuh"
#include "cluster.cuh"
#include "dense_attention.hpp"
#include "dense_attention_y.cuh"
#include "launch.cuh"
#include "mbarrier.cuh"
#include "tensor_map.hpp"

namespace frt::cuda {
namespace {

constexpr int kDim = 256;
constexpr int kThreads = 384;  // one group fetches
constexpr int kQueries = 64;
constexpr int kKeys = 64;
constexpr int kColumns = 64;               // of a copy: rows of 128 bytes
constexpr int kCluster = kDim / kColumns;  // blocks that share keys, each copies its columns
constexpr int kTileBytes = kKeys * kDim * 2;
constexpr int kStages = 6;
constexpr int kLeastQueries = 1024;  // fewer: dense_attention_tiles.cu
constexpr std::size_t kSharedBytes = (1 + kStages) * kTileBytes + 1024;

struct Maps {
  CUtensorMap q;                           // (columns, heads, rows): boxes of a tile's queries
  CUtensorMap k, v, context_k, context_v;  // (columns, kv heads, rows): boxes of 64 rows
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kGroup = 128;
constexpr int kBlockBytes = kKeys * kColumns * 2;

// In shared memory.
struct Barriers {
  uint64_t queries, full[kStages], empty[kStages];
};

// What one block works on.
struct Work {
  int kv_head, b, group;
  int first, last;  // queries [first, last] of sequence b; none if last < first
  int context, length;
  int context_tiles, tiles;  // of keys: those of the context come first
  __device__ __forceinline__ explicit Work(const frt_dense_attention_args& a) {
    kv_head = static_cast<int>(blockIdx.y);
    b = static_cast<int>(blockIdx.z);
    length = a.length ? max(0, min(a.length[b], a.rows)) : a.rows;
    group = a.heads / a.kv_heads;
    first = static_cast<int>(blockIdx.x) * kQueries;
    last = min(first + kQueries, length * group) - 1;
    context = 0;
    if (a.context_rows > 0) {
      context = max(0, min(a.context_length[b / a.sequences_per_context], a.context_rows));
    }
    context_tiles = (context + kKeys - 1) / kKeys;
    tiles = context_tiles + (length + kKeys - 1) / kKeys;
  }
};

// Tiles lie in the ring as keys 0, keys 1, values 0, values 1, keys 2 ...: two of each, the last
// ones maybe one. The number of tile `tile`'s keys or values in that order.
__device__ __forceinline__ int number_of(const Work& w, int tile, bool values) {
  const int pair = tile / 2 * 2;
  return 2 * pair + (values ? min(2, w.tiles - pair) : 0) + tile % 2;
}

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

__device__ __forceinline__ void fetch(const Maps& maps, const frt_dense_attention_args& a,
                                      uint32_t queries, uint32_t ring, Barriers& barriers) {
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  pdl_wait();
  {
    const int group = a.heads / a.kv_heads;
    const int row =
        static_cast<int>(blockIdx.z) * a.rows + static_cast<int>(blockIdx.x) * (kQueries / group);
    barrier_expect(&barriers.queries, kTileBytes);
#pragma unroll
    for (int i = 0; i < kDim / kColumns; ++i) {
      copy_box(queries + i * kBlockBytes, maps.q, i * kColumns,
               static_cast<int>(blockIdx.y) * group, row, &barriers.queries);
    }
  }
  const Work w(a);
  int stage = 0;
  uint32_t parity = 1;  // of the round before
  for (int number = 0; number < 2 * w.tiles; ++number) {
    const int pair = number / 4 * 2, each = min(2, w.tiles - pair), place = number % 4;
    const bool values = place >= each;
    const int tile = pair + place - (values ? each : 0);
    if (number >= kStages) barrier_wait(barriers.empty + stage, parity);
    barrier_expect(barriers.full + stage, kTileBytes);
    const bool own = tile >= w.context_tiles;
    const int row = own ? w.b * a.rows + (tile - w.context_tiles) * kKeys
                        : w.b / a.sequences_per_context * a.context_rows + tile * kKeys;
    const CUtensorMap& map =
        own ? (values ? maps.v : maps.k) : (values ? maps.context_v : maps.context_k);
    share_box(ring + stage * kTileBytes + rank * kBlockBytes, map, rank * kColumns, w.kv_head, row,
              barriers.full + stage);
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

// ---- multiplying -------------------------------------------------------------------------------

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// All of this group, all of both groups.
__device__ __forceinline__ void group_barrier(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}
__device__ __forceinline__ void both_barrier() {
  asm volatile("bar.sync 3, 256;" ::: "memory");
}

// The scores of a tile with `valid` keys become weights in base 2; o is scaled to the new maximum.
__device__ __forceinline__ void soften(float (&s)[kKeys / 8][4], float (&o)[kDim / 8][4],
                                       float (&largest)[2], float (&sum)[2], float scale,
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
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float now = s[0][2 * h];
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) now = fmaxf(now, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
    now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
    now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
    now = fmaxf(now * scale, largest[h]);
    const float shrink = exp2_of(largest[h] - now);
    largest[h] = now;
    float part = 0;
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
      for (int j = 2 * h; j < 2 * h + 2; ++j) {
        s[i][j] = exp2_of(__fmaf_rn(s[i][j], scale, -now));
        part += s[i][j];
      }
    }
    sum[h] = sum[h] * shrink + part;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      o[i][2 * h] *= shrink;
      o[i][2 * h + 1] *= shrink;
    }
  }
}

// Zeros for the values from `first` on: what lies there may be NaN, and weights of zero would not
// help. By one group.
__device__ __forceinline__ void clear_values(uint32_t values, int first, int group) {
  const int each = (kKeys - first) * (kColumns / 8);  // of 16 bytes, of a block of columns
  for (int i = static_cast<int>(threadIdx.x) % kGroup; i < each * kCluster; i += kGroup) {
    const uint32_t at = values + i / each * kBlockBytes + first * (kColumns * 2) + i % each * 16;
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
  }
  publish_to_products();
  group_barrier(group);
}

__device__ __forceinline__ void store_shared(uint32_t at, const float (&v)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(v[0]), "f"(v[1]),
               "f"(v[2]), "f"(v[3])
               : "memory");
}
__device__ __forceinline__ void load_shared(float (&v)[4], uint32_t at) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "r"(at)
               : "memory");
}

// Both groups' sums of half of the columns, the one that group kHalf writes. `room` is shared
// memory that nobody uses.
template <int kHalf>
__device__ __forceinline__ void finish(const frt_dense_attention_args& a, const Work& w,
                                       const float (&o)[kDim / 8][4], const float (&largest)[2],
                                       const float (&sum)[2], uint32_t room) {
  constexpr int kRuns = kDim / 16;  // of eight columns, of a half
  constexpr int kParts = (kRuns + 1) * kGroup * 16;
  constexpr int kRow = kDim / 2 * 2 + 16;  // bytes of a staged row
  const int tid = static_cast<int>(threadIdx.x) % kGroup, warp = tid / 32, lane = tid % 32;
  const uint32_t to = room + (1 - kHalf) * kParts + tid * 16,
                 from = room + kHalf * kParts + tid * 16;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) store_shared(to + i * kGroup * 16, o[(1 - kHalf) * kRuns + i]);
  store_shared(to + kRuns * kGroup * 16, {largest[0], largest[1], sum[0], sum[1]});
  both_barrier();
  float ends[4], own[2], other[2];
  load_shared(ends, from + kRuns * kGroup * 16);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float most = fmaxf(largest[h], ends[h]);
    own[h] = exp2_of(largest[h] - most);
    other[h] = exp2_of(ends[h] - most);
    const float factor = 1.0f / (own[h] * sum[h] + other[h] * ends[2 + h]);
    own[h] *= factor;
    other[h] *= factor;
  }
  // Through shared memory, for whole rows of 16-byte units.
  const bool narrow = a.y_scale > 0;
  const float factor = narrow ? 1.0f / a.y_scale : 1.0f;
  const int bytes = narrow ? 1 : 2;  // of a result
  const uint32_t stage = room + 2 * kParts + (kHalf * 4 + warp) * (16 * kRow);
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    float v[4];
    load_shared(v, from + i * kGroup * 16);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float x = own[h] * o[kHalf * kRuns + i][2 * h] + other[h] * v[2 * h];
      const float y = own[h] * o[kHalf * kRuns + i][2 * h + 1] + other[h] * v[2 * h + 1];
      const uint32_t at = stage + (lane / 4 + 8 * h) * kRow + (i * 8 + 2 * (lane % 4)) * bytes;
      if (narrow) {
        const uint32_t codes = e4m3_bits(y * factor) << 8 | e4m3_bits(x * factor);
        asm volatile("st.shared.b16 [%0], %1;" ::"r"(at), "h"(static_cast<uint16_t>(codes))
                     : "memory");
      } else {
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(pack_bf16(x, y)) : "memory");
      }
    }
  }
  __syncwarp();
  const int units = kDim / 2 * bytes / 16;  // of a row
  for (int i = lane; i < 16 * units; i += 32) {
    const int row = i / units, query = w.first + warp * 16 + row;
    if (query > w.last) break;
    float v[4];
    load_shared(v, stage + row * kRow + i % units * 16);
    const int64_t at = (static_cast<int64_t>(w.b) * a.rows + query / w.group) * a.y_stride +
                       static_cast<int64_t>(w.kv_head * w.group + query % w.group) * kDim +
                       kHalf * (kDim / 2);
    *reinterpret_cast<float4*>(static_cast<char*>(a.y) + at * bytes + i % units * 16) =
        make_float4(v[0], v[1], v[2], v[3]);
  }
}

__device__ __forceinline__ void multiply(const frt_dense_attention_args& a, uint32_t queries,
                                         uint32_t ring, Barriers& barriers) {
  const int group = static_cast<int>(threadIdx.x) / kGroup - 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t empty_there = shared_address(barriers.empty);
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(empty_there) : "r"(lane % kCluster));
  // A stage is free for all who copy to it. Publishes nothing: a release would wait for memory.
  const auto release = [&](int stage) {
    if (lane < kCluster) {
      asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(empty_there + stage * 8)
                   : "memory");
    }
  };
  pdl_wait();
  const Work w(a);
  const float scale = a.scale * 1.4426950408889634f;  // scores in base 2
  float o[kDim / 8][4] = {}, s[kKeys / 8][4];
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  barrier_wait(&barriers.queries, 0);
  for (int tile = group; tile < w.tiles; tile += 2) {
    const int valid = tile < w.context_tiles ? w.context - tile * kKeys
                                             : w.length - (tile - w.context_tiles) * kKeys;
    int number = number_of(w, tile, false), stage = number % kStages;
    barrier_wait(barriers.full + stage, number / kStages & 1);
    const uint32_t keys = ring + stage * kTileBytes;
    products_fence();
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      const uint32_t column = static_cast<uint32_t>(d / 4 * kBlockBytes + d % 4 * 32);
      multiply_64x64x16(s, matrix_descriptor(queries + column, 16),
                        matrix_descriptor(keys + column, 16), d > 0);
    }
    products_commit();
    products_wait<0>();
    pin(s);
    release(stage);
    soften(s, o, largest, sum, scale, valid);
    uint32_t p[kKeys / 16][4];
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      p[i][0] = pack_bf16(s[2 * i][0], s[2 * i][1]);
      p[i][1] = pack_bf16(s[2 * i][2], s[2 * i][3]);
      p[i][2] = pack_bf16(s[2 * i + 1][0], s[2 * i + 1][1]);
      p[i][3] = pack_bf16(s[2 * i + 1][2], s[2 * i + 1][3]);
    }
    number = number_of(w, tile, true);
    stage = number % kStages;
    barrier_wait(barriers.full + stage, number / kStages & 1);
    const uint32_t values = ring + stage * kTileBytes;
    if (valid < kKeys) clear_values(values, valid, group);
    products_fence();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      multiply_64x256x16(o, p[i][0], p[i][1], p[i][2], p[i][3],
                         matrix_descriptor(values + i * 16 * 128, kBlockBytes));
    }
    products_commit();
    products_wait<0>();
    pin(o);
    release(stage);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
  }
  both_barrier();  // nobody needs the ring
  if (group == 0) {
    finish<0>(a, w, o, largest, sum, ring);
  } else {
    finish<1>(a, w, o, largest, sum, ring);
  }
}

// Who is there, who is done: cluster_barrier() without what was written.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Grid: (tiles of queries, rounded up to clusters, kv heads, sequences), clusters along x.
__global__ void __launch_bounds__(kThreads, 1)
    dense_hopper_kernel(const __grid_constant__ Maps maps,
                        const __grid_constant__ frt_dense_attention_args a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ float4 shared[];
  __shared__ Barriers barriers;
  pdl_trigger();
  const uint32_t queries = (shared_address(shared) + 1023) / 1024 * 1024;
  const uint32_t ring = queries + kTileBytes;
  if (threadIdx.x == 0) {
    barrier_init(&barriers.queries, 1);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(barriers.full + i, 1);
      barrier_init(barriers.empty + i, 4 * kCluster);  // the warps of the group that has the tile
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_meet();
  if (threadIdx.x < kGroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) fetch(maps, a, queries, ring, barriers);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    multiply(a, queries, ring, barriers);
  }
  cluster_meet();  // nobody leaves while others copy to its memory
#endif
}

}  // namespace

bool dense_hopper_takes(const Device& device, const frt_dense_attention_args& args) {
  const int group = args.heads / args.kv_heads;
  return FRT_CUDA_ARCH == 90 && device.properties().capability == 90 && args.head_dim == kDim &&
         int64_t{args.rows} * group >= kLeastQueries && kQueries % group == 0 &&
         dense_tiles_take(args) && (args.y_scale == 0 || args.y_stride % 16 == 0) &&
         int64_t{args.count} * std::max(args.rows, args.context_rows) <= INT32_MAX;
}

void launch_dense_hopper(Stream& stream, const frt_dense_attention_args& args) {
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
  const int64_t tiles = ceil_div(int64_t{args.rows} * group, kQueries);
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(tiles, kCluster) * kCluster),
                       static_cast<unsigned>(args.kv_heads), static_cast<unsigned>(args.count)),
                  dim3(kThreads), kSharedBytes, kCluster};
  launch(stream, grid, dense_hopper_kernel, maps, args);
}

}  // namespace frt::cuda
