// SPDX-License-Identifier: Apache-2.0
// The grouped product with NVFP4 weights and x rounded to NVFP4: the tiles of linear/fp4_loop.cuh,
// 128 sorted rows of one expert by 128 weight rows, gated as in grouped_mma.cuh. x is rounded
// before each product, all of its rows once: those of the block for gate and up, the sorted ones
// for down.
//
// Qwen3.6-35B-A3B, 8192 rows: 0.41 TFLOP of experts a layer, 0.25 ms on an RTX 5090 at 1676
// TFLOP/s; all experts' weights are 0.45 GB, 0.25 ms at 1.79 TB/s. Compiled and emulated; not
// measured on a device.
#include <frt/error.hpp>

#include "../common/launch.cuh"
#include "../common/pieces.hpp"
#include "../linear/fp4_loop.cuh"
#include "../linear/gemm_w4a4.cuh"
#include "grouped_mma.cuh"

namespace frt::cuda {
namespace {

using Shape = MmaShape<MoeFormat::kFp4, kLargeTile>;
static_assert(kLargeTile == kFp4TileRows && kMmaWeights == kFp4TileOutputs &&
              kMmaThreads == kFp4Threads && Shape::kBlocksM == 4 && Shape::kBlocksN == 4);

template <bool kGated>
__global__ void __launch_bounds__(kFp4Threads, 1)
    grouped_tile_fp4(const __grid_constant__ MoeProduct product, const __grid_constant__ Fp4Rows x,
                     int column_blocks, bool whole_scales) {
  using Weights = WeightTile<kGated>;
  extern __shared__ __align__(128) unsigned char shared[];
  pdl_trigger();
  pdl_wait();
  const int first = static_cast<int>(blockIdx.x) % column_blocks * Weights::kColumns;
  MoeTile tile;
  if (!find_tile(product, static_cast<int>(blockIdx.x) / column_blocks, kLargeTile, tile)) return;

  const int inputs = product.matrix.cols;
  const auto weight_row = [&](int r, bool scales) {
    const MoeMatrix& matrix = Weights::matrix(product, r);
    const int row = Weights::row(first, r);
    const bool there = row < matrix.rows;
    const uint8_t* expert = scales ? matrix.scale + tile.expert * matrix.scale_stride
                                   : matrix.data + tile.expert * matrix.data_stride;
    const int64_t bytes = scales ? inputs / 16 : matrix.row_bytes;
    return Fp4Row{expert + (there ? row * bytes : 0), there};
  };
  const auto x_row = [&](int r, const uint8_t* matrix, int64_t bytes) {
    const bool there = r < tile.count;
    return Fp4Row{matrix + (there ? input_row(product, tile.first + r) * bytes : 0), there};
  };
  Fp4Lines weights, rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    weights.values[i] = weight_row(Fp4Loop::value_row(i), false);
    rows.values[i] = x_row(Fp4Loop::value_row(i), x.values, inputs / 2);
  }
  weights.scales = weight_row(Fp4Loop::scale_row(), true);
  rows.scales = x_row(Fp4Loop::scale_row(), x.scale, x.scale_stride());

  const Fp4Loop loop(shared, inputs, whole_scales);
  loop.start_weights(weights);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = fp4_warp_row(warp);
  float sums[4][4][4] = {};
  loop.run(rows, weights, (tile.count - warp_row + 15) / 16, sums);
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int row = fp4_sum_row(warp_row + m * 16, lane, i);
      const float scale =
          row < tile.count ? x.row_scale[input_row(product, tile.first + row)] : 0.0f;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        sums[m][n][i] *= scale;
        sums[m][n][i + 1] *= scale;
      }
    }
  }
  store_tile<MoeFormat::kFp4, kGated, kLargeTile>(product, tile, first, sums);
}

// x of the call in NVFP4.
Fp4Rows rounded_rows(GroupedCall& call, Cutter& cutter) {
  const MoeProduct& product = call.product;
  // The sorted rows beyond the block's are not counted anywhere: they are rounded, too, and not
  // read.
  const bool own_rows = product.gather || !product.tiles;
  Fp4Rows x{static_cast<int32_t>(call.x_rows),
            product.matrix.cols,
            own_rows ? product.row_count : nullptr,
            nullptr,
            nullptr,
            nullptr};
  x.take(cutter);
  return x;
}

bool has_aligned_scales(const MoeMatrix& matrix, int bytes) {
  return aligned(matrix.scale, static_cast<uintptr_t>(bytes)) && matrix.scale_stride % bytes == 0;
}
bool has_whole_scales(const MoeMatrix& matrix) {
  return matrix.cols % kFp4ScaleInputs == 0 && has_aligned_scales(matrix, 16);
}
bool multiplies(const MoeMatrix& matrix) {
  return matrix.type == WeightType::kNvfp4 && matrix.cols % 64 == 0 && aligned(matrix.data) &&
         matrix.data_stride % 16 == 0 && has_aligned_scales(matrix, 4);
}

template <bool kGated>
void launch_tiles(Stream& stream, GroupedCall& call, const Fp4Rows& x) {
  const MoeProduct& product = call.product;
  const auto columns =
      static_cast<int>(ceil_div(product.matrix.rows, WeightTile<kGated>::kColumns));
  const int64_t tiles = product.tiles ? product.tile_limit : ceil_div(product.rows, kLargeTile);
  const bool whole_scales =
      has_whole_scales(product.matrix) && (!kGated || has_whole_scales(product.up));
  launch(stream, {dim3(static_cast<unsigned>(tiles * columns)), dim3(kFp4Threads), kFp4SharedBytes},
         grouped_tile_fp4<kGated>, product, x, columns, whole_scales);
}

}  // namespace

bool grouped_w4a4_supports(GroupedCall& call) {
  const MoeProduct& product = call.product;
  return !call.exact && call.tile_rows == kLargeTile && product.rows >= kRoundedRows &&
         multiplies(product.matrix) && (!call.gated || multiplies(product.up));
}

void launch_grouped_w4a4(Stream& stream, GroupedCall& call) {
  if (!call.slice) throw Error(FRT_ERR_INTERNAL, "grouped product w4a4: no working memory");
  Cutter cutter(call.slice);
  const Fp4Rows x = rounded_rows(call, cutter);
  quantise_fp4_rows(stream, FRT_DTYPE_BF16, call.product.x, call.product.matrix.cols, x);
  call.gated ? launch_tiles<true>(stream, call, x) : launch_tiles<false>(stream, call, x);
}

std::size_t grouped_w4a4_bytes(GroupedCall& call) {
  Cutter sizes(nullptr);
  rounded_rows(call, sizes);
  return sizes.bytes();
}

}  // namespace frt::cuda
