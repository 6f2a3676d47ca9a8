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
// Floor: an encoder of 512 x 16 x 72, 0.6 GFLOP and 5 MB, about 3 us; a prefix of 560 rows, 2.6
// GFLOP. Few queries and many keys: dense_short.cu.
#include <algorithm>

#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "dense.hpp"
#include "dense_y.cuh"

namespace frt::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kQueries = kWarps * 16;

template <int kDim>
constexpr int kStride = (kDim + 8) * 2;  // bytes of a row of shared memory

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
    copy_async_or_zero(to + n * kStride<kDim> + unit * 16, there ? from + unit * 8 : own, there);
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
    copy_async_or_zero(to + n * kStride<kDim> + unit * 16, there ? from : q, there);
  }
}

// Grid: (tiles of queries, kv heads, sequences).
template <int kDim, int kKeys>
__global__ void __launch_bounds__(kThreads)
    dense_kernel(const __grid_constant__ frt_dense_attention_args a) {
  extern __shared__ float4 shared[];
  pdl_trigger();
  pdl_wait();
  const Work w = work_of(a, static_cast<int>(blockIdx.x));
  if (w.last < w.first) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t queries = shared_address(shared);
  const uint32_t keys = queries + kQueries * kStride<kDim>;
  const uint32_t values = keys + kKeys * kStride<kDim>;
  const float scale = a.scale * 1.4426950408889634f;  // scores in base 2

  float o[kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  load_queries<kDim>(queries, a, w);
  load_keys<kDim, kKeys>(keys, a, w, w.k, w.context_k, 0);
  for (int at = 0; at < w.all; at += kKeys) {
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
          mma_bf16(s[2 * i], q[0], q[1], q[2], q[3], k[0], k[1]);
          mma_bf16(s[2 * i + 1], q[0], q[1], q[2], q[3], k[2], k[3]);
        }
      }
    }
    copies_wait<0>();
    __syncthreads();  // the values are there, and nobody needs the keys
    if (at + kKeys < w.all) {
      load_keys<kDim, kKeys>(keys, a, w, w.k, w.context_k, at + kKeys);
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
        mma_bf16(o[2 * d], p0, p1, p2, p3, v[0], v[1]);
        mma_bf16(o[2 * d + 1], p0, p1, p2, p3, v[2], v[3]);
      }
    }
  }
  copies_wait<0>();
  __syncthreads();  // shared memory is free: rows of kDim + 4 sums, then totals

  constexpr int kRow = kDim + 4;
  float* sums = reinterpret_cast<float*>(shared);
  float* totals = sums + kQueries * kRow;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = sum[h];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const int n = warp * 16 + lane / 4 + 8 * h;
    if (lane % 4 == 0) totals[n] = total;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      *reinterpret_cast<float2*>(sums + n * kRow + i * 8 + 2 * (lane % 4)) =
          make_float2(o[i][2 * h], o[i][2 * h + 1]);
    }
  }
  __syncthreads();
  // A warp takes a row at a time, a lane runs of four columns.
  for (int n = warp; n < kQueries; n += kWarps) {
    const int query = w.first + n;
    if (query > w.last) break;
    const float total = totals[n];
    const int64_t y = (w.row0 + query / w.group) * a.y_stride +
                      static_cast<int64_t>(w.head0 + query % w.group) * a.head_dim;
    for (int column = lane * 4; column < a.head_dim; column += 128) {
      store_results(a, y + column, *reinterpret_cast<const float4*>(sums + n * kRow + column),
                    total);
    }
  }
}

template <int kDim, int kKeys>
void launch_dim(Stream& stream, const frt_dense_attention_args& args) {
  const int64_t tiles = ceil_div(int64_t{args.rows} * (args.heads / args.kv_heads), kQueries);
  constexpr std::size_t kLoads = std::size_t{kQueries + 2 * kKeys} * kStride<kDim>;
  constexpr std::size_t kSums = std::size_t{kQueries} * (kDim + 4 + 1) * sizeof(float);
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(args.kv_heads),
                     static_cast<unsigned>(args.count));
  grid.threads = dim3(kThreads);
  grid.shared_bytes = std::max(kLoads, kSums);
  launch(stream, grid, dense_kernel<kDim, kKeys>, args);
}

bool vectors(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool dense_tiles_support(Device&, DenseAttentionCall& args) {
  return args.dtype == FRT_DTYPE_BF16 && args.head_dim % 8 == 0 && args.head_dim <= 256 &&
         args.kv_heads <= 65535 && args.count <= 65535 && vectors(args.q, args.q_stride) &&
         vectors(args.k, args.kv_stride) && vectors(args.v, args.kv_stride) &&
         vectors(args.y, args.y_stride) &&
         (args.context_rows == 0 || (vectors(args.context_k, args.context_stride) &&
                                     vectors(args.context_v, args.context_stride)));
}

void launch_dense_tiles(Stream& stream, DenseAttentionCall& args) {
  if (args.head_dim <= 32) return launch_dim<32, 64>(stream, args);
  if (args.head_dim <= 80) return launch_dim<80, 64>(stream, args);
  if (args.head_dim <= 128) return launch_dim<128, 64>(stream, args);
  launch_dim<256, 32>(stream, args);
}

}  // namespace frt::cuda
