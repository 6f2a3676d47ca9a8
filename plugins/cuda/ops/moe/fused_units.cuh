// SPDX-License-Identifier: Apache-2.0
// fused_units.cuh - of the decode kernel that is one launch (fused_kernel.cu): what a block
// works on, and how it selects the experts.
#pragma once

#include "../common/arch.cuh"
#include "fused_ring.cuh"

namespace frt::cuda {

#if FRT_ARCH_CLUSTERS

enum Phase { kEnter, kHidden, kDown };

// What a block knows of the selection: the distinct experts in order of their first assignment (row
// * top_k + j), and the assignments of each, one per row at most.
struct Choice {
  int ids[kFusedAssignments];
  float weights[kFusedAssignments];
  int experts[kFusedAssignments];
  int members[kFusedAssignments][kFusedRows];  // -1: no more
  unsigned leaders[2];                         // bits of the first assignments
  int count;                                   // of experts
};

struct Shared {
  Choice choice;
  int rows[kFusedRows];  // 0, 1 ..., -1: no more
  float squares[kFusedWarps];
  float scales[kFusedRows];
};

__device__ __forceinline__ void wait_multipliers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kFusedMultipliers) : "memory");
}

// Words from one row of bf16 in shared memory to the next: 16 bytes more than the row, so that rows
// begin in different banks.
__device__ __forceinline__ int padded_words(int values) {
  return values / 2 + 4;
}

// ---- units -------------------------------------------------------------------------------------

__device__ __forceinline__ int enter_units(const FusedArgs& args) {
  const int router = (args.experts + 15) / 16;
  return router + (args.shared_width > 0 ? args.shared_width / 8 + 1 : 0);
}
// The shared expert and the selected ones.
__device__ __forceinline__ int down_items(const FusedArgs& args, const Choice& choice) {
  return choice.count == 0 ? 0 : choice.count + (args.shared_width > 0 ? 1 : 0);
}

struct Run {
  int begin, end, step;
};

// The units of this block; of `down` it begins with the first item of a group of columns.
__device__ __forceinline__ Run run_of(const FusedArgs& args, const Choice& choice, int phase) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  if (phase == kEnter) return {block, enter_units(args), blocks};
  if (phase == kHidden) {
    const int units = choice.count * (args.width / 8);
    const int share = units / blocks, more = units % blocks;
    const int begin = block * share + min(block, more);
    return {begin, begin + share + (block < more ? 1 : 0), 1};
  }
  const int groups = (args.inputs + kFusedColumns - 1) / kFusedColumns;
  const int own = block < groups ? (groups - 1 - block) / blocks + 1 : 0;
  return {0, own * down_items(args, choice), 1};
}

__device__ __forceinline__ Unit unit_of(const FusedArgs& args, const Choice& choice, int phase,
                                        int index) {
  const MoeMatrix *low, *high;
  int expert = 0, row;
  if (phase == kEnter) {
    const int columns = args.shared_width / 8, routers = (args.experts + 15) / 16;
    if (index < columns) {
      low = &args.shared_gate;
      high = &args.shared_up;
      row = index * 8;
    } else {
      index -= columns;
      low = high = index < routers ? &args.router : &args.shared_scale;
      row = index < routers ? index * 16 : 0;
    }
  } else if (phase == kHidden) {
    const int units = args.width / 8;
    low = &args.gate;
    high = &args.up;
    expert = choice.experts[index / units];
    row = index % units * 8;
  } else {
    const int items = down_items(args, choice), item = index % items;
    const int place = args.shared_width > 0 ? item - 1 : item;
    row = (static_cast<int>(blockIdx.x) + index / items * static_cast<int>(gridDim.x)) *
          kFusedColumns;
    low = high = place < 0 ? &args.shared_down : &args.down;
    if (place >= 0) expert = choice.experts[place];
  }
  return {low, high, expert, row};
}

// ---- the choice --------------------------------------------------------------------------------

// One warp selects for one row of at most 256 experts: what select_experts of rows.cuh does, in
// fewer steps. A lane has eight neighbours, so among equals the lowest lane has the lowest index.
__device__ __forceinline__ void select_row(const float* logits, int experts, int top_k,
                                           bool normalise, int* ids, float* weights) {
  const int lane = threadIdx.x % 32;
  float p[8], largest = -INFINITY, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    p[i] = lane * 8 + i < experts ? logits[lane * 8 + i] : -INFINITY;
    largest = fmaxf(largest, p[i]);
  }
  largest = warp_max(largest);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    p[i] = lane * 8 + i < experts ? expf(p[i] - largest) : 0.0f;
    sum += p[i];
  }
  sum = warp_sum(sum);
  unsigned keys[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) keys[i] = lane * 8 + i < experts ? order_key(p[i], sum) : 0u;
  float top_k_sum = 0.0f;
#pragma unroll 1
  for (int j = 0; j < top_k; ++j) {
    unsigned best = 0u;
#pragma unroll
    for (int i = 0; i < 8; ++i) best = max(best, keys[i]);
    const unsigned most = __reduce_max_sync(~0u, best);
    const float probability = probability_of(most, sum);
    top_k_sum += probability;
    const unsigned equals = __ballot_sync(~0u, best == most);
    if (lane == __ffs(static_cast<int>(equals)) - 1) {
      bool taken = false;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (!taken && keys[i] == most) {
          taken = true;
          keys[i] = 0u;
          ids[j] = lane * 8 + i;
        }
      }
      weights[j] = probability;
    }
  }
  if (normalise) normalise_top_k(top_k, top_k_sum, weights);
}

// Groups choice.ids. A barrier must lie before it; the last one is in it.
__device__ __forceinline__ void group_assignments(int assignments, Choice& choice) {
  const int a = static_cast<int>(threadIdx.x);
  const int id = a < assignments ? choice.ids[a] : -1;
  int first = a, before = 0;
  if (id >= 0) {
#pragma unroll 1
    for (int b = a - 1; b >= 0; --b) {
      if (choice.ids[b] != id) continue;
      first = b;
      ++before;
    }
  }
  choice.members[a / kFusedRows][a % kFusedRows] = -1;
  if (a < kFusedAssignments) {
    const unsigned leaders = __ballot_sync(~0u, id >= 0 && before == 0);
    if (a % 32 == 0) choice.leaders[a / 32] = leaders;
  }
  wait_multipliers();
  const int low = __popc(choice.leaders[0]);
  if (id >= 0) {
    const unsigned bits = choice.leaders[first / 32] & ((1u << (first % 32)) - 1u);
    const int index = (first >= 32 ? low : 0) + __popc(bits);
    choice.members[index][before] = a;
    if (before == 0) choice.experts[index] = id;
  }
  if (a == 0) choice.count = low + __popc(choice.leaders[1]);
  wait_multipliers();
}

#endif

}  // namespace frt::cuda
