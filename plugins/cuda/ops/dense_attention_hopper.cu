// SPDX-License-Identifier: Apache-2.0
// Dense attention of many rows on Hopper's warpgroup products, heads of 256: a language model's
// prefix of images and text.
//
// Queries are numbered as in dense_attention_tiles.cu: row * group + head of one key/value head. A
// block has 64 of them. Tiles of 64 keys and of 64 values go round in two rings, each fetched by a
// thread; two groups of four warps have every other tile. They take turns at the tensor cores:
// while one multiplies, the other makes weights. Each keeps its own maxima and sums in registers;
// at the end they leave them in shared memory, and warps merge rows. Sums are scaled to a new
// maximum only where a weight would be more than 2^8.
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
constexpr int kColumns = 64;  // of a copy: rows of 128 bytes
constexpr int kCluster = 4;   // blocks that share keys; each copies its part of the columns
constexpr int kTileBytes = kKeys * kDim * 2;
constexpr int kStages = 3;           // of each ring
constexpr int kLeastQueries = 1024;  // fewer: dense_attention_tiles.cu
constexpr std::size_t kSharedBytes = (1 + 2 * kStages) * kTileBytes + 1024;

struct Maps {
  CUtensorMap q;                           // (columns, heads, rows): boxes of a tile's queries
  CUtensorMap k, v, context_k, context_v;  // (columns, kv heads, rows): boxes of 64 rows
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kGroup = 128;
constexpr int kBlockBytes = kKeys * kColumns * 2;

// A ring of tiles of keys or of values; its barriers are in shared memory.
struct Ring {
  uint64_t full[kStages], empty[kStages];
};
struct Barriers {
  uint64_t queries, turns[2], cleared[2];
  Ring keys, values;
};

// What one block works on.
struct Work {
  int kv_head, b, group;
  int first, last;  // queries [first, last] of sequence b; none if last < first
  int context, length;
  int context_tiles, tiles;  // of keys: those of the context come first; at least one
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

__device__ __forceinline__ void fetch_queries(const CUtensorMap& map,
                                              const frt_dense_attention_args& a, uint32_t queries,
                                              uint64_t* barrier) {
  const int group = a.heads / a.kv_heads;
  const int row =
      static_cast<int>(blockIdx.z) * a.rows + static_cast<int>(blockIdx.x) * (kQueries / group);
  barrier_expect(barrier, kTileBytes);
#pragma unroll
  for (int i = 0; i < kDim / kColumns; ++i) {
    copy_box(queries + i * kBlockBytes, map, i * kColumns, static_cast<int>(blockIdx.y) * group,
             row, barrier);
  }
}

// All tiles of keys, or of values.
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
  const Work w(a);
#pragma unroll 1
  for (int tile = known ? 1 : 0; tile < w.tiles; ++tile) {
    const int stage = tile % kStages;
    if (tile >= kStages) barrier_wait(ring.empty + stage, (tile / kStages - 1) & 1);
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
// would be above 2^8, the warp takes the new maxima and scales its sums.
__device__ __forceinline__ void soften(float (&s)[kKeys / 8][4], float (&o)[kDim / 8][4],
                                       float (&largest)[2], float (&sum)[2],
                                       uint32_t (&p)[kKeys / 16][4], float scale, int valid) {
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
  if (__any_sync(~0u, top[0] > largest[0] + kRoom || top[1] > largest[1] + kRoom)) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float now = fmaxf(top[h], largest[h]), shrink = exp2_of(largest[h] - now);
      largest[h] = now;
      sum[h] *= shrink;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        o[i][2 * h] *= shrink;
        o[i][2 * h + 1] *= shrink;
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float parts[4] = {};
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
      for (int j = 2 * h; j < 2 * h + 2; ++j) {
        s[i][j] = exp2_of(__fmaf_rn(s[i][j], scale, -largest[h]));
        parts[i % 2 * 2 + j % 2] += s[i][j];
      }
    }
    sum[h] += (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i) {
    p[i][0] = pack_bf16(s[2 * i][0], s[2 * i][1]);
    p[i][1] = pack_bf16(s[2 * i][2], s[2 * i][3]);
    p[i][2] = pack_bf16(s[2 * i + 1][0], s[2 * i + 1][1]);
    p[i][3] = pack_bf16(s[2 * i + 1][2], s[2 * i + 1][3]);
  }
}

// Zeros for the values from `first` on: what lies there may be NaN, and weights of zero would not
// help. By one group, which meets at `cleared`.
__device__ __forceinline__ void clear_values(uint32_t values, int first, uint64_t* cleared,
                                             uint32_t& parity) {
  const int each = (kKeys - first) * (kColumns / 8);  // of 16 bytes, of a block of columns
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % kGroup; i < each * (kDim / kColumns); i += kGroup) {
    const uint32_t at = values + i / each * kBlockBytes + first * (kColumns * 2) + i % each * 16;
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
  }
  publish_to_products();
  barrier_arrive(cleared);
  barrier_wait(cleared, parity);
  parity ^= 1;
}

// What follows is executed once: code that is not in a loop takes longer to fetch than to run.

constexpr int kSumRow = kDim + 8;  // words: pairs of eight rows have no bank conflicts

// A group's sums, with their maxima and totals, to `room`.
__device__ __forceinline__ void leave(float* room, const float (&o)[kDim / 8][4],
                                      const float (&largest)[2], const float (&sum)[2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* row = room + (warp * 16 + lane / 4) * kSumRow;
#pragma unroll
  for (int h = 0; h < 2; ++h, row += 8 * kSumRow) {
    if (lane % 4 == 0) *reinterpret_cast<float2*>(row + kDim) = make_float2(largest[h], sum[h]);
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      *reinterpret_cast<float2*>(row + 2 * (lane % 4) + i * 8) =
          make_float2(o[i][2 * h], o[i][2 * h + 1]);
    }
  }
}

// Rows of y from what both groups have left; a warp has every eighth row.
__device__ __forceinline__ void merge(const frt_dense_attention_args& a, const Work& w,
                                      const float* room) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int shift = __ffs(w.group) - 1;
  const float scale = result_factor(a);
#pragma unroll 2
  for (int n = warp; n < kQueries; n += 8) {
    const int query = w.first + n;
    if (query > w.last) break;
    const float* first = room + n * kSumRow;
    const float* second = first + kQueries * kSumRow;
    const float2 end = *reinterpret_cast<const float2*>(first + kDim);
    const float2 other_end = *reinterpret_cast<const float2*>(second + kDim);
    const float most = fmaxf(end.x, other_end.x);
    float factor = exp2_of(end.x - most), other = exp2_of(other_end.x - most);
    const float share = __fdividef(scale, factor * end.y + other * other_end.y);
    factor *= share;
    other *= share;
    const int64_t y = (static_cast<int64_t>(w.b) * a.rows + (query >> shift)) * a.y_stride +
                      static_cast<int64_t>(w.kv_head * w.group + (query & (w.group - 1))) * kDim;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = i * (kDim / 2) + 4 * lane;
      float4 x = *reinterpret_cast<const float4*>(first + column);
      const float4 z = *reinterpret_cast<const float4*>(second + column);
      x.x = factor * x.x + other * z.x;
      x.y = factor * x.y + other * z.y;
      x.z = factor * x.z + other * z.z;
      x.w = factor * x.w + other * z.w;
      store_four(a, y + column, x);
    }
  }
}

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

