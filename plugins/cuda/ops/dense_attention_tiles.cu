// SPDX-License-Identifier: Apache-2.0
// Dense attention on the tensor cores: tiles of 64 queries against tiles of keys, softmax on the
// way, bf16 with f32 sums.
//
// Queries of a tile are rows and heads of one key/value head, numbered row * group + head: with one
// key/value head for eight query heads, ten rows of actions fill more than a tile. A block has four
// warps of 16 queries; scores, running maximum, sums and the output stay in registers. Keys and
// values take turns in shared memory: values arrive while scores are made of the keys, the next
// keys while values are added up. Rows of shared memory are 16 bytes longer than a head, an odd
// number of 16-byte units, so ldmatrix has no bank conflicts at any head size. Heads narrower than
// the tile and keys behind the last are filled with zeros.
//
// Where tiles of queries are few (an action expert: 2 to 7 of them, 600 keys), the keys are divided
// among the blocks of a cluster, tile by tile in turn; each block's sums go to its shared memory,
// and each merges a part of the rows over the cluster, in the order of ranks. Without clusters
// (below sm_90) one block takes all keys.
//
// Floor: an encoder of 512 x 16 x 72, 0.6 GFLOP and 5 MB, about 3 us; a prefix of 560 rows, 2.6
// GFLOP; an expert's layer reads 0.6 MB: latency.
#include <algorithm>

#include "attention_mma.cuh"
#include "dense_attention.hpp"
#include "launch.cuh"

namespace frt::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kQueries = kWarps * 16;
constexpr int kMostSplits = 8;  // blocks of a cluster, the portable limit

template <int kDim>
constexpr int kStride = (kDim + 8) * 2;  // bytes of a row of shared memory

// 16 bytes to shared memory, zeros where there is nothing.
__device__ __forceinline__ void copy_or_zero(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What one block works on.
struct Work {
  int group, first, last;  // queries [first, last] of sequence b; none if last < first
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
  const int64_t column = static_cast<int64_t>(kv_head) * a.head_dim;
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

// Keys (or values) from `at` on, asynchronously.
template <int kDim, int kKeys>
__device__ __forceinline__ void load_keys(uint32_t to, const frt_dense_attention_args& a,
                                          const Work& w, const bf16* own, const bf16* context,
                                          int at) {
  constexpr int kUnits = kDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kUnits; i += kThreads) {
    const int n = i / kUnits, unit = i % kUnits, key = at + n;
    const bool there = key < w.all && unit * 8 < a.head_dim;
    const bf16* from =
        key < w.context ? context + key * a.context_stride : own + (key - w.context) * a.kv_stride;
    copy_or_zero(to + n * kStride<kDim> + unit * 16, there ? from + unit * 8 : own, there);
  }
  copies_commit();
}

template <int kDim>
__device__ __forceinline__ void load_queries(uint32_t to, const frt_dense_attention_args& a,
                                             const Work& w) {
  constexpr int kUnits = kDim / 8;
  const bf16* q = static_cast<const bf16*>(a.q);
  for (int i = static_cast<int>(threadIdx.x); i < kQueries * kUnits; i += kThreads) {
    const int n = i / kUnits, unit = i % kUnits, query = w.first + n;
    const bool there = query <= w.last && unit * 8 < a.head_dim;
    const bf16* from = q + (w.row0 + query / w.group) * a.q_stride +
                       static_cast<int64_t>(w.head0 + query % w.group) * a.head_dim + unit * 8;
    copy_or_zero(to + n * kStride<kDim> + unit * 16, there ? from : q, there);
  }
}

__device__ __forceinline__ void cluster_barrier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}
// A float of the shared memory of block `rank` of the cluster, at the place of `local` here.
__device__ __forceinline__ float read_rank(const float* local, int rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t address;
  float value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(local)), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
#else
  return rank == 0 ? *local : 0.0f;
#endif
}

