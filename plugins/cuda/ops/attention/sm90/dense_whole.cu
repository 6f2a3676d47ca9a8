// SPDX-License-Identifier: Apache-2.0
// Dense attention with all keys in shared memory, on Hopper's warpgroup products: an image encoder,
// 256 rows, heads of 72.
//
// A block has 64 queries of a head and up to 256 keys: two groups of four warps have every other 64
// of them, and at the end they merge their sums in shared memory. The blocks of a cluster are the
// tiles of queries of one head of one sequence; each copies 64 keys and values, and its turn goes
// to all of them. Keys are a loop, although the scores of all would fit in registers: code that is
// executed once takes longer to fetch than to run.
//
// Heads of 72 columns lie in shared memory as blocks of 64 and of 16: copies write zeros for what
// the head does not have, without which the next head would be there. The first blocks have rows of
// 128 bytes, the second ones of 32, each with the swizzle of its length.
//
// Floor: 2 x 256 rows, 16 heads, 0.6 GFLOP and 5 MB: latency, 4 us.
#include "../../common/arch.cuh"
#include "../../common/launch.cuh"
#include "../../common/mbarrier.cuh"
#include "../../common/mma.cuh"
#include "../../common/tensor_map.hpp"
#include "../../dense/sm90/multiply.cuh"
#include "../dense.hpp"
#include "../dense_y.cuh"
#include "wgmma.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kQueries = 64;
constexpr int kKeys = 256;                               // at most
constexpr int kLow = 64, kHigh = 16;                     // columns of the two blocks of a head
constexpr int kLowRow = kLow * 2, kHighRow = kHigh * 2;  // bytes
constexpr int kTile = kQueries * (kLowRow + kHighRow);   // of 64 rows of both blocks
constexpr std::size_t kSharedBytes = kTile + 2 * std::size_t{kKeys} * (kLowRow + kHighRow) + 1024;
static_assert(kSharedBytes == kDenseWholeSharedBytes);

struct Maps {
  CUtensorMap q[2], k[2], v[2];  // (columns, heads, rows): boxes of 64 rows and a block's columns
};

#if FRT_ARCH_WGMMA

constexpr int kSumRow = kLow + kHigh + 8;  // words: pairs of eight rows have few bank conflicts
// The score of a key that is not there: with all of a tile missing, weights are finite.
constexpr float kNone = -1e30f;

