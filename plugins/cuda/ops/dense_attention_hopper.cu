// SPDX-License-Identifier: Apache-2.0
// Dense attention of many rows on Hopper's warpgroup products, heads of 256: a language model's
// prefix of images and text.
//
// Queries are numbered as in dense_attention_tiles.cu: row * group + head of one key/value head. A
// block is one warpgroup with 64 of them and walks tiles of 64 keys; scores, weights and sums stay
// in registers. Queries, keys and values take 32 KB each, so two blocks share a processor: one
// multiplies while the other makes weights or waits for copies. The next keys arrive while weights
// are made and values added, the next values during the next scores.
//
// 560 rows of eight heads are 70 tiles of queries: where tiles are fewer than places, the keys are
// divided among the blocks of a cluster, tile by tile in turn, and each merges a part of the rows
// over the cluster's shared memory, in the order of ranks.
//
// Floor: 560 rows, 8 heads, one key/value head: 2.6 GFLOP, 4 us with all processors.
#include <algorithm>

#include "attention_mma.cuh"
#include "attention_wgmma.cuh"
#include "dense_attention.hpp"
#include "launch.cuh"

namespace frt::cuda {
namespace {

constexpr int kDim = 256;
constexpr int kThreads = 128;
constexpr int kQueries = 64;
constexpr int kKeys = 64;
constexpr uint32_t kTileBytes = kKeys * kDim * 2;
constexpr int kMostSplits = 8;       // blocks of a cluster, the portable limit
constexpr int kBlocksEach = 2;       // of a processor
constexpr int kLeastQueries = 1024;  // fewer: dense_attention_tiles.cu divides the keys further
constexpr std::size_t kSharedBytes = 3 * kTileBytes + 1024;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kUnits = kDim / 8;  // of 16 bytes, of a row
constexpr int kRow = kDim + 4;    // of sums

// What one block works on.
struct Work {
  int group, first, last;  // queries [first, last] of sequence b
  int64_t row0;            // of the sequence
  int head0;
  int context, all;                           // keys of the context; of context and sequence
  const bf16 *k, *v, *context_k, *context_v;  // of this key/value head; own ones from row0 on
};

__device__ __forceinline__ Work work_of(const frt_dense_attention_args& a, int tile) {
  Work w{};
  const int kv_head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const int length = a.length ? max(0, min(a.length[b], a.rows)) : a.rows;
  w.group = a.heads / a.kv_heads;
  w.first = tile * kQueries;
  w.last = min(w.first + kQueries, length * w.group) - 1;
  w.row0 = static_cast<int64_t>(b) * a.rows;
  w.head0 = kv_head * w.group;
  const int64_t column = static_cast<int64_t>(kv_head) * kDim;
  w.k = static_cast<const bf16*>(a.k) + w.row0 * a.kv_stride + column;
  w.v = static_cast<const bf16*>(a.v) + w.row0 * a.kv_stride + column;
  if (a.context_rows > 0) {
    const int c = b / a.sequences_per_context;
    w.context = max(0, min(a.context_length[c], a.context_rows));
    const int64_t at = static_cast<int64_t>(c) * a.context_rows * a.context_stride + column;
    w.context_k = static_cast<const bf16*>(a.context_k) + at;
    w.context_v = static_cast<const bf16*>(a.context_v) + at;
  }
  w.all = w.context + length;
  return w;
}

__device__ __forceinline__ void copy_or_zero(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}

// The address of 16-byte unit `unit` of row `row` in blocks of 64 columns.
__device__ __forceinline__ uint32_t place(uint32_t matrix, int row, int unit) {
  return matrix +
         static_cast<uint32_t>((unit / 8 * kKeys + row) * 128 + ((unit % 8 ^ (row & 7)) << 4));
}

// Keys (or values) from `at` on, asynchronously; zeros behind the last.
__device__ __forceinline__ void load_keys(uint32_t to, const frt_dense_attention_args& a,
                                          const Work& w, const bf16* own, const bf16* context,
                                          int at) {
  const int unit = static_cast<int>(threadIdx.x) % kUnits;
#pragma unroll
  for (int i = 0; i < kKeys * kUnits / kThreads; ++i) {
    const int n = i * (kThreads / kUnits) + static_cast<int>(threadIdx.x) / kUnits, key = at + n;
    const bf16* from =
        key < w.context ? context + key * a.context_stride : own + (key - w.context) * a.kv_stride;
    copy_or_zero(place(to, n, unit), key < w.all ? from + unit * 8 : own, key < w.all);
  }
}

__device__ __forceinline__ void load_queries(uint32_t to, const frt_dense_attention_args& a,
                                             const Work& w) {
  const bf16* q = static_cast<const bf16*>(a.q);
  const int unit = static_cast<int>(threadIdx.x) % kUnits;
#pragma unroll 4
  for (int i = 0; i < kQueries * kUnits / kThreads; ++i) {
    const int n = i * (kThreads / kUnits) + static_cast<int>(threadIdx.x) / kUnits;
    const int query = w.first + n;
    const bf16* from = q + (w.row0 + query / w.group) * a.q_stride +
                       static_cast<int64_t>(w.head0 + query % w.group) * kDim + unit * 8;
    copy_or_zero(place(to, n, unit), query <= w.last ? from : q, query <= w.last);
  }
}

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The same without what was written: who is done.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}
// Four floats of the shared memory of block `rank` of the cluster, at the place of `local` here.
// Ordered by cluster_barrier() alone, so that several can be under way.
__device__ __forceinline__ float4 read_rank(const float* local, int rank) {
  uint32_t address;
  float4 v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(local)), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address));
  return v;
}

