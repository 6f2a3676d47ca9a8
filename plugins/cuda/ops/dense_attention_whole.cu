// SPDX-License-Identifier: Apache-2.0
// Dense attention with all keys at once on Hopper's warpgroup products: an image encoder, 256 rows,
// heads of 72.
//
// A block is one warpgroup with 64 queries of a head. The scores of up to 256 keys fit in its
// registers, so there is no running maximum and nothing is scaled again: all scores, their weights,
// all values. The blocks of a cluster are the tiles of queries of one head of one sequence; each
// copies 64 keys and values, and its turn goes to all of them.
//
// Heads of 72 columns lie in shared memory as blocks of 64 and of 16: copies write zeros for what
// the head does not have, without which the next head would be there. The first blocks have rows of
// 128 bytes, the second ones of 32, each with the swizzle of its length.
//
// Floor: 2 x 256 rows, 16 heads, 0.6 GFLOP and 5 MB: latency, 4 us.
#include "attention_mma.cuh"
#include "attention_wgmma.cuh"
#include "dense_attention.hpp"
#include "dense_attention_y.cuh"
#include "dense_multiply.cuh"
#include "launch.cuh"
#include "mbarrier.cuh"
#include "tensor_map.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kQueries = 64;
constexpr int kKeys = 256;                               // at most
constexpr int kLow = 64, kHigh = 16;                     // columns of the two blocks of a head
constexpr int kLowRow = kLow * 2, kHighRow = kHigh * 2;  // bytes
constexpr int kTile = kQueries * (kLowRow + kHighRow);   // of 64 rows of both blocks
constexpr std::size_t kSharedBytes = kTile + 2 * std::size_t{kKeys} * (kLowRow + kHighRow) + 1024;

struct Maps {
  CUtensorMap q[2], k[2], v[2];  // (columns, heads, rows): boxes of 64 rows and a block's columns
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kHalf = kKeys / 2;

// Rows of 32 bytes, in the swizzle of that length; eight of them are 256 bytes.
__device__ __forceinline__ uint64_t narrow_descriptor(uint32_t address) {
  constexpr uint64_t kSwizzle32 = 3ull << 62;
  constexpr uint64_t kEightRows = 256 >> 4;
  return kSwizzle32 | kEightRows << 32 | 1ull << 16 | ((address & 0x3FFFF) >> 4);
}

// c (64 x 64, 64 x 16) += a (64 x 16, in registers) b; rows of b hold the columns of c.
__device__ __forceinline__ void multiply_64x64(float (&c)[kLow / 2], const uint32_t (&a)[4],
                                               uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
        "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]),
        "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
        "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
        "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_64x16(float (&c)[kHigh / 2], const uint32_t (&a)[4],
                                               uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, 1, 1, 1, 1;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
        "+f"(c[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Keeps the compiler from moving uses of registers of a running product across this point.
template <int kCount>
__device__ __forceinline__ void pin(float (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 64 rows of a head from `row` on, both blocks of its columns, to the same places in every block of
// `ranks`.
__device__ __forceinline__ void copy_rows(uint32_t low, uint32_t high, const CUtensorMap (&maps)[2],
                                          int head, int row, uint64_t* barrier, int ranks) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(i == 0 ? low : high),
        "l"(&maps[i]), "r"(i * kLow), "r"(head), "r"(row), "r"(shared_address(barrier)),
        "h"(static_cast<uint16_t>(ranks))
        : "memory");
  }
}

// Zeros for the values from `first` on: what lies there may be NaN, and weights of zero would not
// help.
__device__ __forceinline__ void clear_values(uint32_t low, uint32_t high, int first) {
  const auto clear = [](uint32_t at) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
  };
  const int tid = static_cast<int>(threadIdx.x);
  for (int i = first * 8 + tid; i < kKeys * 8; i += kThreads) clear(low + i * 16);
  for (int i = first * 2 + tid; i < kKeys * 2; i += kThreads) clear(high + i * 16);
  publish_to_products();
  __syncthreads();
}

__device__ __forceinline__ void attend(const Maps& maps, const frt_dense_attention_args& a,
                                       uint64_t (&ready)[2]) {
  extern __shared__ float4 shared[];
  const uint32_t queries = (shared_address(shared) + 1023) / 1024 * 1024;
  const uint32_t keys = queries + kQueries * kLowRow, values = keys + kKeys * kLowRow;
  const uint32_t high_queries = values + kKeys * kLowRow;
  const uint32_t high_keys = high_queries + kQueries * kHighRow;
  const uint32_t high_values = high_keys + kKeys * kHighRow;
  const int tid = static_cast<int>(threadIdx.x), warp = tid / 32, lane = tid % 32;
  const int rank = static_cast<int>(blockIdx.x), ranks = static_cast<int>(gridDim.x);
  const int head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  if (tid == 0) {
    barrier_init(ready, 1);
    barrier_init(ready + 1, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    barrier_expect(ready, (1 + ranks) * kTile);
    barrier_expect(ready + 1, ranks * kTile);
  }
  __syncthreads();
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
  pdl_wait();
  if (tid == 0) {
    const int row = b * a.rows + rank * kQueries, all_ranks = (1 << ranks) - 1;
    copy_rows(keys + rank * (kQueries * kLowRow), high_keys + rank * (kQueries * kHighRow), maps.k,
              head, row, ready, all_ranks);
    copy_rows(queries, high_queries, maps.q, head, row, ready, 1 << rank);
    copy_rows(values + rank * (kQueries * kLowRow), high_values + rank * (kQueries * kHighRow),
              maps.v, head, row, ready + 1, all_ranks);
  }
  const int all = a.length ? max(0, min(a.length[b], a.rows)) : a.rows;
  const float scale = a.scale * 1.4426950408889634f;  // scores in base 2

  float s[2][kHalf / 2];
#pragma unroll
  for (int i = 0; i < kHalf / 2; ++i) s[0][i] = s[1][i] = 0;
  pin(s[0]);
  pin(s[1]);
  barrier_wait(ready, 0);
  products_fence();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int d = 0; d < kLow / 16; ++d) {
      multiply_64<kHalf>(s[half], matrix_descriptor(queries + d * 32, 16),
                         matrix_descriptor(keys + half * (kHalf * kLowRow) + d * 32, 16));
    }
    multiply_64<kHalf>(s[half], narrow_descriptor(high_queries),
                       narrow_descriptor(high_keys + half * (kHalf * kHighRow)));
    products_commit();
  }
  // Of rows g and g + 8 of the warp's: s[half][4 i + 2 h + j] is of key kHalf half + 8 i + 2 t + j.
  float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 0) {
      products_wait<1>();
    } else {
      products_wait<0>();
    }
    pin(s[half]);
    if (all < (half + 1) * kHalf) {
#pragma unroll
      for (int i = 0; i < kHalf / 2; ++i) {
        if (half * kHalf + i / 4 * 8 + 2 * (lane % 4) + i % 2 >= all) s[half][i] = -INFINITY;
      }
    }
#pragma unroll
    for (int i = 0; i < kHalf / 2; ++i) {
      largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], s[half][i]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], 1));
    largest[h] = scale * fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], 2));
  }
  float low[kLow / 2] = {}, high[kHigh / 2] = {}, sum[2] = {};
  pin(low);
  pin(high);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < kHalf / 2; ++i) {
      s[half][i] = exp2_of(__fmaf_rn(s[half][i], scale, -largest[i / 2 % 2]));
      sum[i / 2 % 2] += s[half][i];
    }
    uint32_t p[kHalf / 16][4];
