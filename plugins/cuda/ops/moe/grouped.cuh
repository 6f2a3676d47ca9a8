// SPDX-License-Identifier: Apache-2.0
// grouped.cuh - products of rows that were sorted by expert: one launch multiplies every row
// with the matrix of its expert.
//
// A tile is a run of sorted rows of one expert; the launch's blocks are (tile, columns of the
// matrix). Without a list of tiles there is one matrix for all rows, in their own order.
#pragma once

#include "../../device.hpp"
#include "moe.hpp"
#include "weights.cuh"

namespace frt::cuda {

struct MoeTile {
  int32_t expert;
  int32_t first;  // of the sorted rows
  int32_t count;
  int32_t reserved;
};

struct MoeProduct {
  const bf16* x;  // (rows, cols of the matrix)
  int32_t rows;
  const int32_t* row_count;
  const MoeTile* tiles;       // NULL: one matrix, rows as they are
  const int32_t* first_tile;  // (experts) the first tile of each expert
  const int32_t* tile_count;  // (1)
  int32_t tile_limit;         // blocks are launched for so many tiles
  const int32_t* order;       // sorted row -> assignment (row * top_k + j)
  int32_t top_k;
  bool gather;       // x is not sorted: its row is order[sorted row] / top_k
  bool scatter;      // y is not sorted: its row is order[sorted row]
  MoeMatrix matrix;  // gated: of the gate
  MoeMatrix up;      // gated only: y = silu(x gate^T) * (x up^T), bf16
  void* y;           // (rows, outputs)
  bool y_f32;
};

// Rows of a tile.
inline constexpr int kSmallTile = 16;
inline constexpr int kLargeTile = 128;

// The tile `index` of `size` rows; false: there is no such tile.
__device__ __forceinline__ bool find_tile(const MoeProduct& product, int index, int size,
                                          MoeTile& tile) {
  if (product.tiles) {
    if (index >= *product.tile_count) return false;
    tile = product.tiles[index];
    return true;
  }
  const int rows = active_rows(product.rows, product.row_count);
  tile = {0, index * size, min(size, rows - index * size), 0};
  return tile.count > 0;
}

__device__ __forceinline__ int64_t input_row(const MoeProduct& product, int row) {
  return product.gather ? product.order[row] / product.top_k : row;
}
__device__ __forceinline__ int64_t output_row(const MoeProduct& product, int row) {
  return product.scatter ? product.order[row] : row;
}

// A product, as its variants are given it.
struct GroupedProduct {
  MoeProduct product;
  int64_t x_rows;   // rows of x in memory
  int64_t experts;  // matrices in memory
  int tile_rows;    // kSmallTile, kLargeTile
  bool gated;       // with `up`
  bool exact;       // x is not rounded, whatever the device's option says: the choice of experts
  bf16* slice;      // working memory of the variants that say its size
};
using GroupedCall = const GroupedProduct;

// On mma.sync (grouped_mma.cuh).  [driver]
void launch_grouped_mma(Stream& stream, GroupedCall& call);
// On wgmma, bf16, tiles of kLargeTile rows (sm90/grouped.cu).  [driver]
inline constexpr int kGroupedWgmmaSharedBytes = 197632;
void launch_grouped_wgmma(Stream& stream, GroupedCall& call);
// The same for quantised weights: the matrices of some experts at a time are dequantised to bf16 in
// `slice`, which has grouped_slice_bytes() (sm90/grouped.cu, dequantise.cu). Throws
// FRT_ERR_INTERNAL where it is NULL.  [driver]
void launch_grouped_dequantised(Stream& stream, GroupedCall& call);
// Experts whose matrices are in working memory at a time, and its size.
int64_t grouped_slice_experts(GroupedCall& call);
std::size_t grouped_slice_bytes(GroupedCall& call);

// On products of FP4 by FP4: NVFP4 matrices, x rounded to NVFP4, tiles of kLargeTile rows
// (grouped_w4a4.cu). `slice` has grouped_w4a4_bytes(); launching throws FRT_ERR_INTERNAL where it
// is NULL.  [driver]
bool grouped_w4a4_supports(GroupedCall& call);
void launch_grouped_w4a4(Stream& stream, GroupedCall& call);
std::size_t grouped_w4a4_bytes(GroupedCall& call);

// Experts [first, first + count) of a quantised `matrix` as bf16 into `plain` (count, rows, cols):
// value times local scale, rounded once. What is constant along a row is not multiplied in.
// [driver]
void launch_dequantise_experts(Stream& stream, const MoeMatrix& matrix, int64_t first,
                               int64_t count, bf16* plain);

}  // namespace frt::cuda
