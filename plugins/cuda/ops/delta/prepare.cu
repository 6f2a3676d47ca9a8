// SPDX-License-Identifier: Apache-2.0
// The first pass of the chunked delta rule (chunk.cuh): everything that needs no state, for
// all chunks at once. A block has one chunk of one key head and the value heads that share it.
//
//   1. convolution and silu of q, k and v: tiles K, Q (also kept in shared memory) and V
//   2. K K^T and Q K^T on tensor cores, kept in registers: they serve all value heads
//   3. per value head: A and P from them, then T from A (solve.cuh)
//
// Floor for 8192 rows of 16 key and 48 value heads: 168 MB of u in, 268 MB of tiles out: 94 us at
// 4.65 TB/s.
#include "../common/mma.cuh"
#include "chunk.cuh"
#include "solve.cuh"

namespace frt::cuda {
namespace {

using solve::kBlock;
using solve::kStride;

constexpr int kThreads = 256;
constexpr int kPass = 3;  // value heads together
constexpr double kLog2E = 1.4426950408889634;

struct Shared {
  char keys[kKeyBytes];                          // K, Q; later P of the heads of a pass
  alignas(16) float a[kPass][kChunk * kStride];  // A, then L^-1 in its diagonal blocks; later T
  float sum_high[kPass][kChunk];                 // G log2(e), in two parts
  float sum_low[kPass][kChunk];
  float beta[kPass][kChunk];
  // exp(G_i - G_j) for a row i of block m is row_decay[i] * column[m][j], both at most 1, where j
  // is in a block before m: what lies between is split at the first row of the block.
  float row_decay[kPass][kChunk];
  alignas(8) float column[kPass][kChunk / kBlock][kChunk];
};
static_assert(kPass * kTileBytes <= kKeyBytes && kTileBytes <= sizeof(float) * kChunk * kStride);

__device__ __forceinline__ void dequantise(const uint4& from, float (&to)[8]) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = low_half(words[i]);
    to[2 * i + 1] = high_half(words[i]);
  }
}

