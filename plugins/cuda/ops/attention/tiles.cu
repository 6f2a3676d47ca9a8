// SPDX-License-Identifier: Apache-2.0
// Attention of many rows (prefill): tiles of 64 queries against tiles of 64 positions.
//
// Floor: 4 * head_dim operations per query and visible position (27B, 8192 rows from position 0: 16
// layers, 13.2 TFLOP; 44 ms at 300 TFLOP/s). A tile's queries are rows and heads of one key/value
// group (six heads of 10.67 rows for the 27B), so keys and values are read once per tile and group.
//
// A block has four warps of 16 queries each; scores, running maximum and sums, and the output (16 x
// head_dim, f32) stay in registers. Keys and values take turns in shared memory: while scores are
// made of the keys, the values are on their way, and while the values are added up, the next keys
// are. Queries, keys and values fill 96 KB at head size 256: two blocks per SM on a Hopper,
// whose waits then overlap, and one on devices with 100 KB. Rows of shared memory are swizzled (16
// byte unit u of row r lies at u ^ r % 8), so ldmatrix has no bank conflicts. FP8 codes go through
// registers and are dequantised to bf16 on the way.
#include "../common/mma.cuh"
#include "attention.hpp"
#include "tiles.cuh"

namespace frt::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kQueries = kWarps * 16;

// The address of 16-byte unit `unit` of row `row` in a matrix of bf16 rows of kDim.
template <int kDim>
__device__ __forceinline__ uint32_t place(uint32_t matrix, int row, int unit) {
  return matrix + static_cast<uint32_t>(row * (kDim * 2) + ((unit ^ (row & 7)) << 4));
}

// The address of unit `2 * pair` further on from `start`, an address of unit 0 or 1: the swizzle
// works within eight units, and xor with an even number commutes with it.
__device__ __forceinline__ uint32_t pair_from(uint32_t start, int pair) {
  return (start ^ static_cast<uint32_t>(pair % 4 * 32)) + static_cast<uint32_t>(pair / 4 * 128);
}

// A tile of keys or values on its way to shared memory: asynchronous copies of bf16, or registers
// that hold FP8 codes until store().
template <int kDim, class KV>
struct Loader;

template <int kDim>
struct Loader<kDim, bf16> {
  __device__ __forceinline__ void start(uint32_t tile, const std::byte* from, int64_t stride,
                                        int first, int stop) {
    constexpr int kUnits = kDim / 8;  // of a row
    constexpr int kRows = kThreads / kUnits;
    const int row = threadIdx.x / kUnits, unit = threadIdx.x % kUnits;
    RowWalk walk(from + unit * 16, stride, first + row, stop);
#pragma unroll
    for (int i = 0; i < kPositions / kRows; ++i) {
      copy_async(place<kDim>(tile, i * kRows + row, unit), walk.at());
      walk.advance(kRows, kRows * stride);
    }
    copies_commit();
  }
  __device__ __forceinline__ void finish(uint32_t) {
    copies_wait<0>();
  }
};

template <int kDim>
struct Loader<kDim, f8e4m3> {
  static constexpr int kUnits = kDim / 16;  // of a row of codes
  static constexpr int kRows = kThreads / kUnits;
  static constexpr int kLoads = kPositions / kRows;
  uint4 codes[kLoads];

  __device__ __forceinline__ void start(uint32_t, const std::byte* from, int64_t stride, int first,
                                        int stop) {
    const int row = threadIdx.x / kUnits, unit = threadIdx.x % kUnits;
    RowWalk walk(from + unit * 16, stride, first + row, stop);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      codes[i] = __ldcg(reinterpret_cast<const uint4*>(walk.at()));
      walk.advance(kRows, kRows * stride);
    }
  }
  __device__ __forceinline__ void finish(uint32_t tile) {
    const int unit = threadIdx.x % kUnits * 2;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int row = i * kRows + threadIdx.x / kUnits;
      const uint32_t words[4] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        store_dequantised(place<kDim>(tile, row, unit + j), words[2 * j], words[2 * j + 1]);
      }
    }
  }
};

template <int kDim>
__device__ __forceinline__ void load_queries(const frt_attention_args& args, const QueryTile& tile,
                                             uint32_t to) {
  constexpr int kUnits = kDim / 8;
#pragma unroll
  for (int i = 0; i < kQueries * kUnits / kThreads; ++i) {
    const int at = i * kThreads + threadIdx.x;
    const int n = at / kUnits, unit = at % kUnits;
    copy_async(place<kDim>(to, n, unit), query_vector<kDim>(args, tile, n) + unit * 8);
  }
}

// s = q K^T: 16 queries, 64 positions.
template <int kDim>
__device__ __forceinline__ void score(float (&s)[kPositions / 8][4], uint32_t queries,
                                      uint32_t keys) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t query = place<kDim>(queries, warp * 16 + lane % 16, lane / 16);
  const uint32_t key = place<kDim>(keys, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int i = 0; i < kPositions / 8; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) s[i][j] = 0;
  }
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    uint32_t a[4];
    load_matrices(a, pair_from(query, d));