// The scores of a tile of keys from `at` on become weights in base 2; o is scaled to the new
// maximum.
__device__ __forceinline__ void soften(float (&s)[kKeys / 8][4], float (&o)[kDim / 8][4],
                                       float (&largest)[2], float (&sum)[2], float scale, int at,
                                       int all) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (at + kKeys > all) {
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (at + i * 8 + 2 * (lane % 4) + j % 2 >= all) s[i][j] = -INFINITY;
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

__device__ __forceinline__ bf16* output_of(const frt_dense_attention_args& a, const Work& w,
                                           int query) {
  return static_cast<bf16*>(a.y) + (w.row0 + query / w.group) * a.y_stride +
         static_cast<int64_t>(w.head0 + query % w.group) * kDim;
}

// The sums of all keys, from registers to y.
__device__ __forceinline__ void store(const frt_dense_attention_args& a, const Work& w,
                                      const float (&o)[kDim / 8][4], const float (&sum)[2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = w.first + warp * 16 + lane / 4 + 8 * h;
    if (query > w.last) continue;
    const float factor = 1.0f / sum[h];
    auto* y = reinterpret_cast<uint32_t*>(output_of(a, w, query) + 2 * (lane % 4));
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      y[4 * i] = pack_bf16(o[i][2 * h] * factor, o[i][2 * h + 1] * factor);
    }
  }
}

// The sums of all splits: in shared memory rows of kDim, its maximum and its weight. A warp merges
// kTogether queries at a time, so that many reads are under way.
template <int kSplits>
__device__ __forceinline__ void merge(const frt_dense_attention_args& a, const Work& w, int rank,
                                      float* sums) {
  constexpr int kWarps = kThreads / 32, kTogether = 16 / kSplits;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int n = (rank * kWarps + warp) * kTogether; n < kQueries;
       n += kSplits * kWarps * kTogether) {
    if (w.first + n > w.last) break;
    float4 ends[kTogether][kSplits], low[kTogether][kSplits], high[kTogether][kSplits];
#pragma unroll
    for (int r = 0; r < kSplits; ++r) {
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const float* row = sums + (n + k) * kRow;
        ends[k][r] = read_rank(row + kDim, r);
        low[k][r] = read_rank(row + 4 * lane, r);
        high[k][r] = read_rank(row + kDim / 2 + 4 * lane, r);
      }
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const int query = w.first + n + k;
      if (query > w.last) break;
      float most = -INFINITY, total = 0;
#pragma unroll
      for (int r = 0; r < kSplits; ++r) most = fmaxf(most, ends[k][r].x);
      float4 x = make_float4(0, 0, 0, 0), y = x;
#pragma unroll
      for (int r = 0; r < kSplits; ++r) {
        const float factor = exp2_of(ends[k][r].x - most);
        total += factor * ends[k][r].y;
        x.x += factor * low[k][r].x;
        x.y += factor * low[k][r].y;
        x.z += factor * low[k][r].z;
        x.w += factor * low[k][r].w;
        y.x += factor * high[k][r].x;
        y.y += factor * high[k][r].y;
        y.z += factor * high[k][r].z;
        y.w += factor * high[k][r].w;
      }
      const float factor = 1.0f / total;
      bf16* to = output_of(a, w, query) + 4 * lane;
      *reinterpret_cast<uint2*>(to) =
          make_uint2(pack_bf16(x.x * factor, x.y * factor), pack_bf16(x.z * factor, x.w * factor));
      *reinterpret_cast<uint2*>(to + kDim / 2) =
          make_uint2(pack_bf16(y.x * factor, y.y * factor), pack_bf16(y.z * factor, y.w * factor));
    }
  }
}

