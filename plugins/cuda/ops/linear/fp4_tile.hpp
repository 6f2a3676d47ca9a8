// SPDX-License-Identifier: Apache-2.0
// fp4_tile.hpp - the tile of a product of FP4 by FP4 (gemm_w4a4.cu): its sizes, where its values
// lie in shared memory, and what each lane reads and writes of it. Plain arithmetic, so that a test
// on the host can follow it.
//
// A tile has 128 rows by 128 outputs. A stage has 128 inputs of both: 64 bytes a row, four chunks
// of 16; chunk c of row r lies at place c ^ (r / 2) % 4, so that the eight rows that ldmatrix reads
// at once touch all banks. Scales of 256 inputs, 16 bytes a row, serve two stages; a lane reads all
// 16 at once, so that 32 lanes read 512 bytes that lie together. Eight warps, 2 by 4, have 64 rows
// by 32 outputs each: 4 by 4 products of 64 inputs, which take their scales from three reads in
// four.
#pragma once

#include <cstdint>

namespace frt::cuda {

inline constexpr int kFp4TileRows = 128, kFp4TileOutputs = 128;
inline constexpr int kFp4StageInputs = 128, kFp4Stages = 4;
inline constexpr int kFp4ScaleInputs = 256, kFp4ScaleStages = 2;
inline constexpr int kFp4Threads = 256;
inline constexpr int kFp4SideBytes = kFp4TileRows * kFp4StageInputs / 2;  // x, or weights
inline constexpr int kFp4StageBytes = 2 * kFp4SideBytes;
inline constexpr int kFp4ScaleSideBytes = kFp4TileRows * kFp4ScaleInputs / 16;
inline constexpr int kFp4ScaleStageBytes = 2 * kFp4ScaleSideBytes;
inline constexpr int kFp4SharedBytes =
    kFp4Stages * kFp4StageBytes + kFp4ScaleStages * kFp4ScaleStageBytes;
static_assert(kFp4TileRows == kFp4TileOutputs && kFp4SharedBytes <= 99 * 1024);

// The first row and output of a warp.
constexpr int fp4_warp_row(int warp) {
  return warp / 4 * 64;
}
constexpr int fp4_warp_output(int warp) {
  return warp % 4 * 32;
}

// Where a chunk lies in its side of a stage.
constexpr int fp4_place(int row, int chunk) {
  return row * (kFp4StageInputs / 2) + ((chunk ^ (row >> 1 & 3)) << 4);
}
// What a lane gives ldmatrix.x4 the address of, for inputs [64 k, 64 k + 64) of the stage: rows
// [first, first + 16) of x are the four registers of a; outputs [first, first + 16) are two of b
// for the first eight and two for the others.
constexpr int fp4_x_place(int first, int k, int lane) {
  return fp4_place(first + lane % 16, 2 * k + lane / 16);
}
constexpr int fp4_weight_place(int first, int k, int lane) {
  return fp4_place(first + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2);
}

// The row whose scales a lane has for the products of rows, or outputs, [first, first + 32): of x
// those of the first 16 with pair 0 and of the others with pair 1, of weights eight for each
// quarter.
constexpr int fp4_scale_row(int first, int lane) {
  return first + lane % 4 * 8 + lane / 4;
}

// Sum i of a lane in the product of rows from `first_row` and outputs from `first_output` on.
constexpr int fp4_sum_row(int first_row, int lane, int i) {
  return first_row + lane / 4 + i / 2 * 8;
}
constexpr int fp4_sum_output(int first_output, int lane, int i) {
  return first_output + lane % 4 * 2 + i % 2;
}

}  // namespace frt::cuda
