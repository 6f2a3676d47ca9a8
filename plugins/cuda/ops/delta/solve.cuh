// SPDX-License-Identifier: Apache-2.0
// ops/delta/solve.cuh - T = ((I + A)^-1 - I) diag(beta) for a strictly lower triangular A of 64 x
// 64 in shared memory (chunk.cuh), by two warps.
//
// The inverses of the four diagonal blocks of 16 rows by forward substitution, the blocks below
// from them by products on tensor cores. In f32: each operand of these products is the sum of two
// f16 numbers, of which only the product of the small parts is left out.
#pragma once

#include "../common/mma.cuh"
#include "chunk.cuh"

namespace frt::cuda::solve {

inline constexpr int kStride = 72;  // floats of a row of A: pairs without bank conflicts
inline constexpr int kBlock = 16;   // rows of a block of A

// L^-1 of two diagonal blocks in place of A, by one warp: 16 lanes a block, a lane a column.
__device__ __forceinline__ void invert_blocks(float* a, int first_block, int lane) {
  const int first = (first_block + lane / kBlock) * kBlock, column = lane % kBlock;
  float* block = a + first * kStride + first;
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 four = *reinterpret_cast<const float4*>(block + i * kStride + j);
      const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (j + e < i) sum = fmaf(-values[e], x[j + e], sum);
      }
    }
    x[i] = sum;
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kBlock; ++i) block[i * kStride + column] = x[i];
}

// A block of 16 x 16 as accumulators of two products: (row lane / 4 + i / 2 * 8, column n * 8 +
// lane % 4 * 2 + i % 2).
using Block = float[2][4];

__device__ __forceinline__ float2 dequantise_half(uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// An operand as the sum of two.
struct Split {
  uint32_t high[4], low[4];
  __device__ __forceinline__ void set(int i, float first, float second) {
    high[i] = pack(first, second);
    const float2 parts = dequantise_half(high[i]);
    low[i] = pack(first - parts.x, second - parts.y);
  }
};

__device__ __forceinline__ void left_operand(const Block& block, Split& made) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    made.set(i, block[i / 2][i % 2 * 2], block[i / 2][i % 2 * 2 + 1]);
  }
}

// d += x b^T for the block b of `a`.
__device__ __forceinline__ void multiply_block(Block& d, const Split& x, const float* b, int lane) {
  Split right;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 values = *reinterpret_cast<const float2*>(b + (lane / 4 + i / 2 * 8) * kStride +
                                                           lane % 4 * 2 + i % 2 * 8);
    right.set(i, values.x, values.y);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    mma_f16(d[n], x.low, right.high[2 * n], right.high[2 * n + 1]);
    mma_f16(d[n], x.high, right.low[2 * n], right.low[2 * n + 1]);
    mma_f16(d[n], x.high, right.high[2 * n], right.high[2 * n + 1]);
  }
}

// A block of T: 8 x 8 matrices of f16, [rows][columns].
using TileBlock = uint32_t[2][2];

// Column kColumn of blocks of T = (L^-1 - I) diag(beta). With the blocks Z_m = (L^-1)_m,kColumn^T:
//   Z_b^T = -L^-1_bb sum_m A_bm Z_m^T,  m = kColumn .. b - 1,
// computed transposed, so that results are left operands as they are.
template <int kColumn>
__device__ __forceinline__ void solve_column(const float* a, const float* beta, int lane,
                                             TileBlock (&made)[4 - kColumn]) {
  const int row = lane / 4, pair = lane % 4 * 2;
  const float factors[2] = {beta[kColumn * kBlock + row], beta[kColumn * kBlock + row + 8]};
  const auto finish = [&](const Block& z, TileBlock& block) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        block[n][half] =
            transpose_8x8(pack(z[n][2 * half] * factors[half], z[n][2 * half + 1] * factors[half]));
      }
    }
  };
  Split z[4 - kColumn];
  {
    Block own, below;
    const float* block = a + kColumn * kBlock * (kStride + 1);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = n * 8 + pair + i % 2, column = row + i / 2 * 8;
        own[n][i] = block[at * kStride + column];
        below[n][i] = at > column ? own[n][i] : 0.0f;
      }
    }
    finish(below, made[0]);
    left_operand(own, z[0]);
  }
#pragma unroll
  for (int b = kColumn + 1; b < 4; ++b) {
    Block sum{};
#pragma unroll
    for (int m = kColumn; m < b; ++m) {
      multiply_block(sum, z[m - kColumn], a + b * kBlock * kStride + m * kBlock, lane);
    }
    Split negative;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[n][i] = -sum[n][i];
    }
    left_operand(sum, negative);
    Block result{};
    multiply_block(result, negative, a + b * kBlock * (kStride + 1), lane);
    finish(result, made[b - kColumn]);
    if (b < 3) left_operand(result, z[b - kColumn]);
  }
}

template <int kColumn>
__device__ __forceinline__ void store_column(char* tile, int lane,
                                             const TileBlock (&made)[4 - kColumn]) {
#pragma unroll
  for (int b = 0; b < 4; ++b) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<uint32_t*>(
            tile + tile_offset(b * kBlock + n * 8 + lane / 4, kColumn * 2 + half) + lane % 4 * 4) =
            b < kColumn ? 0u : made[b < kColumn ? 0 : b - kColumn][n][half];
      }
    }
  }
}

// T, a tile of f16, in place of A, by two warps per value head, in three steps with a barrier of
// the whole block behind each: invert_blocks(), solve() and store(). The first warp has the first
// column of blocks, the second one the others.
struct Columns {
  TileBlock made[6];  // from the diagonal down, column by column
};

template <int kColumn>
__device__ __forceinline__ auto column_of(Columns& columns) -> TileBlock (&)[4 - kColumn] {
  constexpr int kFirst = kColumn == 2 ? 3 : kColumn == 3 ? 5 : 0;
  return reinterpret_cast<TileBlock(&)[4 - kColumn]>(columns.made[kFirst]);
}

__device__ __forceinline__ void solve(const float* a, const float* beta, int lane, bool second,
                                      Columns& columns) {
  if (!second) {
    solve_column<0>(a, beta, lane, column_of<0>(columns));
  } else {
    solve_column<1>(a, beta, lane, column_of<1>(columns));
    solve_column<2>(a, beta, lane, column_of<2>(columns));
    solve_column<3>(a, beta, lane, column_of<3>(columns));
  }
}

__device__ __forceinline__ void store(float* a, int lane, bool second, Columns& columns) {
  char* tile = reinterpret_cast<char*>(a);
  if (!second) {
    store_column<0>(tile, lane, column_of<0>(columns));
  } else {
    store_column<1>(tile, lane, column_of<1>(columns));
    store_column<2>(tile, lane, column_of<2>(columns));
    store_column<3>(tile, lane, column_of<3>(columns));
  }
}

}  // namespace frt::cuda::solve
