// SPDX-License-Identifier: Apache-2.0
// grouped_mma.cuh - the grouped product on mma.sync, for every architecture; bf16 with f32
// sums.
//
// A block multiplies a tile of rows (M) with 128 rows of weights (N), 64 columns (K) at a time;
// both pass through a ring in shared memory filled with cp.async. Shared rows are 128 bytes whose
// 16-byte chunks are swizzled by the row, so that ldmatrix meets no bank twice. Quantised weights
// arrive quantised and are dequantised to bf16 in shared memory, each chunk by the thread that
// fetched it: exact for e4m3 and for e2m1 times its e4m3 scale; the scale of an FP8 block is
// multiplied in and rounded. What is constant along a row is applied to the sums.
//
// Gated: the 128 weight rows are eight of the gate, eight of the up matrix, and so on, so a thread
// holds both sums of a value. Large tiles (128 rows, warps 2 x 4) are for many rows per expert;
// small ones (16 rows, warps 1 x 8) stream the weights at the speed of memory, two blocks per
// SM with up to 72 KB in flight each.
#pragma once

#include "../common/launch.cuh"
#include "../common/mma.cuh"
#include "grouped.cuh"
#include "rows.cuh"

namespace frt::cuda {

inline constexpr int kMmaThreads = 256;
inline constexpr int kMmaWeights = 128;  // weight rows of a block
inline constexpr int kMmaDepth = 64;     // K of a stage

template <MoeFormat kFormat, int kRows>
struct MmaShape {
  static constexpr bool kQuantised = kFormat != MoeFormat::kBf16;
  static constexpr int kRowBytes = kFormat == MoeFormat::kBf16  ? 128
                                   : kFormat == MoeFormat::kFp8 ? 64
                                                                : 32;  // of a stage's weight row
  static constexpr int kTokenBytes = kRows * 128;
  static constexpr int kStageBytes = kTokenBytes + kMmaWeights * kRowBytes;
  static constexpr int kDequantisedBytes =
      kQuantised ? 2 * kMmaWeights * 128 : 0;  // dequantised, two stages
  static constexpr int kStages = kRows == kLargeTile ? (kFormat == MoeFormat::kFp8 ? 2 : 3)
                                 : kFormat == MoeFormat::kBf16 ? 5
                                 : kFormat == MoeFormat::kFp8  ? 6
                                                               : 8;
  static constexpr int kBytes = kStages * kStageBytes + kDequantisedBytes;
  static constexpr int kChunks = kMmaWeights * kRowBytes / 16 / kMmaThreads;  // of a thread
  // Warps: (rows, weights); blocks of 16 rows and of 8 weight rows per warp.
  static constexpr int kWarpsM = kRows == kLargeTile ? 2 : 1;
  static constexpr int kWarpsN = 8 / kWarpsM;
  static constexpr int kBlocksM = kRows / kWarpsM / 16;
  static constexpr int kBlocksN = kMmaWeights / kWarpsN / 8;
};

// Where chunk `chunk` of row `row` lies, in rows of eight chunks.
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return static_cast<uint32_t>(row * 128 + ((chunk ^ (row & 7)) * 16));
}

// The weight rows of a block. Row r of the tile is row `row(r)` of matrix gate or up.
template <bool kGated>
struct WeightTile {
  static constexpr int kColumns = kGated ? kMmaWeights / 2 : kMmaWeights;
  static __device__ __forceinline__ int row(int first, int r) {
    return kGated ? first + r / 16 * 8 + r % 8 : first + r;
  }
  static __device__ __forceinline__ const MoeMatrix& matrix(const MoeProduct& product, int r) {
    return kGated && r % 16 >= 8 ? product.up : product.matrix;
  }
};

// A thread's share of the quantised weights: kChunks chunks, rows kStep apart, one column.
template <MoeFormat kFormat, bool kGated>
struct WeightChunks {
  static constexpr int kRowChunks = MmaShape<kFormat, kLargeTile>::kRowBytes / 16;
  static constexpr int kChunks = MmaShape<kFormat, kLargeTile>::kChunks;
  static constexpr int kStep = kMmaThreads / kRowChunks;  // a multiple of 16: one matrix
  static constexpr int kMatrixStep = kGated ? kStep / 2 : kStep;
  static constexpr int kValues = 64 / kRowChunks;  // of a chunk
  using Tile = WeightTile<kGated>;