template <int kSplits>
__device__ __forceinline__ void attend(const frt_dense_attention_args& a) {
  extern __shared__ float4 shared[];
  const int rank = static_cast<int>(blockIdx.x) % kSplits;
  const Work w = work_of(a, static_cast<int>(blockIdx.x) / kSplits);
  if (w.last < w.first) return;  // the same in the whole cluster
  const uint32_t queries = (shared_address(shared) + 1023) / 1024 * 1024;
  const uint32_t keys = queries + kTileBytes, values = keys + kTileBytes;
  const float scale = a.scale * 1.4426950408889634f;  // scores in base 2
  const int step = kSplits * kKeys;

  load_queries(queries, a, w);
  load_keys(keys, a, w, w.k, w.context_k, rank * kKeys);
  copies_commit();
  load_keys(values, a, w, w.v, w.context_v, rank * kKeys);
  copies_commit();
  float o[kDim / 8][4] = {}, s[kKeys / 8][4];
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int at = rank * kKeys; at < w.all; at += step) {
    copies_wait<1>();
    publish_to_products();
    __syncthreads();  // the keys are there
    products_fence();
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      const uint32_t column = static_cast<uint32_t>(d / 4 * (kKeys * 128) + d % 4 * 32);
      multiply_64x64x16(s, matrix_descriptor(queries + column, 16),
                        matrix_descriptor(keys + column, 16), d > 0);
    }
    products_commit();
    products_wait<0>();
    pin(s);
    __syncthreads();  // nobody needs the keys
    if (at + step < w.all) load_keys(keys, a, w, w.k, w.context_k, at + step);
    copies_commit();
    soften(s, o, largest, sum, scale, at, w.all);
    uint32_t p[kKeys / 16][4];
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      p[i][0] = pack_bf16(s[2 * i][0], s[2 * i][1]);
      p[i][1] = pack_bf16(s[2 * i][2], s[2 * i][3]);
      p[i][2] = pack_bf16(s[2 * i + 1][0], s[2 * i + 1][1]);
      p[i][3] = pack_bf16(s[2 * i + 1][2], s[2 * i + 1][3]);
    }
    copies_wait<1>();
    publish_to_products();
    __syncthreads();  // the values are there
    products_fence();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      multiply_64x256x16(o, p[i][0], p[i][1], p[i][2], p[i][3],
                         matrix_descriptor(values + i * 16 * 128, kKeys * 128));
    }
    products_commit();
    products_wait<0>();
    pin(o);
    __syncthreads();  // nobody needs the values
    if (at + step < w.all) load_keys(values, a, w, w.v, w.context_v, at + step);
    copies_commit();
  }
  copies_wait<0>();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
  }
  if constexpr (kSplits == 1) {
    store(a, w, o, sum);
  } else {
    __syncthreads();  // shared memory is free
    auto* sums = reinterpret_cast<float*>(shared);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float* row = sums + (warp * 16 + lane / 4 + 8 * h) * kRow;
      if (lane % 4 == 0) *reinterpret_cast<float2*>(row + kDim) = make_float2(largest[h], sum[h]);
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        *reinterpret_cast<float2*>(row + i * 8 + 2 * (lane % 4)) =
            make_float2(o[i][2 * h], o[i][2 * h + 1]);
      }
    }
    cluster_barrier();
    merge<kSplits>(a, w, rank, sums);
    cluster_meet();  // nobody leaves while others read its memory
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Grid: (tiles of queries * kSplits, kv heads, sequences), clusters of kSplits along x.
template <int kSplits>
__global__ void __launch_bounds__(kThreads, kBlocksEach)
    dense_hopper_kernel(const __grid_constant__ frt_dense_attention_args a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  pdl_trigger();
  pdl_wait();
  attend<kSplits>(a);
#endif
}

}  // namespace

bool dense_hopper_takes(const Device& device, const frt_dense_attention_args& args) {
  return FRT_CUDA_ARCH == 90 && device.properties().capability == 90 && args.head_dim == kDim &&
         int64_t{args.rows} * (args.heads / args.kv_heads) >= kLeastQueries &&
         dense_tiles_take(args) && reinterpret_cast<uintptr_t>(args.y) % 16 == 0 &&
         args.y_stride % 8 == 0 && args.y_scale == 0;
}

void launch_dense_hopper(Stream& stream, const frt_dense_attention_args& args) {
  const int64_t tiles = ceil_div(int64_t{args.rows} * (args.heads / args.kv_heads), kQueries);
  const int64_t blocks = tiles * args.kv_heads * args.count;
  const int64_t places = int64_t{stream.device().properties().multiprocessors} * kBlocksEach;
  const int64_t most_keys = int64_t{args.context_rows} + args.rows;
  int splits = 1;
  while (splits < kMostSplits && blocks * splits * 2 <= places &&
         most_keys >= int64_t{kKeys} * splits * 2) {
    splits *= 2;
  }
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(tiles * splits), static_cast<unsigned>(args.kv_heads),
                     static_cast<unsigned>(args.count));
  grid.threads = dim3(kThreads);
  grid.shared_bytes = kSharedBytes;
  grid.cluster = static_cast<unsigned>(splits);
  launch(stream, grid,
         splits == 1   ? dense_hopper_kernel<1>
         : splits == 2 ? dense_hopper_kernel<2>
                       : dense_hopper_kernel<4>,
         args);
}

}  // namespace frt::cuda