#pragma unroll
    for (int i = 0; i < kHalf / 4; ++i)
      p[i / 4][i % 4] = pack_bf16(s[half][2 * i], s[half][2 * i + 1]);
    if (half == 0) {
      barrier_wait(ready + 1, 0);
      if (all < kKeys) clear_values(values, high_values, all);
    }
    products_fence();
#pragma unroll
    for (int i = 0; i < kHalf / 16; ++i) {
      const int key = half * kHalf + i * 16;
      multiply_64x64(low, p[i], matrix_descriptor(values + key * kLowRow, 16));
      multiply_64x16(high, p[i], narrow_descriptor(high_values + key * kHighRow));
    }
    products_commit();
  }
  // All copies to this block are there.
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
  }
  products_wait<0>();
  pin(low);
  pin(high);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = rank * kQueries + warp * 16 + lane / 4 + 8 * h;
    if (query >= all) continue;
    const float factor = 1.0f / sum[h];
    const int64_t y = (static_cast<int64_t>(b) * a.rows + query) * a.y_stride +
                      static_cast<int64_t>(head) * a.head_dim + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < (kLow + kHigh) / 8; ++i) {
      if (i * 8 >= a.head_dim) break;
      const float* of = i < kLow / 8 ? low + 4 * i : high + 4 * (i - kLow / 8);
      store_pair(a, y + 8 * i, of[2 * h] * factor, of[2 * h + 1] * factor);
    }
  }
  // Nobody leaves while its copies are on their way to others.
  asm volatile("barrier.cluster.wait;" ::: "memory");
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Grid: (tiles of queries, heads, sequences), clusters of all tiles.
__global__ void __launch_bounds__(kThreads, 2)
    dense_whole_kernel(const __grid_constant__ Maps maps,
                       const __grid_constant__ frt_dense_attention_args a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ uint64_t ready[2];  // queries and keys; values
  pdl_trigger();
  attend(maps, a, ready);
#endif
}

}  // namespace

bool dense_whole_takes(const Device& device, const frt_dense_attention_args& args) {
  return FRT_CUDA_ARCH == 90 && device.properties().capability == 90 && dense_tiles_take(args) &&
         args.heads == args.kv_heads && args.context_rows == 0 && args.head_dim > kLow &&
         args.head_dim <= kLow + kHigh && args.rows > kQueries && args.rows <= kKeys &&
         int64_t{args.count} * args.rows <= INT32_MAX;
}

void launch_dense_whole(Stream& stream, const frt_dense_attention_args& args) {
  Maps maps;
  const auto describe = [&](CUtensorMap(&map)[2], const void* data, int64_t stride) {
    const int64_t rows = int64_t{args.count} * args.rows;
    for (int i = 0; i < 2; ++i) {
      const BoxedHeads heads{data,       args.head_dim,         args.heads, rows,
                             stride * 2, i == 0 ? kLow : kHigh, 1,          kQueries};
      map[i] = make_heads_map(stream.device(), heads, "dense attention");
    }
  };
  describe(maps.q, args.q, args.q_stride);
  describe(maps.k, args.k, args.kv_stride);
  describe(maps.v, args.v, args.kv_stride);
  const auto tiles = static_cast<unsigned>(ceil_div(args.rows, kQueries));
  const Grid grid{dim3(tiles, static_cast<unsigned>(args.heads), static_cast<unsigned>(args.count)),
                  dim3(kThreads), kSharedBytes, tiles};
  launch(stream, grid, dense_whole_kernel, maps, args);
}

}  // namespace frt::cuda