  const MoeMatrix* matrix;
  const uint8_t* data;   // this thread's chunk of the first row at K = 0
  const uint8_t* scale;  // of the expert
  int tile_row, matrix_row, chunk;

  __device__ __forceinline__ WeightChunks(const MoeProduct& product, int expert, int first) {
    tile_row = threadIdx.x / kRowChunks;
    chunk = threadIdx.x % kRowChunks;
    matrix = &Tile::matrix(product, tile_row);
    matrix_row = Tile::row(first, tile_row);
    data =
        matrix->data + expert * matrix->data_stride + matrix_row * matrix->row_bytes + chunk * 16;
    scale = matrix->scale + expert * matrix->scale_stride;
  }

  __device__ __forceinline__ void fetch(uint32_t stage, int k) const {
    const bool inside = k + chunk * kValues < matrix->cols;
    const uint8_t* source = data + static_cast<int64_t>(k / kValues) * 16;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int row = tile_row + i * kStep;
      const bool valid = inside && matrix_row + i * kMatrixStep < matrix->rows;
      const uint32_t target = kFormat == MoeFormat::kBf16
                                  ? swizzled(row, chunk)
                                  : static_cast<uint32_t>(row * kRowChunks + chunk) * 16;
      copy_async_or_zero(
          stage + target,
          valid ? source + static_cast<int64_t>(i * kMatrixStep) * matrix->row_bytes : matrix->data,
          valid);
    }
  }

  // The local scales of the chunks at K = k.
  __device__ __forceinline__ void load_scales(int k, float (&scales)[kChunks][2]) const {
    const int col = k + chunk * kValues;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int row = matrix_row + i * kMatrixStep;
      const bool valid = col < matrix->cols && row < matrix->rows;
      scales[i][0] = scales[i][1] = 1.0f;
      if constexpr (kFormat == MoeFormat::kFp4) {
        if (valid) {
          const uint32_t pair = *reinterpret_cast<const uint16_t*>(
              scale + static_cast<int64_t>(row) * (matrix->cols / 16) + col / 16);
          scales[i][0] = e4m3_float(static_cast<uint8_t>(pair)) * kFp4Unit;
          scales[i][1] = e4m3_float(static_cast<uint8_t>(pair >> 8)) * kFp4Unit;
        }
      } else if (valid && matrix->type == WeightType::kFp8Block) {
        const int64_t at = static_cast<int64_t>(row / matrix->block_rows) * matrix->scale_columns +
                           (col >> matrix->block_shift);
        scales[i][0] = moe_scale(*matrix, scale, at);
      }
    }
  }

  // Dequantises this thread's chunks of a stage into rows of bf16.
  __device__ __forceinline__ void dequantise(const uint8_t* stage, uint8_t* dequantised,
                                             const float (&scales)[kChunks][2]) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int row = tile_row + i * kStep;
      const uint4 raw = reinterpret_cast<const uint4*>(stage)[row * kRowChunks + chunk];
      const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int e = 0; e < kValues / 8; ++e) {
        float values[8];
        if constexpr (kFormat == MoeFormat::kFp4) {
          dequantise_fp4(words[e], values);
        } else {
          dequantise_fp8(make_uint2(words[2 * e % 4], words[2 * e % 4 + 1]), values);
        }
        const float local = scales[i][kFormat == MoeFormat::kFp4 ? e / 2 : 0];
        uint32_t packed[4];
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const __nv_bfloat162 pair =
              __floats2bfloat162_rn(values[2 * v] * local, values[2 * v + 1] * local);
          packed[v] = *reinterpret_cast<const uint32_t*>(&pair);
        }
        *reinterpret_cast<uint4*>(dequantised + swizzled(row, chunk * (kValues / 8) + e)) =
            make_uint4(packed[0], packed[1], packed[2], packed[3]);
      }
    }
  }
};

// A thread's share of the rows of x.
template <int kRows>
struct TokenChunks {
  static constexpr int kChunks = kRows >= 32 ? kRows / 32 : 1;
  const bf16* rows[kChunks];
  bool valid[kChunks];
  int tile_row, chunk, cols;

