// SPDX-License-Identifier: Apache-2.0
// few.cuh - of the decode kernel for two to eight rows (few_kernel.cu): arguments and
// shared memory. The shape is that of single.cuh, and so is the order of every row's sums: a
// row has the same bits alone and among others.
//
// An assignment is a row and one of its items, row * kItemsOfRow + item: its selected experts by
// falling probability, then the shared expert.
#pragma once

#include "single_enter.cuh"

namespace frt::cuda {

struct Few : Single {
  static constexpr int kRows = 8;  // at most
  static constexpr int kItemsOfRow = kTopK + 1;
  static constexpr int kQuads = kWarps / kParts;      // of warps that share a unit
  static constexpr int kExpertUnits = kWidth / 8;     // of eight columns of gate and up
  static constexpr int kUnitStep = kBlocks * kQuads;  // units that are worked on at a time
  static constexpr int kMembers = 4;                  // rows that one pass over weights serves
  static constexpr int kMost = kRows * kTopK;         // different experts
  static constexpr uint8_t kNobody = 0xFF;
  // Cells: logits, pairs of hidden values of all assignments, the scales of the shared expert.
  static constexpr int kHiddenCells = kRows * kExperts;
  static constexpr int kScaleCells = kHiddenCells + kRows * kItemsOfRow * kItemCells;
  static constexpr int kCells = kScaleCells + kRows;
};

struct FewArgs : SingleArgs {
  int32_t first;  // row of the operator that row 0 is, for row_count
  int32_t rows;   // 1 to 8; x, residual, delta, logits, ids, weights and y have so many
};

// Rows of an operator at most, by several launches. With weights in FP8 four launches are still
// faster than rows sorted by expert (grouped.cu).
inline constexpr int kFewRows = 16, kFewRowsFp8 = 32;

std::size_t few_shared_bytes(bool fp8);
// Submits it: one block per SM, all of them there at once (CoResidentLaunch).  [driver]
void launch_few(Stream& stream, bool fp8, int blocks, const FewArgs& args);

// The experts that rows chose, each once, by rising id.
struct FewChoice {
  unsigned rows_of[Few::kExperts];              // bits of the rows that chose it
  uint8_t place_of[Few::kExperts][Few::kRows];  // where it is among a row's items
  int in_warp[Few::kExperts / 32];
  int ids[Few::kRows][Few::kTopK];
  float weights[Few::kRows * Few::kItemsOfRow];  // by assignment; of the shared expert its scale
  int count;
  int experts[Few::kMost];
  // Assignments by rising row, then kNobody.
  alignas(8) uint8_t members[Few::kMost + 1][Few::kRows];  // [count]: of the shared expert
};

// What is there until hidden values are exchanged.
template <MoeFormat kFormat>
struct FewRows {
  alignas(16) uint32_t x[Few::kRows][Few::kInputs / 2];
  float squares[Few::kWarps * Few::kRows];  // rows of a warp as far apart as a kernel has rows
  float factors[Few::kRows], units[Few::kRows];
  unsigned peaks[Few::kRows][Few::kWarps];
  float router_sums[Few::kRows][Few::kWarps * 2], shared_sums[Few::kRows][Few::kWarps * 8];
  float parts[2][Few::kQuads][Few::kParts][Few::kRows][16];
};

template <MoeFormat kFormat>
struct FewMemory {
  using S = Shape<kFormat>;
  static constexpr int kSlots = 2;
  static constexpr int kSlotBytes = 2048 + 16;  // 128 bytes of sixteen rows, and their scales
  // A piece of an assignment's hidden values. The warp that reads it puts there what it multiplied
  // them to: 16 results of even lanes, 16 of odd ones, and their factor.
  static constexpr int kPieceBytes = S::kPiece * 2 + 16;
  alignas(16) uint8_t ring[S::kWarps][kSlots][kSlotBytes];
  union {
    FewRows<kFormat> rows;
    alignas(16) uint8_t pieces[Few::kRows * Few::kItemsOfRow][S::kPieces][kPieceBytes];
  };
  float x_inverses[Few::kRows], inverses[Few::kRows][S::kWarps];
  FewChoice choice;
};
static_assert(sizeof(FewMemory<MoeFormat::kBf16>) <= 226 * 1024);
static_assert(sizeof(FewMemory<MoeFormat::kFp8>) <= 226 * 1024);

}  // namespace frt::cuda
