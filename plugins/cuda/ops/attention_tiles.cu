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
// are. Queries, keys and values fill 96 KB at head size 256: two blocks per processor on a Hopper,
// whose waits then overlap, and one on devices with 100 KB. Rows of shared memory are swizzled (16
// byte unit u of row r lies at u ^ r % 8), so ldmatrix has no bank conflicts. FP8 codes go through
// registers and are widened to bf16 on the way.
//
// Tiles of positions begin at multiples of 64 whatever the row, and every block walks them in the
// same order: a row's bits depend on what it sees, not on its place in a tile, a chunk or a bucket.
// (What a row does not see has weight 0 and leaves maximum and sums as they are.)
#include "attention.hpp"
#include "attention_mma.cuh"
#include "attention_rows.cuh"

namespace frt::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kQueries = kWarps * 16;
constexpr int kPositions = 64;

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

// A lane's 16-byte units of rows first, first + step ..: rows behind the last visible one are not
// read, some row before them is instead (their weights are 0).
class RowWalk {
 public:
  __device__ __forceinline__ RowWalk(const std::byte* from, int64_t stride, int first, int stop)
      : at_(from + min(first, stop - 1) * stride), left_(stop - first) {}
  __device__ __forceinline__ const std::byte* at() const { return at_; }
  __device__ __forceinline__ void advance(int rows, int64_t step) {
    left_ -= rows;
    if (left_ > 0) at_ += step;
  }

 private:
  const std::byte* at_;
  int left_;  // rows from here to the last visible one
};

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
        asm volatile(
            "st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(place<kDim>(tile, row, unit + j)),
            "r"(widen_e4m3(__byte_perm(words[2 * j], 0, 0x1000))),
            "r"(widen_e4m3(__byte_perm(words[2 * j], 0, 0x3020))),
            "r"(widen_e4m3(__byte_perm(words[2 * j + 1], 0, 0x1000))),
            "r"(widen_e4m3(__byte_perm(words[2 * j + 1], 0, 0x3020)))
            : "memory");
      }
    }
  }
};

// The queries of a tile; those behind the last are read as that one and dropped in the end.
template <int kDim>
__device__ __forceinline__ void load_queries(const frt_attention_args& args, uint32_t tile,
                                             int64_t row0, int head0, int group, int first,
                                             int last) {
  constexpr int kUnits = kDim / 8;
#pragma unroll
  for (int i = 0; i < kQueries * kUnits / kThreads; ++i) {
    const int at = i * kThreads + threadIdx.x;
    const int n = at / kUnits, unit = at % kUnits;
    const int query = min(first + n, last);
    const int64_t vector = (row0 + query / group) * args.heads + head0 + query % group;
    copy_async(place<kDim>(tile, n, unit),
               static_cast<const bf16*>(args.q) + vector * kDim + unit * 8);
  }
}

// Running state of one warp: queries g and g + 8 of its sixteen.
template <int kDim>
struct State {
  float o[kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // over the positions of this lane
};

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
      multiply_16x8x16(s[2 * i], a[0], a[1], a[2], a[3], k[0], k[1]);
      multiply_16x8x16(s[2 * i + 1], a[0], a[1], a[2], a[3], k[2], k[3]);
    }
  }
}

// Scores to weights; the sums so far shrink to the new maximum. `visible`: positions of this tile
// that queries g and g + 8 see.
template <int kDim>
__device__ __forceinline__ void soften(float (&s)[kPositions / 8][4], State<kDim>& state,
                                       float scale, bool masked, const int (&visible)[2]) {
  const int t = threadIdx.x % 4;
  if (masked) {
#pragma unroll
    for (int i = 0; i < kPositions / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i * 8 + 2 * t + j % 2 >= visible[j / 2]) s[i][j] = -INFINITY;
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float now = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
    for (int i = 1; i < kPositions / 8; ++i) {
      now = fmaxf(now, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
    }
    now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
    now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
    now = fmaxf(now * scale, state.largest[h]);
    const float shrink = exp2_fast(state.largest[h] - now);
    state.largest[h] = now;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPositions / 8; ++i) {
#pragma unroll
      for (int j = 2 * h; j < 2 * h + 2; ++j) {
        s[i][j] = exp2_fast(__fmaf_rn(s[i][j], scale, -now));
        sum += s[i][j];
      }
    }
    state.sum[h] = state.sum[h] * shrink + sum;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      state.o[i][2 * h] *= shrink;
      state.o[i][2 * h + 1] *= shrink;
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
      multiply_16x8x16(o[2 * d], a0, a1, a2, a3, v[0], v[1]);
      multiply_16x8x16(o[2 * d + 1], a0, a1, a2, a3, v[2], v[3]);
    }
  }
}