// kGroup rows of eight channels: `rows` from row first on, and the three rows before them. kConv
// false: the rows are convolved already.
template <bool kConv, int kGroup>
__device__ __forceinline__ void convolve(const frt_causal_conv_args& conv, const bf16* rows,
                                         int64_t channels, int64_t channel, bf16* window, int first,
                                         int length, uint4 (&made)[kGroup]) {
  const uint4 zero = make_uint4(0, 0, 0, 0);
  uint4 now[kGroup];
#pragma unroll
  for (int r = 0; r < kGroup; ++r) {
    now[r] = first + r < length
                 ? *reinterpret_cast<const uint4*>(rows + (first + r) * channels + channel)
                 : zero;
  }
  if constexpr (!kConv) {
#pragma unroll
    for (int r = 0; r < kGroup; ++r) made[r] = now[r];
    return;
  }
  constexpr int kHistory = 3;
  const int history = conv.width - 1;
  uint4 past[kHistory];
#pragma unroll
  for (int w = 0; w < kHistory; ++w) {
    const int row = first - kHistory + w;
    past[w] = zero;
    if (row >= 0) {
      if (row < length) {
        past[w] = *reinterpret_cast<const uint4*>(rows + row * channels + channel);
      }
    } else if (row >= -history) {
      past[w] = *reinterpret_cast<const uint4*>(window + (history + row) * channels + channel);
    }
  }
  if (first == 0) {
    // The only thread that touches these channels of the window. Row j is row length - history + j
    // of the sequence; rows before 0 are in `past`.
#pragma unroll
    for (int w = 0; w < kHistory; ++w) {
      const int j = w - (kHistory - history);
      if (j < 0) continue;
      const int row = length - history + j;
      uint4 value = zero;
      if (row >= 0) {
        value = *reinterpret_cast<const uint4*>(rows + row * channels + channel);
      } else {
#pragma unroll
        for (int p = 0; p < kHistory; ++p) {
          if (p - kHistory == row) value = past[p];
        }
      }
      *reinterpret_cast<uint4*>(window + j * channels + channel) = value;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // of the channels, for fewer registers
    float weight[kHistory + 1][4];
#pragma unroll
    for (int w = 0; w <= kHistory; ++w) {
      const int tap = w - (kHistory - history);
      const float4 four = tap < 0 ? make_float4(0, 0, 0, 0)
                                  : *reinterpret_cast<const float4*>(
                                        conv.conv_weight + tap * channels + channel + half * 4);
      weight[w][0] = four.x;
      weight[w][1] = four.y;
      weight[w][2] = four.z;
      weight[w][3] = four.w;
    }
    const auto word = [&](const uint4& from, int i) {
      return half == 0 ? (i == 0 ? from.x : from.y) : (i == 0 ? from.z : from.w);
    };
#pragma unroll
    for (int r = 0; r < kGroup; ++r) {
      uint32_t pairs[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float low = 0, high = 0;
#pragma unroll
        for (int w = 0; w <= kHistory; ++w) {
          const int from = r - kHistory + w;
          const uint32_t pair = word(from < 0 ? past[from + kHistory] : now[from], i);
          low = fmaf(weight[w][2 * i], low_half(pair), low);
          high = fmaf(weight[w][2 * i + 1], high_half(pair), high);
        }
        pairs[i] = pack_bf16(silu_fast(low), silu_fast(high));
      }
      const bool valid = first + r < length;
      (half == 0 ? made[r].x : made[r].z) = valid ? pairs[0] : 0u;
      (half == 0 ? made[r].y : made[r].w) = valid ? pairs[1] : 0u;
    }
  }
}

// G and beta of a value head, by one warp: a lane has rows 2 lane and 2 lane + 1.
__device__ __forceinline__ void gates(const frt_gated_delta_args& args, int64_t row0, int head,
                                      int first, int length, Shared& shared, int slot) {
  const int lane = threadIdx.x % 32;
  double g[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first + 2 * lane + i;
    g[i] = 0;
    float beta = 0;
    if (row < length) {
      const int64_t at = (row0 + row) * args.value_heads + head;
      g[i] = static_cast<double>(delta_log_decay(to_float(static_cast<const bf16*>(args.a)[at]),
                                                 args.dt_bias[head], args.decay[head])) *
             kLog2E;
      beta = sigmoid(to_float(static_cast<const bf16*>(args.b)[at]));
    }
    shared.beta[slot][2 * lane + i] = beta;
  }
  double sum = g[0] + g[1];
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const double other = __shfl_up_sync(~0u, sum, offset);
    if (lane >= offset) sum += other;
  }
  const double sums[2] = {sum - g[1], sum};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const auto high = static_cast<float>(sums[i]);
    shared.sum_high[slot][2 * lane + i] = high;
    shared.sum_low[slot][2 * lane + i] = static_cast<float>(sums[i] - static_cast<double>(high));
  }
}

// Sums of eight rows over 16 lanes; lanes 2 r and 2 r + 1 get that of row r. Every step keeps half
// of the rows and gives the other half away.
__device__ __forceinline__ float sum_rows(const float (&rows)[8], int lane) {
  float four[4], two[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float kept = lane & 8 ? rows[4 + i] : rows[i], given = lane & 8 ? rows[i] : rows[4 + i];
    four[i] = kept + __shfl_xor_sync(~0u, given, 8);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float kept = lane & 4 ? four[2 + i] : four[i], given = lane & 4 ? four[i] : four[2 + i];
    two[i] = kept + __shfl_xor_sync(~0u, given, 4);
  }
  const float kept = lane & 2 ? two[1] : two[0], given = lane & 2 ? two[0] : two[1];
  const float one = kept + __shfl_xor_sync(~0u, given, 2);
  return one + __shfl_xor_sync(~0u, one, 1);
}

// exp(G_row - G_column):
__device__ __forceinline__ float decay_between(const Shared& shared, int h, int row, int column) {
  return exp2_fast((shared.sum_high[h][row] - shared.sum_high[h][column]) +
                   (shared.sum_low[h][row] - shared.sum_low[h][column]));
}