#pragma unroll
    for (int i = 0; i < kPositions / 16; ++i) {
      uint32_t k[4];
      load_matrices(k, pair_from(key, d) + i * 16 * kDim * 2);
      mma_bf16(s[2 * i], a[0], a[1], a[2], a[3], k[0], k[1]);
      mma_bf16(s[2 * i + 1], a[0], a[1], a[2], a[3], k[2], k[3]);
    }
  }
}

// o += p V.
template <int kDim>
__device__ __forceinline__ void add_values(float (&o)[kDim / 8][4],
                                           const float (&p)[kPositions / 8][4], uint32_t values) {
  const int lane = threadIdx.x % 32;
  const uint32_t value = place<kDim>(values, lane % 16, lane / 16);
#pragma unroll
  for (int i = 0; i < kPositions / 16; ++i) {
    const uint32_t a0 = pack_bf16(p[2 * i][0], p[2 * i][1]);
    const uint32_t a1 = pack_bf16(p[2 * i][2], p[2 * i][3]);
    const uint32_t a2 = pack_bf16(p[2 * i + 1][0], p[2 * i + 1][1]);
    const uint32_t a3 = pack_bf16(p[2 * i + 1][2], p[2 * i + 1][3]);
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t v[4];
      load_matrices_transposed(v, pair_from(value, d) + i * 16 * kDim * 2);
      mma_bf16(o[2 * d], a0, a1, a2, a3, v[0], v[1]);
      mma_bf16(o[2 * d + 1], a0, a1, a2, a3, v[2], v[3]);
    }
  }
}

template <int kDim, class KV>
__global__ void __launch_bounds__(kThreads, 2)
    tiles_kernel(const __grid_constant__ frt_attention_args args) {
  extern __shared__ float4 shared[];
  pdl_trigger();
  pdl_wait();
  // The last rows see most: they go first, so that no SM is left alone with them.
  const QueryTile tile = query_tile<kDim, KV>(args, static_cast<int>(gridDim.x - 1 - blockIdx.x),
                                              kQueries, blockIdx.y, blockIdx.z);
  if (tile.last < tile.first) return;
  const uint32_t queries = shared_address(shared);
  const uint32_t keys = queries + kQueries * kDim * 2;
  const uint32_t values = keys + kPositions * kDim * 2;

  RunningSums state;
  float o[kDim / 8][4] = {};
  Loader<kDim, KV> loader;
  load_queries<kDim>(args, tile, queries);
  copies_commit();
  PageWalk<kPositions> walk;
  tile.begin(walk);
  loader.start(keys, walk.rows_of(args.keys), tile.stride, 0, tile.stop);
  for (int at = 0; at < tile.stop; at += kPositions) {
    loader.finish(keys);
    if (sizeof(KV) == 1 && at == 0) copies_wait<0>();
    __syncthreads();  // the keys are there, and nobody needs the values before
    loader.start(values, walk.rows_of(args.values), tile.stride, at, tile.stop);
    float s[kPositions / 8][4], shrink[2];
    score<kDim>(s, queries, keys);
    loader.finish(values);
    __syncthreads();  // the values are there, and nobody needs the keys
    if (const int next = at + kPositions; next < tile.stop) {
      tile.advance(walk, next);
      loader.start(keys, walk.rows_of(args.keys), tile.stride, next, tile.stop);
    }
    soften(s, state, tile, at, shrink);
    rescale<kDim>(o, shrink);
    add_values<kDim>(o, s, values);
  }
  __syncthreads();
  store_tile<kDim>(args, tile, o, state, sizeof(KV) == 1 ? args.v_scale : 1.0f,
                   shared + kQueries * kDim / 8);
}

template <int kDim>
void launch_dim(Stream& stream, const frt_attention_args& args) {
  const int64_t group = args.heads / args.kv_heads;
  Grid grid;
  grid.blocks =
      dim3(static_cast<unsigned>(ceil_div(args.sequences.rows * group, kQueries)),
           static_cast<unsigned>(args.kv_heads), static_cast<unsigned>(args.sequences.count));
  grid.threads = dim3(kThreads);
  grid.shared_bytes = (kQueries + 2 * kPositions) * kDim * sizeof(bf16);
  if (args.kv_dtype == FRT_DTYPE_BF16) {
    launch(stream, grid, tiles_kernel<kDim, bf16>, args);
  } else {
    launch(stream, grid, tiles_kernel<kDim, f8e4m3>, args);
  }
}

}  // namespace

void launch_tiles(Stream& stream, AttentionCall& args) {
  switch (args.head_dim) {
    case 64:
      return launch_dim<64>(stream, args);
    case 128:
      return launch_dim<128>(stream, args);
    default:
      return launch_dim<256>(stream, args);
  }
}

}  // namespace frt::cuda