// Grid: (tiles of queries * splits, kv heads, sequences), clusters of `splits` along x.
template <int kDim, int kKeys>
__global__ void __launch_bounds__(kThreads)
    dense_kernel(const __grid_constant__ frt_dense_attention_args a, int splits) {
  extern __shared__ float4 shared[];
  pdl_trigger();
  pdl_wait();
  const int rank = static_cast<int>(blockIdx.x) % splits;
  const Work w = work_of(a, static_cast<int>(blockIdx.x) / splits);
  if (w.last < w.first) return;  // the same in the whole cluster
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t queries = shared_address(shared);
  const uint32_t keys = queries + kQueries * kStride<kDim>;
  const uint32_t values = keys + kKeys * kStride<kDim>;
  const float scale = a.scale * 1.4426950408889634f;  // scores in base 2

  float o[kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  const int step = splits * kKeys;
  load_queries<kDim>(queries, a, w);
  load_keys<kDim, kKeys>(keys, a, w, w.k, w.context_k, rank * kKeys);
  for (int at = rank * kKeys; at < w.all; at += step) {
    copies_wait<0>();
    __syncthreads();  // the keys are there, and nobody needs the values before
    load_keys<kDim, kKeys>(values, a, w, w.v, w.context_v, at);
    float s[kKeys / 8][4] = {};
    {
      const uint32_t query = queries + (warp * 16 + lane % 16) * kStride<kDim> + lane / 16 * 16;
      const uint32_t key = keys + (lane % 8 + lane / 16 * 8) * kStride<kDim> + lane / 8 % 2 * 16;
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t q[4];
        load_matrices(q, query + d * 32);
#pragma unroll
        for (int i = 0; i < kKeys / 16; ++i) {
          uint32_t k[4];
          load_matrices(k, key + i * 16 * kStride<kDim> + d * 32);
          multiply_16x8x16(s[2 * i], q[0], q[1], q[2], q[3], k[0], k[1]);
          multiply_16x8x16(s[2 * i + 1], q[0], q[1], q[2], q[3], k[2], k[3]);
        }
      }
    }
    copies_wait<0>();
    __syncthreads();  // the values are there, and nobody needs the keys
    if (at + step < w.all) {
      load_keys<kDim, kKeys>(keys, a, w, w.k, w.context_k, at + step);
    }
    if (at + kKeys > w.all) {
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (at + i * 8 + 2 * (lane % 4) + j % 2 >= w.all) s[i][j] = -INFINITY;
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
    const uint32_t value = values + lane % 16 * kStride<kDim> + lane / 16 * 16;
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      const uint32_t p0 = pack_bf16(s[2 * i][0], s[2 * i][1]);
      const uint32_t p1 = pack_bf16(s[2 * i][2], s[2 * i][3]);
      const uint32_t p2 = pack_bf16(s[2 * i + 1][0], s[2 * i + 1][1]);
      const uint32_t p3 = pack_bf16(s[2 * i + 1][2], s[2 * i + 1][3]);
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t v[4];
        load_matrices_transposed(v, value + i * 16 * kStride<kDim> + d * 32);
        multiply_16x8x16(o[2 * d], p0, p1, p2, p3, v[0], v[1]);
        multiply_16x8x16(o[2 * d + 1], p0, p1, p2, p3, v[2], v[3]);
      }
    }
  }
  copies_wait<0>();
  __syncthreads();  // shared memory is free: rows of kDim + 4 sums, then maxima, then weights

  constexpr int kRow = kDim + 4;
  float* sums = reinterpret_cast<float*>(shared);
  float* maxima = sums + kQueries * kRow;
  float* weights = maxima + kQueries;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = sum[h];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const int n = warp * 16 + lane / 4 + 8 * h;
    if (lane % 4 == 0) {
      maxima[n] = largest[h];
      weights[n] = total;
    }
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      *reinterpret_cast<float2*>(sums + n * kRow + i * 8 + 2 * (lane % 4)) =
          make_float2(o[i][2 * h], o[i][2 * h + 1]);
    }
  }
  if (splits > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  // A warp takes a row at a time; eight columns a lane and round.
  for (int n = rank * kWarps + warp; n < kQueries; n += splits * kWarps) {
    const int query = w.first + n;
    if (query > w.last) break;
    float factors[kMostSplits], most = -INFINITY, total = 0;
#pragma unroll
    for (int r = 0; r < kMostSplits; ++r) {
      factors[r] = r < splits ? (splits > 1 ? read_rank(maxima + n, r) : maxima[n]) : -INFINITY;
      most = fmaxf(most, factors[r]);
    }
#pragma unroll
    for (int r = 0; r < kMostSplits; ++r) {
      if (r >= splits) continue;
      factors[r] = exp2_of(factors[r] - most);
      total += factors[r] * (splits > 1 ? read_rank(weights + n, r) : weights[n]);
    }
    bf16* y = static_cast<bf16*>(a.y) + (w.row0 + query / w.group) * a.y_stride +
              static_cast<int64_t>(w.head0 + query % w.group) * a.head_dim;
    for (int column = lane; column < a.head_dim; column += 32) {
      float value = 0;
#pragma unroll
      for (int r = 0; r < kMostSplits; ++r) {
        if (r >= splits) continue;
        const float* at = sums + n * kRow + column;
        value += factors[r] * (splits > 1 ? read_rank(at, r) : *at);
      }
      y[column] = from_float<bf16>(value / total);
    }
  }
  if (splits > 1) cluster_barrier();  // nobody leaves while others read its memory
}