// row_decay and column of the heads of a pass, by all threads.
__device__ __forceinline__ void decay_tables(Shared& shared, int heads) {
  const int block = threadIdx.x / kChunk, at = threadIdx.x % kChunk;
  static_assert(kThreads == kChunk * (kChunk / kBlock));
  for (int h = 0; h < heads; ++h) {
    const int first = block * kBlock;
    if (at < first) {
      shared.column[h][block][at] = decay_between(shared, h, first, at);
    } else if (at < first + kBlock) {
      shared.row_decay[h][at] = decay_between(shared, h, at, first);
    }
  }
}

// The products of a warp, decayed: product n, i is at row row_tile + lane / 4 + i / 2 * 8, column
// 8 n + lane % 4 * 2 + i % 2. store(half, n, first, second) takes two columns of a row; what is
// above the diagonal (kDiagonal: or on it) is 0 there.
template <bool kDiagonal, class Store>
__device__ __forceinline__ void decay_products(const Shared& shared, int h,
                                               const float (&row_factors)[2],
                                               const float (&products)[8][4], int row_tile,
                                               int lane, Store&& store) {
  const int pair = lane % 4 * 2;
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    factor[half] = row_factors[half] * shared.row_decay[h][row_tile + lane / 4 + half * 8];
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    if (n * 8 < row_tile) {
      const float2 column =
          *reinterpret_cast<const float2*>(&shared.column[h][row_tile / kBlock][n * 8 + pair]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        store(half, n, factor[half] * column.x * products[n][half * 2],
              factor[half] * column.y * products[n][half * 2 + 1]);
      }
    } else if (n * 8 < row_tile + kBlock) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_tile + lane / 4 + half * 8;
        float values[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = n * 8 + pair + i;
          const float value =
              row_factors[half] * decay_between(shared, h, row, column) * products[n][half * 2 + i];
          values[i] = column < row || (kDiagonal && column == row) ? value : 0.0f;
        }
        store(half, n, values[0], values[1]);
      }
    } else {
      store(0, n, 0.0f, 0.0f);
      store(1, n, 0.0f, 0.0f);
    }
  }
}

__device__ __forceinline__ void store_p(Shared& shared, int h, const float (&products)[8][4],
                                        int row_tile, int lane) {
  const int row = row_tile + lane / 4;
  const float factor = rsqrtf(static_cast<float>(kChunkDim));
  const float factors[2] = {factor, factor};
  char* tile = shared.keys + h * kTileBytes + lane % 4 * 4;
  decay_products<true>(shared, h, factors, products, row_tile, lane,
                       [&](int half, int n, float first, float second) {
                         *reinterpret_cast<uint32_t*>(tile + tile_offset(row + half * 8, n)) =
                             pack(first, second);
                       });
}

__device__ __forceinline__ void store_a(Shared& shared, int h, const float (&products)[8][4],
                                        int row_tile, int lane) {
  const int row = row_tile + lane / 4;
  const float factors[2] = {shared.beta[h][row], shared.beta[h][row + 8]};
  float* a = shared.a[h] + row * kStride + lane % 4 * 2;
  decay_products<false>(shared, h, factors, products, row_tile, lane,
                        [&](int half, int n, float first, float second) {
                          if (n * 8 >= row_tile + kBlock) return;
                          *reinterpret_cast<float2*>(a + half * 8 * kStride + n * 8) =
                              make_float2(first, second);
                        });
}

__device__ __forceinline__ void store_factors(const Shared& shared, int h, int row,
                                              ChunkFactors& factors) {
  const float decay = exp2_fast(shared.sum_high[h][row] + shared.sum_low[h][row]);
  factors.read_k[row] = decay;
  factors.beta[row] = shared.beta[h][row];
  factors.read_q[row] = decay * rsqrtf(static_cast<float>(kChunkDim));
  factors.write_k[row] = decay_between(shared, h, kChunk - 1, row);
  if (row == kChunk - 1) factors.decay[0] = decay;
}