// Rows of 32 bytes, in the swizzle of that length; eight of them are 256 bytes.
__device__ __forceinline__ uint64_t gemv_descriptor(uint32_t address) {
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
#pragma unroll 1
  for (int i = first * 8 + tid; i < kKeys * 8; i += kThreads) clear(low + i * 16);
#pragma unroll 1
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
  const int group = warp / 4;
  const int rank = static_cast<int>(blockIdx.x), ranks = static_cast<int>(gridDim.x);
  const int head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  if (tid == 0) {
    barrier_init(ready, 1);
    barrier_init(ready + 1, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    barrier_expect(ready, (1 + ranks) * kTile);
    barrier_expect(ready + 1, ranks * kTile);
    // A map is 128 bytes of parameters: the first copy would wait for them.
    for (int i = 0; i < 2; ++i) {
      for (const CUtensorMap* map : {&maps.k[i], &maps.q[i], &maps.v[i]}) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
      }
    }
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

  float low[kLow / 2] = {}, high[kHigh / 2] = {}, s[kLow / 2] = {};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  barrier_wait(ready, 0);
#pragma unroll 1
  for (int first = group * kQueries; first < kKeys; first += 2 * kQueries) {
#pragma unroll
    for (int i = 0; i < kLow / 2; ++i) s[i] = 0;
    pin(s);
    products_fence();
#pragma unroll
    for (int d = 0; d < kLow / 16; ++d) {
      multiply_64<kQueries>(s, matrix_descriptor(queries + d * 32, 16),
                            matrix_descriptor(keys + first * kLowRow + d * 32, 16));
    }
    multiply_64<kQueries>(s, gemv_descriptor(high_queries),
                          gemv_descriptor(high_keys + first * kHighRow));
    products_commit();
    products_wait<0>();
    pin(s);
    // Of rows g and g + 8 of the warp's: s[4 i + 2 h + j] is of key first + 8 i + 2 t + j.
    if (all < first + kQueries) {
#pragma unroll
      for (int i = 0; i < kLow / 2; ++i) {
        if (first + i / 4 * 8 + 2 * (lane % 4) + i % 2 >= all) s[i] = kNone;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = s[2 * h];
#pragma unroll
      for (int i = 0; i < kLow / 8; ++i) {
        top = fmaxf(top, fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(largest[h], scale * fmaxf(top, __shfl_xor_sync(~0u, top, 2)));
      const float shrink = exp2_of(largest[h] - top);
      largest[h] = top;
      sum[h] *= shrink;
#pragma unroll
      for (int i = 0; i < kLow / 8; ++i) {
        low[4 * i + 2 * h] *= shrink;
        low[4 * i + 2 * h + 1] *= shrink;
      }
#pragma unroll
      for (int i = 0; i < kHigh / 8; ++i) {
        high[4 * i + 2 * h] *= shrink;
        high[4 * i + 2 * h + 1] *= shrink;
      }
    }
    float parts[8] = {};
#pragma unroll
    for (int i = 0; i < kLow / 2; ++i) {
      s[i] = exp2_of(__fmaf_rn(s[i], scale, -largest[i / 2 % 2]));
      parts[i % 8] += s[i];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += (parts[2 * h] + parts[2 * h + 1]) + (parts[2 * h + 4] + parts[2 * h + 5]);
    }
    uint32_t p[kQueries / 16][4];
#pragma unroll
    for (int i = 0; i < kLow / 4; ++i) p[i / 4][i % 4] = pack_bf16(s[2 * i], s[2 * i + 1]);
    if (first == group * kQueries) {
      barrier_wait(ready + 1, 0);
      if (all < kKeys) clear_values(values, high_values, all);
    }
    products_fence();
#pragma unroll
    for (int i = 0; i < kQueries / 16; ++i) {
      const int key = first + i * 16;
      multiply_64x64(low, p[i], matrix_descriptor(values + key * kLowRow, 16));
      multiply_64x16(high, p[i], gemv_descriptor(high_values + key * kHighRow));
    }
    products_commit();
    products_wait<0>();
    pin(low);
    pin(high);
  }
  // All copies to this block are there.
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
    sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
  }
  __syncthreads();  // nobody needs the keys: both groups' sums go to their place
  float* room =
      reinterpret_cast<float*>(reinterpret_cast<char*>(shared) + (keys - shared_address(shared)));
  float* row = room + (group * kQueries + warp % 4 * 16 + lane / 4) * kSumRow;
#pragma unroll
  for (int h = 0; h < 2; ++h, row += 8 * kSumRow) {
    if (lane % 4 == 0) {
      *reinterpret_cast<float2*>(row + kLow + kHigh) = make_float2(largest[h], sum[h]);
    }
#pragma unroll
    for (int i = 0; i < (kLow + kHigh) / 8; ++i) {
      const float* of = i < kLow / 8 ? low + 4 * i : high + 4 * (i - kLow / 8);
      *reinterpret_cast<float2*>(row + 2 * (lane % 4) + i * 8) =
          make_float2(of[2 * h], of[2 * h + 1]);
    }
  }
  __syncthreads();
  const float result = result_factor(a);
  const int units = a.head_dim / 4, count = min(kQueries, all - rank * kQueries);
#pragma unroll 2
  for (int i = tid; i < count * units; i += kThreads) {
    const int n = i / units, column = (i - n * units) * 4;
    const float* one = room + n * kSumRow;
    const float* two = one + kQueries * kSumRow;
    const float2 end = *reinterpret_cast<const float2*>(one + kLow + kHigh);
    const float2 other_end = *reinterpret_cast<const float2*>(two + kLow + kHigh);
    const float most = fmaxf(end.x, other_end.x);
    float factor = exp2_of(end.x - most), other = exp2_of(other_end.x - most);
    const float share = __fdividef(result, factor * end.y + other * other_end.y);
    factor *= share;
    other *= share;
    float4 x = *reinterpret_cast<const float4*>(one + column);
    const float4 z = *reinterpret_cast<const float4*>(two + column);
    x.x = factor * x.x + other * z.x;
    x.y = factor * x.y + other * z.y;
    x.z = factor * x.z + other * z.z;
    x.w = factor * x.w + other * z.w;
    const int64_t y = (static_cast<int64_t>(b) * a.rows + rank * kQueries + n) * a.y_stride +
                      static_cast<int64_t>(head) * a.head_dim + column;
    store_four(a, y, x);
  }
  // Nobody leaves while its copies are on their way to others.
  asm volatile("barrier.cluster.wait;" ::: "memory");
}

#endif  // FRT_ARCH_WGMMA

// Grid: (tiles of queries, heads, sequences), clusters of all tiles.
__global__ void __launch_bounds__(kThreads, 2)
    dense_whole_kernel(const __grid_constant__ Maps maps,
                       const __grid_constant__ frt_dense_attention_args a) {
#if FRT_ARCH_WGMMA
  __shared__ uint64_t ready[2];  // queries and keys; values
  pdl_trigger();
  attend(maps, a, ready);
#endif
}

}  // namespace

bool dense_whole_supports(Device& device, DenseAttentionCall& args) {
  return dense_tiles_support(device, args) && args.heads == args.kv_heads &&
         args.context_rows == 0 && args.head_dim > kLow && args.head_dim <= kLow + kHigh &&
         args.rows > kQueries && args.rows <= kKeys && int64_t{args.count} * args.rows <= INT32_MAX;
}

void launch_dense_whole(Stream& stream, DenseAttentionCall& args) {
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