__device__ __forceinline__ void multiply(const frt_dense_attention_args& a, uint32_t queries,
                                         uint32_t keys, uint32_t values, float* room,
                                         Barriers& barriers) {
  const int group = static_cast<int>(threadIdx.x) / kGroup - 1;
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
  const Work w(a);
  const float scale = a.scale * 1.4426950408889634f;  // scores in base 2
  float o[kDim / 8][4] = {}, s[kKeys / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  uint32_t p[kKeys / 16][4], clear_parity = 0;
  barrier_wait(&barriers.queries, 0);
  // Turns: scores of tile 0, of tile 1, values of tile 0, of tile 1, scores of tile 2 ... A turn is
  // passed on only where the other group has one to come, and never twice before it is taken.
  Turns turns(barriers.turns, group);
  if (group == 1) turns.pass();
#pragma unroll 1
  for (int tile = group; tile < w.tiles; tile += 2) {
    const int stage = tile % kStages;
    const uint32_t parity = tile / kStages & 1;
    barrier_wait(barriers.keys.full + stage, parity);
    turns.take();
    products_fence();
    start_scores(s, queries, keys + stage * kTileBytes);
    products_commit();
    if (group == 1 || tile + 1 < w.tiles) turns.pass();
    products_wait<0>();  // and for the values of the tile before
    pin(s);
    pin(o);
    release(barriers.keys.empty + stage);
    if (tile >= 2) release(barriers.values.empty + (tile - 2) % kStages);
    const int valid = tile < w.context_tiles ? w.context - tile * kKeys
                                             : w.length - (tile - w.context_tiles) * kKeys;
    soften(s, o, largest, sum, p, scale, valid);
    barrier_wait(barriers.values.full + stage, parity);
    if (valid < kKeys) {
      clear_values(values + stage * kTileBytes, valid, barriers.cleared + group, clear_parity);
    }
    if (group == 1 || tile + 1 < w.tiles) turns.take();
    products_fence();
    start_sums(o, p, values + stage * kTileBytes);
    products_commit();
    if (tile + 1 < w.tiles) turns.pass();
  }
  products_wait<0>();
  pin(o);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
  }
  __syncthreads();  // nobody needs the rings
  leave(room + group * (kQueries * kSumRow), o, largest, sum);
  __syncthreads();
  merge(a, w, room);
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
  const uint32_t keys = queries + kTileBytes, values = keys + kStages * kTileBytes;
  if (threadIdx.x == 0) {
    barrier_init(&barriers.queries, 1);
    for (int group = 0; group < 2; ++group) {
      barrier_init(barriers.turns + group, kGroup / 32);
      barrier_init(barriers.cleared + group, kGroup);
    }
    for (int i = 0; i < kStages; ++i) {
      for (Ring* ring : {&barriers.keys, &barriers.values}) {
        barrier_init(ring->full + i, 1);
        barrier_init(ring->empty + i, 4 * kCluster);  // the warps of the group that has the tile
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
      fetch_queries(maps.q, a, queries, &barriers.queries);
      fetch_tiles(maps.k, maps.context_k, a, keys, barriers.keys);
    } else if (threadIdx.x == 32) {
      fetch_tiles(maps.v, maps.context_v, a, values, barriers.values);
    }
    __syncwarp();
    __syncthreads();  // the two of multiply()
    __syncthreads();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float* room =
        reinterpret_cast<float*>(reinterpret_cast<char*>(shared) + (keys - shared_address(shared)));
    multiply(a, queries, keys, values, room, barriers);
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
