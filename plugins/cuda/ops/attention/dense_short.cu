// SPDX-License-Identifier: Apache-2.0
// Dense attention of few queries to many keys (an action expert: 10 to 50 rows of 8 heads, one
// key/value head, 600 to 1000 keys), sm_90 on: keys are divided among the blocks of a cluster.
//
// Floor: 0.7 MB of keys and values from L2, 0.26 GFLOP: latency. A block has 64 queries, numbered
// row * group + head, and its ranks' share of the keys, usually all at once: every row of queries,
// keys and values is one bulk copy by one thread. The context is asked of L2 before the kernel
// ahead has ended.
//
// Eight warps: four groups of 16 queries times two halves. For the scores the halves divide the
// keys, for the values the columns, so that 16 x 128 sums stay in a warp's registers; the weights
// go through shared memory, where the keys were. Rows of shared memory are 16 bytes longer than
// their data: ldmatrix has no bank conflicts. At the end each block merges a part of the queries
// over the cluster, in the order of ranks.
#include <algorithm>

#include "../common/arch.cuh"
#include "../common/cluster.cuh"
#include "../common/launch.cuh"
#include "../common/mbarrier.cuh"
#include "../common/mma.cuh"
#include "../common/shared_size.cuh"
#include "dense.hpp"
#include "dense_y.cuh"

namespace frt::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kQueries = kWarps / 2 * 16;
constexpr int kKeys = kLargeSharedMemory ? 48 : 16;  // of a half at once
constexpr int kAllKeys = 2 * kKeys;
constexpr int kMostSplits = 8;  // blocks of a cluster, the portable limit
constexpr int kWeightStride = (kAllKeys + 8) * 2;