template <int kDim, int kKeys>
void launch_dim(Stream& stream, const frt_dense_attention_args& args) {
  Device& device = stream.device();
  const int64_t group = args.heads / args.kv_heads;
  const int64_t tiles = ceil_div(args.rows * group, kQueries);
  const int64_t blocks = tiles * args.kv_heads * args.count;
  // As many splits as leave every block two tiles of keys, while processors are idle.
  int splits = 1;
  const int64_t most_keys = args.context_rows + args.rows;
  const bool clusters = FRT_CUDA_ARCH >= 90 && device.properties().capability >= 90;
  while (clusters && splits < kMostSplits &&
         blocks * splits * 2 <= device.properties().multiprocessors &&
         most_keys >= int64_t{kKeys} * splits * 2) {
    splits *= 2;
  }
  constexpr std::size_t kLoads = std::size_t{kQueries + 2 * kKeys} * kStride<kDim>;
  constexpr std::size_t kSums = std::size_t{kQueries} * (kDim + 4 + 2) * sizeof(float);
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(tiles * splits), static_cast<unsigned>(args.kv_heads),
                     static_cast<unsigned>(args.count));
  grid.threads = dim3(kThreads);
  grid.shared_bytes = std::max(kLoads, kSums);
  grid.cluster = static_cast<unsigned>(splits);
  launch(stream, grid, dense_kernel<kDim, kKeys>, args, splits);
}

bool vectors(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool dense_tiles_take(const frt_dense_attention_args& args) {
  return args.dtype == FRT_DTYPE_BF16 && args.head_dim % 8 == 0 && args.head_dim <= 256 &&
         args.kv_heads <= 65535 && args.count <= 65535 && vectors(args.q, args.q_stride) &&
         vectors(args.k, args.kv_stride) && vectors(args.v, args.kv_stride) &&
         (args.context_rows == 0 || (vectors(args.context_k, args.context_stride) &&
                                     vectors(args.context_v, args.context_stride)));
}

void launch_dense_tiles(Stream& stream, const frt_dense_attention_args& args) {
  if (args.head_dim <= 32) return launch_dim<32, 64>(stream, args);
  if (args.head_dim <= 80) return launch_dim<80, 64>(stream, args);
  if (args.head_dim <= 128) return launch_dim<128, 64>(stream, args);
  launch_dim<256, 32>(stream, args);
}

}  // namespace frt::cuda