// Grid: (chunks, key heads, sequences).
template <bool kConv>
__global__ void __launch_bounds__(kThreads, 2)
    prepare_kernel(const __grid_constant__ frt_gated_delta_args args,
                   const __grid_constant__ frt_causal_conv_args conv, const ChunkRecords records) {
  extern __shared__ __align__(128) char shared_bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
  pdl_trigger();
  pdl_wait();
  const int chunk = blockIdx.x, key_head = blockIdx.y, sequence = blockIdx.z;
  const int length = active_length(args.sequences, sequence);
  const int first = chunk * kChunk;
  if (first >= length) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int ratio = args.value_heads / args.key_heads;
  const int64_t row0 = static_cast<int64_t>(sequence) * args.sequences.rows;
  const int64_t channels = (2LL * args.key_heads + args.value_heads) * kChunkDim;
  if (warp < min(kPass, ratio)) {
    gates(args, row0, key_head * ratio + warp, first, length, shared, warp);
  }

  // 1. A task is eight channels of eight rows; 16 neighbouring threads have the rows of a head.
  // Where the last head would leave half of the threads idle, its tasks have four rows.
  const bf16* rows = static_cast<const bf16*>(kConv ? conv.u : args.c) + row0 * channels;
  bf16* window = nullptr;
  if (kConv) {
    window = reinterpret_cast<bf16*>(static_cast<char*>(conv.window) +
                                     args.sequences.slot[sequence] * conv.slot_stride);
  }
  char* key_record = records.key(args, sequence, chunk, key_head);
  const int eight = threadIdx.x % 16, half = eight / 8 * kTileBytes;
  const auto value_tile = [&](int member) {
    return records.value(args, sequence, chunk, key_head * ratio + member) + kTileV + half;
  };
  for (int task = threadIdx.x; task < (2 + ratio) / 2 * kThreads; task += kThreads) {
    const int group = task / 16 % 8 * 8, part = task / 128;
    const int part_head = part == 0   ? key_head
                          : part == 1 ? args.key_heads + key_head
                                      : 2 * args.key_heads + key_head * ratio + part - 2;
    uint4 made[8];
    convolve<kConv>(conv, rows, channels, static_cast<int64_t>(part_head) * kChunkDim + eight * 8,
                    window, first + group, length, made);
    if (part >= 2) {
      char* tile = value_tile(part - 2);
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        *reinterpret_cast<uint4*>(tile + tile_offset(group + r, eight % 8)) = made[r];
      }
      continue;
    }
    // k and q of length 1.
    float squares[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      float values[8];
      dequantise(made[r], values);
      squares[r] = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) squares[r] = fmaf(values[i], values[i], squares[r]);
    }
    const int tile = (part == 0 ? 2 : 0) * kTileBytes + half;
    const float factor = rsqrtf(sum_rows(squares, eight) + 1e-6f);
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float row_factor = __shfl_sync(~0u, factor, lane / 16 * 16 + 2 * r);
      float values[8];
      dequantise(made[r], values);
      const uint4 scaled = make_uint4(pack(values[0] * row_factor, values[1] * row_factor),
                                      pack(values[2] * row_factor, values[3] * row_factor),
                                      pack(values[4] * row_factor, values[5] * row_factor),
                                      pack(values[6] * row_factor, values[7] * row_factor));
      const int at = tile + tile_offset(group + r, eight % 8);
      *reinterpret_cast<uint4*>(shared.keys + at) = scaled;
      *reinterpret_cast<uint4*>(key_record + at) = scaled;
    }
  }
  if (ratio % 2 != 0) {
    const int group = threadIdx.x / 16 * 4;
    const int64_t part_head = 2 * args.key_heads + key_head * ratio + ratio - 1;
    uint4 made[4];
    convolve<kConv>(conv, rows, channels, part_head * kChunkDim + eight * 8, window, first + group,
                    length, made);
    char* tile = value_tile(ratio - 1);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      *reinterpret_cast<uint4*>(tile + tile_offset(group + r, eight % 8)) = made[r];
    }
  }
  __syncthreads();

  decay_tables(shared, min(kPass, ratio));

  // 2. Warps 0 .. 3 have 16 rows of K K^T each, warps 4 .. 7 of Q K^T.
  const bool reads = warp >= 4;
  const int row_tile = warp % 4 * 16;
  float products[8][4];
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) products[n][i] = 0.0f;
  }
  {
    const uint32_t keys = shared_address(shared.keys);
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      const uint32_t tile = keys + step / 4 * kTileBytes;
      const int piece = step % 4 * 2;
      uint32_t a[4];
      load_matrices(a, tile + (reads ? 2 * kTileBytes : 0) +
                           tile_offset(row_tile + lane % 16, piece + lane / 16));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t b[4];
        load_matrices(b,
                      tile + tile_offset(n * 16 + lane / 16 * 8 + lane % 8, piece + lane / 8 % 2));
        mma_f16(products[2 * n], a, b[0], b[1]);
        mma_f16(products[2 * n + 1], a, b[2], b[3]);
      }
    }
  }
  __syncthreads();  // K and Q make room for P

  // 3.
  for (int head0 = 0; head0 < ratio; head0 += kPass) {
    const int heads = min(kPass, ratio - head0);
    if (head0 > 0) {
      __syncthreads();
      if (warp < heads) {
        gates(args, row0, key_head * ratio + head0 + warp, first, length, shared, warp);
      }
      __syncthreads();
      decay_tables(shared, heads);
      __syncthreads();
    }
    for (int h = 0; h < heads; ++h) {
      if (reads) {
        store_p(shared, h, products, row_tile, lane);
      } else {
        store_a(shared, h, products, row_tile, lane);
      }
    }
    __syncthreads();

    const int solving = heads * 2;  // warps
    const bool solves = warp < solving, second = warp % 2 != 0;
    if (solves) {
      solve::invert_blocks(shared.a[warp / 2], second ? 2 : 0, lane);
    } else {
      for (int at = threadIdx.x - solving * 32; at < heads * kTileBytes / 16;
           at += kThreads - solving * 32) {
        const int h = at / (kTileBytes / 16), piece = at % (kTileBytes / 16) * 16;
        char* record = records.value(args, sequence, chunk, key_head * ratio + head0 + h);
        *reinterpret_cast<uint4*>(record + kTileBytes + piece) =
            *reinterpret_cast<const uint4*>(shared.keys + h * kTileBytes + piece);
      }
      for (int at = threadIdx.x - solving * 32; at < heads * kChunk;
           at += kThreads - solving * 32) {
        char* record = records.value(args, sequence, chunk, key_head * ratio + head0 + at / kChunk);
        store_factors(shared, at / kChunk, at % kChunk,
                      *reinterpret_cast<ChunkFactors*>(record + kFactors));
      }
    }
    __syncthreads();
    solve::Columns columns;
    if (solves) solve::solve(shared.a[warp / 2], shared.beta[warp / 2], lane, second, columns);
    __syncthreads();  // A is read
    if (solves) solve::store(shared.a[warp / 2], lane, second, columns);
    __syncthreads();
    for (int at = threadIdx.x; at < heads * kTileBytes / 16; at += kThreads) {
      const int h = at / (kTileBytes / 16), piece = at % (kTileBytes / 16) * 16;
      char* record = records.value(args, sequence, chunk, key_head * ratio + head0 + h);
      *reinterpret_cast<uint4*>(record + kTileT + piece) =
          *reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(shared.a[h]) + piece);
    }
  }
}

template <bool kConv>
void launch_prepare(Stream& stream, const frt_gated_delta_args& args,
                    const frt_causal_conv_args& conv, const ChunkRecords& records) {
  const Grid grid{dim3(static_cast<unsigned>(records.chunks), static_cast<unsigned>(args.key_heads),
                       static_cast<unsigned>(args.sequences.count)),
                  dim3(kThreads), sizeof(Shared)};
  launch(stream, grid, prepare_kernel<kConv>, args, conv, records);
}

}  // namespace

void launch_delta_prepare(Stream& stream, const frt_gated_delta_args& args,
                          const frt_causal_conv_args* conv, const ChunkRecords& records) {
  if (conv) {
    launch_prepare<true>(stream, args, *conv, records);
  } else {
    launch_prepare<false>(stream, args, frt_causal_conv_args{}, records);
  }
}

}  // namespace frt::cuda