template <int kDim>
constexpr int kStride = (kDim + 8) * 2;  // bytes of a row of shared memory
template <int kDim>
constexpr std::size_t kSharedBytes =
    std::max(std::size_t{kQueries + 2 * kAllKeys} * kStride<kDim>,     // loads
             std::size_t{kQueries} * (kDim + 4 + 3) * sizeof(float));  // sums

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What this thread wrote to shared memory comes before what copies will write, after a barrier.
__device__ __forceinline__ void publish_to_copies() {
#if FRT_ARCH_CLUSTERS
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Asks L2 for this block's part of the context. What lies there may still be written by a kernel
// ahead: a hint reads nothing.
__device__ __forceinline__ void ask_for_context(const frt_dense_attention_args& a) {
  if (a.context_rows == 0) return;
  constexpr int kLine = 128 / sizeof(bf16);
  const int lines = (a.head_dim + kLine - 1) / kLine;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * a.head_dim;
  const int c = static_cast<int>(blockIdx.z) / a.sequences_per_context;
  for (int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
       i < a.context_rows * lines * 2; i += static_cast<int>(gridDim.x) * kThreads) {
    const int row = i / (lines * 2), line = i % lines;
    const auto* data = static_cast<const bf16*>(i / lines % 2 == 0 ? a.context_k : a.context_v);
    const bf16* at = data + (static_cast<int64_t>(c) * a.context_rows + row) * a.context_stride +
                     column + line * kLine;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
  }
}

// Grid: (tiles of queries * splits, kv heads, sequences), clusters of `splits` along x. Heads have
// kDim columns.
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    short_kernel(const __grid_constant__ frt_dense_attention_args a, int splits) {
  extern __shared__ float4 shared[];
  __shared__ uint64_t ready[2];  // queries and keys; values
  __shared__ float tops[2][kQueries];
  pdl_trigger();
  ask_for_context(a);
  const int tid = static_cast<int>(threadIdx.x), warp = tid / 32, lane = tid % 32;
  const int half = warp / 4, group_row = warp % 4 * 16;
  if (tid == 0) {
    barrier_init(ready, 1);
    barrier_init(ready + 1, 1);
#if FRT_ARCH_CLUSTERS
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }
  __syncthreads();
  pdl_wait();

  const int rank = static_cast<int>(blockIdx.x) % splits;
  const int tile = static_cast<int>(blockIdx.x) / splits;
  const int kv_head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const int length = a.length ? max(0, min(a.length[b], a.rows)) : a.rows;
  const int group = a.heads / a.kv_heads;
  const int first = tile * kQueries, count = min(kQueries, length * group - first);
  if (count <= 0) return;  // the same in the whole cluster
  const int64_t row0 = static_cast<int64_t>(b) * a.rows;
  const int64_t column = static_cast<int64_t>(kv_head) * kDim;
  int context = 0;
  int64_t context_row0 = 0;
  if (a.context_rows > 0) {
    const int c = b / a.sequences_per_context;
    context = max(0, min(a.context_length[c], a.context_rows));
    context_row0 = static_cast<int64_t>(c) * a.context_rows;
  }
  const int all = context + length;
  // This block's keys: two halves of `share`, one after the other.
  const int share = (all + 2 * splits - 1) / (2 * splits);
  const int begin = rank * 2 * share;
  const auto there = [&](int h, int at) {  // keys of half h from its at-th on, at most kKeys
    return max(0, min(min(share - at, kKeys), all - begin - h * share - at));
  };

  const uint32_t queries = shared_address(shared);
  const uint32_t keys = queries + kQueries * kStride<kDim>;
  const uint32_t values = keys + kAllKeys * kStride<kDim>;
  const uint32_t weights = keys;
  const float scale = a.scale * 1.4426950408889634f;  // scores in base 2
  constexpr int kColumns = kDim / 2;                  // of a warp
  float o[kColumns / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  uint32_t parity = 0;
  for (int at = 0; at < share && begin + at < all; at += kKeys, parity ^= 1) {
    const int own[2] = {there(0, at), there(1, at)};
    if (at > 0) {
      publish_to_copies();
      __syncthreads();  // nobody needs the values before
    }
    if (tid == 0) {
      barrier_expect(ready, (own[0] + own[1] + (at == 0 ? count : 0)) * kDim * 2);
      barrier_expect(ready + 1, (own[0] + own[1]) * kDim * 2);
    }
    for (int i = tid; i < kQueries + 2 * kAllKeys; i += kThreads) {
      if (i < kQueries) {
        if (at > 0 || i >= count) continue;
        const int query = first + i;
        const bf16* from = static_cast<const bf16*>(a.q) + (row0 + query / group) * a.q_stride +
                           column * group + static_cast<int64_t>(query % group) * kDim;
        copy_bulk(queries + i * kStride<kDim>, from, kDim * 2, ready);
        continue;
      }
      const bool value = i >= kQueries + kAllKeys;
      const int n = (i - kQueries) % kAllKeys, h = n / kKeys;
      const uint32_t to = (value ? values : keys) + n * kStride<kDim>;
      if (n % kKeys < own[h]) {
        const int key = begin + h * share + at + n % kKeys;
        const bf16* from = key < context
                               ? static_cast<const bf16*>(value ? a.context_v : a.context_k) +
                                     (context_row0 + key) * a.context_stride + column
                               : static_cast<const bf16*>(value ? a.v : a.k) +
                                     (row0 + key - context) * a.kv_stride + column;
        copy_bulk(to, from, kDim * 2, ready + (value ? 1 : 0));
      } else if (value) {
        for (int j = 0; j < kDim / 8; ++j) {
          asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to + j * 16), "r"(0)
                       : "memory");
        }
      }
    }

    // Scores of this half's keys.
    barrier_wait(ready, parity);
    float s[kKeys / 8][4] = {};
    {
      const uint32_t query = queries + (group_row + lane % 16) * kStride<kDim> + lane / 16 * 16;
      const uint32_t key =
          keys + (half * kKeys + lane % 8 + lane / 16 * 8) * kStride<kDim> + lane / 8 % 2 * 16;
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
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i * 8 + 2 * (lane % 4) + j % 2 >= own[half]) s[i][j] = -INFINITY;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = s[0][2 * h];
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) top = fmaxf(top, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      if (lane % 4 == 0) tops[half][group_row + lane / 4 + 8 * h] = top;
    }
    __syncthreads();  // the maxima are there, and nobody needs the keys
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int n = group_row + lane / 4 + 8 * h;
      const float now = fmaxf(fmaxf(tops[0][n], tops[1][n]) * scale, largest[h]);
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
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(weights + n * kWeightStride +
                                                     (half * kKeys + i * 8 + 2 * (lane % 4)) * 2),
                     "r"(pack_bf16(s[i][2 * h], s[i][2 * h + 1]))
                     : "memory");
      }
      sum[h] = sum[h] * shrink + part;
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) {
        o[i][2 * h] *= shrink;
        o[i][2 * h + 1] *= shrink;
      }
    }
    barrier_wait(ready + 1, parity);
    __syncthreads();  // the weights are there

    const uint32_t weight = weights + (group_row + lane % 16) * kWeightStride + lane / 16 * 16;
    const uint32_t value =
        values + lane % 16 * kStride<kDim> + lane / 16 * 16 + half * kColumns * 2;
