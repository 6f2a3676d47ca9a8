// SPDX-License-Identifier: Apache-2.0
// flow_layers_fused.cuh - the layers of an expert as one kernel (sm_90a): its arguments and limits.
#pragma once

#include <cuda.h>

#include <algorithm>

#include "flow_layers_attention.cuh"
#include "flow_layers_sync.cuh"

namespace frt::cuda {

inline constexpr int kFlowLayers = 40;   // at most: maps are parameters, of which there are 32 KB
inline constexpr int kFlowPieces = 2;    // of x that a block owns, at most
inline constexpr int kFlowOutputs = 64;  // of a tile of weights
inline constexpr int kFlowInputs = 128;  // of a unit; in FP8 twice as many
inline constexpr int kFlowUnitBytes = kFlowOutputs * kFlowInputs * 2;
inline constexpr int kFlowMostStages = 8;
inline constexpr int kFlowBlockThreads = kFlowThreads + 128;

// Boxes of weights: (64 inputs, 8 rows, 2, groups of 8 or 16 rows, halves of a unit). Where two
// outputs belong together (gate and up, the halves of a head) the third dimension goes from the one
// to the other, so that both are in one thread; else from eight rows to the next.
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

struct FlowArgs {
  CUtensorMap normed, attended, activated;  // boxes of x: (64 inputs, rows, halves of a unit)
  FlowMaps maps[kFlowLayers];
  FlowLayer layers[kFlowLayers];
  int layer_count, stages;
  int rows, shifts;  // of x; vectors behind them in `normed`
  int width, hidden;
  int heads, kv_heads, head_dim;
  int count, sequence_rows, sequences_per_context, context_rows, positions;
  int64_t context_stride;
  float epsilon, scale;
  const int32_t *context_length, *clean_rows;
  int period;
  bool x_f32;
  const float* table;
  void* x;
  bf16 *y, *q, *kv, *attention, *h;  // y: (rows + shifts, width); in FP8 x as f32; h: e4m3 there
  float* squares;                    // (rows, width / 64)
  uint32_t* word;
};

// Sums go from block to block in rows of so many.
inline constexpr int kFlowSumStride = kFlowOutputs + 4;

// Shared memory for kRows rows of x, those of shifts included: ring, area, and what follows here.
template <int kRows>
struct FlowShared {
  static constexpr int kXUnit = kRows * kFlowInputs * 2;
  static constexpr int kSums = kRows * kFlowSumStride * 4;
  static constexpr int kOwned = kRows / 8;  // rows of a block
  // Of x, of attention, or of some units of x and of sums to send and to receive.
  static constexpr int kMixed = 2 * kXUnit + (1 + kFlowPieces) * kSums;
  static constexpr int kArea = std::max(112, (kMixed + 1023) / 1024) * 1024;
  static constexpr int kSlots = std::min(8, kArea / kXUnit);
  static constexpr int kSplitSlots = std::min(4, (kArea - (1 + kFlowPieces) * kSums) / kXUnit);
  static constexpr int kSend = kSplitSlots * kXUnit;
  static constexpr int kReceive = kSend + kSums;

  uint64_t full[kFlowMostStages], empty[kFlowMostStages];
  uint64_t x_full[8], x_empty, passed, received[kFlowPieces], met;
  FlowAttentionShared attention;
  float factors[kRows];  // of rows: 1 / root mean square; negative where `clean` holds
  int positions[kRows];  // of rows; -1: not rotated
  float4 pieces[1];      // further ones follow

  static constexpr int bytes(int pieces) {
    return static_cast<int>(sizeof(FlowShared)) + (pieces * kOwned * 16 - 1) * 16;
  }
};

// A kernel, as the host asks for it.
struct FlowKernel {
  int rows;  // of x, with those of shifts
  void (*function)(FlowArgs);
  int area;
  int (*shared_bytes)(int pieces);  // behind ring and area
};

// One for each number of rows, in files of their own: they take long to compile.
FlowKernel flow_kernel_24(bool fp8);
FlowKernel flow_kernel_56(bool fp8);
FlowKernel flow_kernel_104();  // not for FP8: operators of their own are faster there

}  // namespace frt::cuda
