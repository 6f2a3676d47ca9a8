// SPDX-License-Identifier: Apache-2.0
// Attention of many rows (prefill) on Hopper: the tiles of attention/tiles.cu by warpgroup
// products.
//
// The portable kernel is bound by shared memory: each warp of sixteen queries reads all keys and
// values of a tile through ldmatrix. A warpgroup's product reads its second matrix once for 64
// rows, inside the tensor cores. Head size 256, bf16 cache.
//
// A block has two warpgroups of 64 queries each; 64 KB of queries and two stages of keys and of
// values (32 KB each) fill an SM's shared memory. Per tile of 64 positions, with one barrier:
// start the scores of the next tile, start adding this tile's values, make weights of the next
// scores while the values are added, then rescale. Copies run one tile ahead.
#include "../../common/arch.cuh"
#include "../../common/mma.cuh"
#include "../attention.hpp"
#include "../tiles.cuh"
#include "wgmma.cuh"

namespace frt::cuda {
namespace {

constexpr int kDim = 256;
constexpr int kThreads = 256;
constexpr int kQueries = 128;
constexpr uint32_t kTileBytes = kPositions * kDim * 2;
constexpr uint32_t kQueryBytes = kQueries * kDim * 2;
constexpr uint32_t kCodeBytes = kPositions * kDim;  // a tile of FP8 codes

template <class KV>
constexpr std::size_t shared_bytes() {
  return kQueryBytes + 4 * kTileBytes + (sizeof(KV) == 1 ? 2 * kCodeBytes : 0) + 1024;  // alignment
}

static_assert(shared_bytes<f8e4m3>() == kWgmmaTilesSharedBytes && kDim == kWgmmaTilesDim);

#if FRT_ARCH_WGMMA
// The address of 16-byte unit `unit` of row `row` in blocks of 64 columns of `rows` rows.
__device__ __forceinline__ uint32_t place(uint32_t matrix, int rows, int row, int unit) {
  return matrix +
         static_cast<uint32_t>((unit / 8 * rows + row) * 128 + ((unit % 8 ^ (row & 7)) << 4));
}

// Rows first .. of keys or values on their way: bf16 to where the products read them, FP8 codes to
// `codes`, from where dequantise_tile() takes them.
template <class KV>
__device__ __forceinline__ void copy_tile(uint32_t to, uint32_t codes, const std::byte* from,
                                          int64_t stride, int first, int stop) {
  constexpr int kUnits = kDim * static_cast<int>(sizeof(KV)) / 16;
  constexpr int kRows = kThreads / kUnits;
  const int row = threadIdx.x / kUnits, unit = threadIdx.x % kUnits;
  RowWalk walk(from + unit * 16, stride, first + row, stop);
#pragma unroll
  for (int i = 0; i < kPositions / kRows; ++i) {
    if constexpr (sizeof(KV) == 2) {
      copy_async(place(to, kPositions, row, unit) + i * kRows * 128, walk.at());
    } else {
      copy_async(codes + (i * kThreads + threadIdx.x) * 16, walk.at());
    }
    walk.advance(kRows, kRows * stride);
  }
}

// What this thread copied, which has arrived, to where the products read it.
template <class KV>
__device__ __forceinline__ void dequantise_tile(uint32_t to, uint32_t codes) {
  if constexpr (sizeof(KV) == 1) {
    constexpr int kUnits = kDim / 16;
    constexpr int kRows = kThreads / kUnits;
    const int row = threadIdx.x / kUnits, unit = threadIdx.x % kUnits * 2;
#pragma unroll
    for (int i = 0; i < kPositions / kRows; ++i) {
      uint32_t words[4];
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                   : "r"(codes + (i * kThreads + threadIdx.x) * 16));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        store_dequantised(place(to, kPositions, row, unit + j) + i * kRows * 128, words[2 * j],
                          words[2 * j + 1]);
      }
    }
  }
}

// Starts s = q K^T for the queries of this warpgroup.
__device__ __forceinline__ void start_scores(float (&s)[kPositions / 8][4], uint32_t queries,
                                             uint32_t keys) {
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    const uint32_t column = static_cast<uint32_t>(d % 4 * 32);
    multiply_64x64x16(s, matrix_descriptor(queries + d / 4 * (kQueries * 128) + column, 16),
                      matrix_descriptor(keys + d / 4 * (kPositions * 128) + column, 16), d > 0);
  }
  products_commit();
}

// Starts o += p V.
__device__ __forceinline__ void start_values(float (&o)[kDim / 8][4],
                                             const uint32_t (&p)[kPositions / 16][4],
                                             uint32_t values) {
#pragma unroll
  for (int i = 0; i < kPositions / 16; ++i) {
    multiply_64x256x16(o, p[i][0], p[i][1], p[i][2], p[i][3],
                       matrix_descriptor(values + i * 16 * 128, kPositions * 128));
  }
  products_commit();
}