  __device__ __forceinline__ TokenChunks(const MoeProduct& product, const MoeTile& tile) {
    tile_row = threadIdx.x / 8;
    chunk = threadIdx.x % 8;
    cols = product.matrix.cols;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int row = tile_row + i * 32;
      valid[i] = row < tile.count;
      rows[i] =
          product.x + (valid[i] ? input_row(product, tile.first + row) * cols + chunk * 8 : 0);
    }
  }
  __device__ __forceinline__ void fetch(uint32_t stage, int k) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int row = tile_row + i * 32;
      if (row >= kRows) continue;
      const bool inside = valid[i] && k + chunk * 8 < cols;
      copy_async_or_zero(stage + swizzled(row, chunk), inside ? rows[i] + k : rows[i], inside);
    }
  }
};

template <MoeFormat kFormat, bool kGated, int kRows>
__device__ __forceinline__ void store_tile(
    const MoeProduct& product, const MoeTile& tile, int first,
    const float (
        &sums)[MmaShape<kFormat, kRows>::kBlocksM][MmaShape<kFormat, kRows>::kBlocksN][4]) {
  using Shape = MmaShape<kFormat, kRows>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_m = warp / Shape::kWarpsN, warp_n = warp % Shape::kWarpsN;
  const int outputs = product.matrix.rows;
  const auto factor = [&](const MoeMatrix& matrix, int n) {
    if constexpr (kFormat == MoeFormat::kBf16) return 1.0f;
    return n < outputs ? moe_row(matrix, tile.expert, n).factor : 0.0f;
  };
  constexpr int kEach = kGated ? 2 : 1;
#pragma unroll
  for (int nb = 0; nb < Shape::kBlocksN; nb += kEach) {
    const int block = warp_n * Shape::kBlocksN + nb;
    const int n = first + block / kEach * 8 + lane % 4 * 2;
    const float factors[2] = {factor(product.matrix, n), factor(product.matrix, n + 1)};
    float up_factors[2] = {1.0f, 1.0f};
    if constexpr (kGated) {
      up_factors[0] = factor(product.up, n);
      up_factors[1] = factor(product.up, n + 1);
    }
#pragma unroll
    for (int mb = 0; mb < Shape::kBlocksM; ++mb) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = (warp_m * Shape::kBlocksM + mb) * 16 + half * 8 + lane / 4;
        if (row >= tile.count || n >= outputs) continue;
        float values[2];
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          values[v] = sums[mb][nb][half * 2 + v] * factors[v];
          if constexpr (kGated) {
            values[v] = gated_bf16(values[v], sums[mb][nb + 1][half * 2 + v] * up_factors[v]);
          }
        }
        const int64_t at = output_row(product, tile.first + row) * outputs + n;
        if (product.y_f32) {
          auto* y = static_cast<float*>(product.y) + at;
          if (outputs % 2 == 0) {
            *reinterpret_cast<float2*>(y) = make_float2(values[0], values[1]);
          } else {
            y[0] = values[0];
            if (n + 1 < outputs) y[1] = values[1];
          }
        } else {
          *reinterpret_cast<__nv_bfloat162*>(static_cast<bf16*>(product.y) + at) =
              __floats2bfloat162_rn(values[0], values[1]);
        }
      }
    }
  }
}