// The sums of the block to memory, by way of shared memory (f32, 64 x kDim: where keys and values
// were), so that gates are read and results written 16 bytes a lane.
template <int kDim>
__device__ __forceinline__ void store_tile(const frt_attention_args& args, State<kDim>& state,
                                           float v_scale, float4* shared, int64_t row0, int head0,
                                           int group, int first, int last) {
  constexpr int kUnits = kDim / 4;  // float4 of a row
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float4* own = shared + warp * 16 * kUnits;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = state.sum[h];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float factor = v_scale / sum;
    const int n = g + 8 * h;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      const int unit = (2 * i + t / 2) ^ (n & 7);
      reinterpret_cast<float2*>(own + n * kUnits + unit)[t % 2] =
          make_float2(state.o[i][2 * h] * factor, state.o[i][2 * h + 1] * factor);
    }
  }
  __syncwarp();
  for (int at = lane; at < 16 * kUnits / 2; at += 32) {
    const int n = at / (kUnits / 2), unit = at % (kUnits / 2) * 2;
    const int query = first + warp * 16 + n;
    if (query > last) break;
    const int64_t row = row0 + query / group;
    const int head = head0 + query % group;
    const float4 low = own[n * kUnits + (unit ^ (n & 7))];
    const float4 high = own[n * kUnits + ((unit + 1) ^ (n & 7))];
    float value[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (args.gate) {
      const auto gate =
          load_vector<bf16, 8>(static_cast<const bf16*>(args.gate) + row * args.gate_row_stride +
                               head * args.gate_head_stride + unit * 4);
#pragma unroll
      for (int i = 0; i < 8; ++i) value[i] *= sigmoid(to_float(gate.values[i]));
    }
    store_floats<8>(static_cast<bf16*>(args.y) + (row * args.heads + head) * kDim + unit * 4, value,
                    1.0f);
  }
}

template <int kDim, class KV>
__global__ void __launch_bounds__(kThreads, 2)
    tiles_kernel(const __grid_constant__ frt_attention_args args) {
  extern __shared__ float4 shared[];
  const int group = args.heads / args.kv_heads;
  const int kv_head = blockIdx.y, b = blockIdx.z;
  pdl_trigger();
  pdl_wait();
  // The last rows see most: they go first, so that no processor is left alone with them.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries;
  const int last = min(first + kQueries, active_length(args.sequences, b) * group) - 1;
  if (last < first) return;

  const int64_t row0 = static_cast<int64_t>(b) * args.sequences.rows;
  const int head0 = kv_head * group;
  const int position = args.sequences.position[b];
  const int64_t stride = static_cast<int64_t>(args.kv_heads) * kDim * sizeof(KV);
  const int64_t base =
      args.sequences.slot[b] * args.slot_stride + kv_head * static_cast<int64_t>(kDim * sizeof(KV));
  const std::byte* key_rows = static_cast<const std::byte*>(args.keys) + base;
  const std::byte* value_rows = static_cast<const std::byte*>(args.values) + base;
  const uint32_t queries = shared_address(shared);
  const uint32_t keys = queries + kQueries * kDim * 2;
  const uint32_t values = keys + kPositions * kDim * 2;

  const int stop = seen_positions(position, last / group, args.max_rows);
  const int diagonal = seen_positions(position, first / group, args.max_rows);  // all see those
  int seen[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = first + static_cast<int>(threadIdx.x) / 32 * 16 +
                      static_cast<int>(threadIdx.x) % 32 / 4 + 8 * h;
    seen[h] = seen_positions(position, min(query, last) / group, args.max_rows);
  }
  const float scale = args.scale * (sizeof(KV) == 1 ? args.k_scale : 1.0f) * 1.4426950408889634f;

  State<kDim> state;
  Loader<kDim, KV> loader;
  load_queries<kDim>(args, queries, row0, head0, group, first, last);
  copies_commit();
  loader.start(keys, key_rows, stride, 0, stop);
  for (int at = 0; at < stop; at += kPositions) {
    loader.finish(keys);
    if (sizeof(KV) == 1 && at == 0) copies_wait<0>();
    __syncthreads();  // the keys are there, and nobody needs the values before
    loader.start(values, value_rows, stride, at, stop);
    float s[kPositions / 8][4];
    score<kDim>(s, queries, keys);
    loader.finish(values);
    __syncthreads();  // the values are there, and nobody needs the keys
    if (at + kPositions < stop) loader.start(keys, key_rows, stride, at + kPositions, stop);
    const int visible[2] = {seen[0] - at, seen[1] - at};
    soften<kDim>(s, state, scale, at + kPositions > diagonal, visible);
    add_values<kDim>(state.o, s, values);
  }
  __syncthreads();
  store_tile<kDim>(args, state, sizeof(KV) == 1 ? args.v_scale : 1.0f, shared + kQueries * kDim / 8,
                   row0, head0, group, first, last);
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

void launch_tiles(Stream& stream, const frt_attention_args& args) {
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
