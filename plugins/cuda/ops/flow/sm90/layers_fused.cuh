// SPDX-License-Identifier: Apache-2.0
// layers_fused.cuh - the layers of an expert as one kernel (sm_90a): its arguments and limits.
#pragma once

#include <cuda.h>

#include <algorithm>

#include "layers_attention.cuh"
#include "layers_sync.cuh"

namespace frt::cuda {

inline constexpr int kFlowLayers = 40;   // at most: maps are parameters, of which there are 32 KB
inline constexpr int kFlowPieces = 2;    // of x that a block owns, at most
inline constexpr int kFlowInputs = 128;  // of a unit; in FP8 twice as many
// Outputs of a tile: of o and down, or of gate and up together, so that 15 clusters of eight blocks
// have one tile each of 1024, and 120 blocks of 2 x 4096; and pairs that are rotated together.
inline constexpr int kFlowOutputs = 72;
inline constexpr int kFlowPairs = 16;
inline constexpr int kFlowUnitBytes = kFlowOutputs * kFlowInputs * 2;        // a stage of the ring
inline constexpr int kFlowPairBytes = 2 * kFlowPairs * 2 * kFlowInputs * 2;  // of two units
inline constexpr int kFlowMostStages = 8;
inline constexpr int kFlowMostCodes = 1024;  // columns of the rows normed in FP8
inline constexpr int kFlowBlockThreads = kFlowThreads + 128;

// Boxes of weights: (64 inputs, 2, 4, rows, halves of units); the second dimension goes from an
// output to the one it belongs to (gate and up, the halves of a head), so that both are in one
// thread, the third over the lanes of a row where a thread has neighbouring pairs (q, k and v).
struct FlowMaps {
  CUtensorMap query, key_value, output, gate_up, down;
};

struct FlowModulation {
  const float *rows, *clean;  // (3, width); clean NULL: there is none
};

// FP8: what sums are multiplied with, and values before they are rounded to e4m3.
struct FlowFactors {
  float query, key_value, output, gate, up, down;
  float to_qkv, to_hidden, to_down;
  float attention;  // the scale of what attention yields
};

struct FlowLayer {
  FlowModulation attention, hidden;
  const void *context_k, *context_v;
  FlowFactors factors;
};

// Tiles of a phase that all blocks share are scheduled statically to blocks; those that a cluster
// divides, to clusters, whose blocks take a part of the inputs each.
struct FlowTiles {
  int head_tiles, query_tiles, input_tiles, gate_tiles, output_tiles;
  int width_units, attended_units, hidden_units;  // of a block's part
};

struct FlowArgs {
  // Boxes of x: (64 inputs, rows, halves of a unit), `normed` in FP8 of `codes`; or by eights what
  // a block has its own part of: (64 inputs, 8 rows, halves of a unit, eights of rows, 1).
  CUtensorMap normed, attended, activated;
  FlowMaps maps[kFlowLayers];
  FlowLayer layers[kFlowLayers];
  FlowTiles tiles;
  int layer_count, stages;
  int rows, shifts;  // of x; vectors behind them in `normed`
  int width, hidden;
  int heads, kv_heads, head_dim;
  int count, sequence_rows, sequences_per_context, context_rows, positions;
  int64_t context_stride;
  float epsilon, scale;
  float each_column;  // 1 / width
  const int32_t *context_length, *clean_rows;
  int period;
  bool x_f32;
  const float* table;
  void* x;
  // y: (rows + shifts, width); in FP8 x as f32; attention and h: e4m3 there.
  bf16 *y, *q, *kv, *attention, *h;
  float* squares;  // (rows, tiles of width)
  uint8_t* codes;  // in FP8: of each block (8, width)
  uint32_t* word;
};

// Sums of eight rows on their way to the block that adds them, in bf16: four pairs of each lane,
// four more, and the ninth.
inline constexpr int kFlowSentBytes = 32 * (16 + 16 + 4);

// Shared memory for kRows rows of x, those of shifts included: ring, area, and what follows here.
template <int kRows>
struct FlowShared {
  // Up to 64 rows both groups of four warps multiply them all, each half of the inputs; more are
  // divided between the groups. So a thread has one row or two.
  static constexpr int kHalves = kRows > 64 ? 2 : 1;
  // In a unit of x, swizzled by 128 bytes, lie 128 bytes of each row and behind them the other 128;
  // or, kByEights, of each eight rows. Then each block of a cluster fetches eight rows for all of
  // what all multiply, so that units arrive one after the other; of many rows each fetches whole
  // units, which was as fast.
  static constexpr bool kByEights = kRows <= 64;
  static constexpr int kSharedRows = kByEights ? 8 : kRows;             // of a copy for all
  static constexpr int kHalf = kSharedRows * kFlowInputs;               // bytes to the second half
  static constexpr int kEight = (kByEights ? 2 : 1) * 8 * kFlowInputs;  // bytes to the next eight
  static constexpr int kXUnit = kRows * 2 * kFlowInputs;
  static constexpr int kOwned = 8 * kHalves;  // rows of a block
  static constexpr int kFromRank = kHalves * kFlowSentBytes;
  // Of x, of attention, or of a few units of x and of sums to receive.
  static constexpr int kSplitSlots = 4;
  static constexpr int kReceive = kSplitSlots * kXUnit;
  static constexpr int kArea =
      std::max(112, (kReceive + kFlowCluster * kFromRank + 1023) / 1024) * 1024;
  static constexpr int kSlots = std::min(8, kArea / kXUnit);
  static_assert(kArea % 1024 == 0 && kSlots % 2 == 0);

  uint64_t full[kFlowMostStages], empty[kFlowMostStages];
  uint64_t x_full[8], x_empty, passed, received;
  FlowAttentionShared attention;
  // What shift vectors yield, of each group: of the pairs of each lane of a row.
  alignas(16) float shifts[2][2][4][kFlowOutputs / 4 + 2];
  int positions[kRows];  // of rows; -1: not rotated
  float4 pieces[1];      // of x, of `pieces` tiles: here and behind

  static int bytes(int pieces) {
    return static_cast<int>(sizeof(FlowShared)) + (pieces * kOwned * (kFlowOutputs / 4) - 1) * 16;
  }
};

// A kernel, as the host asks for it.
struct FlowKernel {
  int rows;        // of x, with those of shifts
  bool by_eights;  // as FlowShared says
  void (*function)(FlowArgs);
  int area;
  int (*shared_bytes)(int pieces);  // behind ring and area
};

// One for each number of rows, in files of their own: they take long to compile.
FlowKernel flow_kernel_24(bool fp8);
FlowKernel flow_kernel_56(bool fp8);
FlowKernel flow_kernel_104();  // not for FP8: operators of their own are faster there

}  // namespace frt::cuda
