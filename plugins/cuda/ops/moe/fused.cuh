// SPDX-License-Identifier: Apache-2.0
// fused.cuh - the decode kernel that is one launch: its limits and arguments.
#pragma once

#include "moe.hpp"
#include "rows.cuh"

namespace frt::cuda {

inline constexpr int kFusedRows = 8;
inline constexpr int kFusedAssignments = 64;
inline constexpr int kFusedWarps = 16;  // that multiply; one more fetches
inline constexpr int kFusedMultipliers = kFusedWarps * 32;
inline constexpr int kFusedThreads = kFusedMultipliers + 32;
inline constexpr int kFusedStages = 16;    // of the ring, at most
inline constexpr int kFusedColumns = 16;   // of a block in `down`
inline constexpr int kFusedParts = 4;      // warps that share a unit of `down`
inline constexpr int kFusedBlocks = 1024;  // at most

// Dynamic shared memory. The ring is at 0; x and hidden overlap.
struct FusedLayout {
  int32_t stages, stage_bytes;
  int32_t item_bytes;                               // of a unit of `down` in a stage
  int32_t items;                                    // of them in a stage, at most
  int32_t scale_blocks;                             // words of scales of eight rows
  int32_t scale_bytes;                              // of a stage
  int32_t scales, x, hidden, results, sums, bytes;  // offsets
};

struct FusedArgs {
  MoeNorm norm;  // residual NULL: x is there already
  bf16* x;
  int32_t rows, inputs, experts, top_k, width, shared_width;
  bool normalise;
  const int32_t* row_count;
  MoeMatrix router, gate, up, down, shared_gate, shared_up, shared_down, shared_scale;
  float* logits;      // (rows, experts)
  int32_t* ids;       // (rows, top_k)
  float* weights;     // (rows, top_k)
  bf16* y;            // (rows, inputs)
  uint32_t* numbers;  // of launches, by block
  uint64_t *logit_cells, *scale_cells, *shared_cells, *hidden_cells;
  FusedLayout layout;
};

// Submits it: all blocks run at once or none does, one per SM.  [driver]
void launch_fused(Stream& stream, bool fp8, int blocks, const FusedArgs& args);

}  // namespace frt::cuda