#pragma unroll
    for (int i = 0; i < kAllKeys / 16; ++i) {
      uint32_t p[4];
      load_matrices(p, weight + i * 32);
#pragma unroll
      for (int d = 0; d < kColumns / 16; ++d) {
        uint32_t v[4];
        load_matrices_transposed(v, value + i * 16 * kStride<kDim> + d * 32);
        mma_bf16(o[2 * d], p[0], p[1], p[2], p[3], v[0], v[1]);
        mma_bf16(o[2 * d + 1], p[0], p[1], p[2], p[3], v[2], v[3]);
      }
    }
  }
  __syncthreads();  // shared memory is free: rows of kDim + 4 sums, then maxima, then weights

  constexpr int kRow = kDim + 4;
  float* sums = reinterpret_cast<float*>(shared);
  float* maxima = sums + kQueries * kRow;
  float2* totals = reinterpret_cast<float2*>(maxima + kQueries);  // of both halves of the keys
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = sum[h];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const int n = group_row + lane / 4 + 8 * h;
    if (lane % 4 == 0) {
      if (half == 0) maxima[n] = largest[h];
      reinterpret_cast<float*>(totals + n)[half] = total;
    }
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
      *reinterpret_cast<float2*>(sums + n * kRow + half * kColumns + i * 8 + 2 * (lane % 4)) =
          make_float2(o[i][2 * h], o[i][2 * h + 1]);
    }
  }
  cluster_barrier();
  // A warp takes a row at a time, a lane runs of four columns. Reads of other blocks' memory take
  // long, so all of a row are under way together.
  constexpr int kRuns = kDim / 128;
  for (int n = warp * splits + rank; n < count; n += kWarps * splits) {
    float factors[kMostSplits], most = -INFINITY, total = 0;
    float2 shares[kMostSplits];
    float4 parts[kMostSplits][kRuns];
#pragma unroll
    for (int r = 0; r < kMostSplits; ++r) {
      factors[r] = -INFINITY;
      if (r >= splits) continue;
      factors[r] = read_rank(maxima + n, r);
      shares[r] = read_rank(totals + n, r);
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        parts[r][i] =
            read_rank(reinterpret_cast<const float4*>(sums + n * kRow + (i * 32 + lane) * 4), r);
      }
    }
#pragma unroll
    for (int r = 0; r < kMostSplits; ++r) most = fmaxf(most, factors[r]);
#pragma unroll
    for (int r = 0; r < kMostSplits; ++r) {
      if (r >= splits) continue;
      factors[r] = exp2_of(factors[r] - most);
      total += factors[r] * (shares[r].x + shares[r].y);
    }
    const int query = first + n;
    const int64_t y = (row0 + query / group) * a.y_stride + column * group +
                      static_cast<int64_t>(query % group) * kDim;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      float4 value = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int r = 0; r < kMostSplits; ++r) {
        if (r >= splits) continue;
        value.x += factors[r] * parts[r][i].x;
        value.y += factors[r] * parts[r][i].y;
        value.z += factors[r] * parts[r][i].z;
        value.w += factors[r] * parts[r][i].w;
      }
      store_results(a, y + (i * 32 + lane) * 4, value, total);
    }
  }
  cluster_barrier();  // nobody leaves while others read its memory
}

// As many blocks of a cluster as leave each half 16 keys, while SMs are idle.
int splits_for(const Device& device, const frt_dense_attention_args& args) {
  const int64_t tiles = ceil_div(int64_t{args.rows} * (args.heads / args.kv_heads), kQueries);
  const int64_t blocks = tiles * args.kv_heads * args.count;
  const int64_t keys = int64_t{args.context_rows} + args.rows;
  int splits = 1;
  while (splits < kMostSplits && blocks * splits * 2 <= device.properties().multiprocessors &&
         keys >= int64_t{32} * splits * 2) {
    splits *= 2;
  }
  return splits;
}

template <int kDim>
void launch_dim(Stream& stream, const frt_dense_attention_args& args, int splits) {
  const int64_t tiles = ceil_div(int64_t{args.rows} * (args.heads / args.kv_heads), kQueries);
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(tiles * splits), static_cast<unsigned>(args.kv_heads),
                     static_cast<unsigned>(args.count));
  grid.threads = dim3(kThreads);
  grid.shared_bytes = kSharedBytes<kDim>;
  grid.cluster = static_cast<unsigned>(splits);
  launch(stream, grid, short_kernel<kDim>, args, splits);
}

}  // namespace

bool dense_short_supports(Device& device, DenseAttentionCall& args) {
  if (args.head_dim != 128 && args.head_dim != 256) return false;
  const std::size_t shared = args.head_dim == 128 ? kSharedBytes<128> : kSharedBytes<256>;
  return shared <= static_cast<std::size_t>(device.properties().shared_bytes_block) &&
         dense_tiles_support(device, args) && splits_for(device, args) > 1;
}

void launch_dense_short(Stream& stream, DenseAttentionCall& args) {
  const int splits = splits_for(stream.device(), args);
  if (args.head_dim == 128) return launch_dim<128>(stream, args, splits);
  launch_dim<256>(stream, args, splits);
}

}  // namespace frt::cuda