__device__ __forceinline__ void pack(const float (&s)[kPositions / 8][4],
                                     uint32_t (&p)[kPositions / 16][4]) {
#pragma unroll
  for (int i = 0; i < kPositions / 16; ++i) {
    p[i][0] = pack_bf16(s[2 * i][0], s[2 * i][1]);
    p[i][1] = pack_bf16(s[2 * i][2], s[2 * i][3]);
    p[i][2] = pack_bf16(s[2 * i + 1][0], s[2 * i + 1][1]);
    p[i][3] = pack_bf16(s[2 * i + 1][2], s[2 * i + 1][3]);
  }
}

template <class KV>
__device__ __forceinline__ void attend(const frt_attention_args& args) {
  extern __shared__ float4 shared[];
  // The last rows see most: they go first, so that no SM is left alone with them.
  const QueryTile tile = query_tile<kDim, KV>(args, static_cast<int>(gridDim.x - 1 - blockIdx.x),
                                              kQueries, blockIdx.y, blockIdx.z);
  if (tile.last < tile.first) return;
  const uint32_t queries = (shared_address(shared) + 1023) / 1024 * 1024;
  const uint32_t keys = queries + kQueryBytes;
  const uint32_t values = keys + 2 * kTileBytes;
  const uint32_t key_codes = values + 2 * kTileBytes, value_codes = key_codes + kCodeBytes;
  const uint32_t own_queries = queries + threadIdx.x / 128 * (64 * 128);
  PageWalk<kPositions> walk;
  const auto copy_keys = [&](uint32_t stage, int first) {
    copy_tile<KV>(keys + stage, key_codes, walk.rows_of(args.keys), tile.stride, first, tile.stop);
  };
  const auto copy_values = [&](uint32_t stage, int first) {
    copy_tile<KV>(values + stage, value_codes, walk.rows_of(args.values), tile.stride, first,
                  tile.stop);
  };

  for (int n = threadIdx.x / 32; n < kQueries; n += kThreads / 32) {
    const int unit = threadIdx.x % 32;
    copy_async(place(queries, kQueries, n, unit), query_vector<kDim>(args, tile, n) + unit * 8);
  }
  tile.begin(walk);
  copy_keys(0, 0);
  copies_commit();
  copy_values(0, 0);
  copies_commit();
  copies_wait<1>();
  dequantise_tile<KV>(keys, key_codes);
  tile.advance(walk, kPositions);
  if (kPositions < tile.stop) copy_keys(kTileBytes, kPositions);
  copies_commit();
  publish_to_products();
  __syncthreads();

  RunningSums state;
  float o[kDim / 8][4] = {};
  float s[kPositions / 8][4] = {}, shrink[2];
  uint32_t p[kPositions / 16][4];
  products_fence();
  start_scores(s, own_queries, keys);
  products_wait<0>();
  pin(s);
  soften(s, state, tile, 0, shrink);
  pack(s, p);

  uint32_t stage = 0;  // of this tile's values; the next tile's keys are in the other one
  for (int next = kPositions; next < tile.stop; next += kPositions) {
    copies_wait<0>();
    dequantise_tile<KV>(keys + (kTileBytes - stage), key_codes);
    dequantise_tile<KV>(values + stage, value_codes);
    publish_to_products();
    __syncthreads();  // the next keys and these values are there; what they replace is not needed
    copy_values(kTileBytes - stage, next);
    tile.advance(walk, next + kPositions);
    if (next + kPositions < tile.stop) copy_keys(stage, next + kPositions);
    copies_commit();
    products_fence();
    start_scores(s, own_queries, keys + (kTileBytes - stage));
    start_values(o, p, values + stage);
    products_wait<1>();
    pin(s);
    soften(s, state, tile, next, shrink);
    products_wait<0>();
    pin(o);
    rescale<kDim>(o, shrink);
    pack(s, p);
    stage = kTileBytes - stage;
  }
  copies_wait<0>();
  dequantise_tile<KV>(values + stage, value_codes);
  publish_to_products();
  __syncthreads();
  products_fence();
  start_values(o, p, values + stage);
  products_wait<0>();
  pin(o);
  __syncthreads();
  store_tile<kDim>(args, tile, o, state, sizeof(KV) == 1 ? args.v_scale : 1.0f,
                   shared + (keys - shared_address(shared)) / sizeof(float4));
}
#endif

template <class KV>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_tiles_kernel(const __grid_constant__ frt_attention_args args) {
#if FRT_ARCH_WGMMA
  pdl_trigger();
  pdl_wait();
  attend<KV>(args);
#endif
}

}  // namespace

void launch_wgmma_tiles(Stream& stream, AttentionCall& args) {
  const int64_t group = args.heads / args.kv_heads;
  Grid grid;
  grid.blocks =
      dim3(static_cast<unsigned>(ceil_div(args.sequences.rows * group, kQueries)),
           static_cast<unsigned>(args.kv_heads), static_cast<unsigned>(args.sequences.count));
  grid.threads = dim3(kThreads);
  if (args.kv_dtype == FRT_DTYPE_BF16) {
    grid.shared_bytes = shared_bytes<bf16>();
    launch(stream, grid, wgmma_tiles_kernel<bf16>, args);
  } else {
    grid.shared_bytes = shared_bytes<f8e4m3>();
    launch(stream, grid, wgmma_tiles_kernel<f8e4m3>, args);
  }
}

}  // namespace frt::cuda