template <MoeFormat kFormat, bool kGated, int kRows>
__global__ void __launch_bounds__(kMmaThreads, 2)
    grouped_mma_kernel(const __grid_constant__ MoeProduct product, int column_blocks) {
  using Shape = MmaShape<kFormat, kRows>;
  extern __shared__ uint4 dynamic[];
  pdl_trigger();
  pdl_wait();
  const int first = static_cast<int>(blockIdx.x) % column_blocks * WeightTile<kGated>::kColumns;
  MoeTile tile;
  if (!find_tile(product, static_cast<int>(blockIdx.x) / column_blocks, kRows, tile)) return;

  auto* memory = reinterpret_cast<uint8_t*>(dynamic);
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  constexpr int kDequantised = Shape::kStages * Shape::kStageBytes;  // offset
  const TokenChunks<kRows> tokens(product, tile);
  const WeightChunks<kFormat, kGated> weights(product, tile.expert, first);
  const int cols = product.matrix.cols;
  const int steps = (cols + kMmaDepth - 1) / kMmaDepth;
  const auto fetch = [&](int step) {
    if (step < steps) {
      const uint32_t stage = base + step % Shape::kStages * Shape::kStageBytes;
      tokens.fetch(stage, step * kMmaDepth);
      weights.fetch(stage + Shape::kTokenBytes, step * kMmaDepth);
    }
    copies_commit();
  };
  for (int step = 0; step < Shape::kStages - 1; ++step) fetch(step);
  float scales[WeightChunks<kFormat, kGated>::kChunks][2];
  if constexpr (Shape::kQuantised) weights.load_scales(0, scales);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_m = warp / Shape::kWarpsN, warp_n = warp % Shape::kWarpsN;
  const int blocks_m =  // of this warp with rows in them
      min(Shape::kBlocksM, (tile.count + 15) / 16 - warp_m * Shape::kBlocksM);
  float sums[Shape::kBlocksM][Shape::kBlocksN][4] = {};
  for (int step = 0; step < steps; ++step) {
    copies_wait<Shape::kStages - 2>();
    const int stage = step % Shape::kStages * Shape::kStageBytes;
    uint32_t dequantised = base + stage + Shape::kTokenBytes;
    if constexpr (Shape::kQuantised) {
      const int offset = kDequantised + step % 2 * kMmaWeights * 128;
      weights.dequantise(memory + stage + Shape::kTokenBytes, memory + offset, scales);
      dequantised = base + offset;
    }
    __syncthreads();
    fetch(step + Shape::kStages - 1);
    if constexpr (Shape::kQuantised) {
      if (step + 1 < steps) weights.load_scales((step + 1) * kMmaDepth, scales);
    }
#pragma unroll
    for (int kk = 0; kk < kMmaDepth / 16; ++kk) {
      uint32_t b[Shape::kBlocksN / 2][4];
#pragma unroll
      for (int pair = 0; pair < Shape::kBlocksN / 2; ++pair) {
        const int row = (warp_n * Shape::kBlocksN + pair * 2) * 8 + lane / 16 * 8 + lane % 8;
        load_matrices(b[pair], dequantised + swizzled(row, kk * 2 + lane / 8 % 2));
      }
#pragma unroll
      for (int mb = 0; mb < Shape::kBlocksM; ++mb) {
        if (mb < blocks_m) {
          const int row = (warp_m * Shape::kBlocksM + mb) * 16 + lane % 16;
          uint32_t a[4];
          load_matrices(a, base + stage + swizzled(row, kk * 2 + lane / 16));
#pragma unroll
          for (int nb = 0; nb < Shape::kBlocksN; ++nb) {
            mma_bf16<Order::kKept>(sums[mb][nb], a, b[nb / 2][nb % 2 * 2],
                                   b[nb / 2][nb % 2 * 2 + 1]);
          }
        }
      }
    }
  }
  store_tile<kFormat, kGated, kRows>(product, tile, first, sums);
}

template <MoeFormat kFormat, bool kGated, int kRows>
void launch_mma_kernel(Stream& stream, const MoeProduct& product) {
  const auto columns =
      static_cast<int>(ceil_div(product.matrix.rows, WeightTile<kGated>::kColumns));
  const int64_t tiles = product.tiles ? product.tile_limit : ceil_div(product.rows, kRows);
  launch(stream,
         {dim3(static_cast<unsigned>(tiles * columns)), dim3(kMmaThreads),
          MmaShape<kFormat, kRows>::kBytes},
         grouped_mma_kernel<kFormat, kGated, kRows>, product, columns);
}

template <MoeFormat kFormat>
void launch_mma_format(Stream& stream, const MoeProduct& product, int tile_rows, bool gated) {
  if (tile_rows == kLargeTile) {
    gated ? launch_mma_kernel<kFormat, true, kLargeTile>(stream, product)
          : launch_mma_kernel<kFormat, false, kLargeTile>(stream, product);
  } else {
    gated ? launch_mma_kernel<kFormat, true, kSmallTile>(stream, product)
          : launch_mma_kernel<kFormat, false, kSmallTile>(stream, product);
  }
}

// One per format, so that they are compiled side by side.
void launch_mma_bf16(Stream& stream, const MoeProduct& product, int tile_rows, bool gated);
void launch_mma_fp8(Stream& stream, const MoeProduct& product, int tile_rows, bool gated);
void launch_mma_fp4(Stream& stream, const MoeProduct& product, int tile_rows, bool gated);

}  // namespace frt::cuda
