// SPDX-License-Identifier: Apache-2.0
// layers_copies.cuh - of the kernel of an expert's layers: what each block does, and the two
// threads that copy. Both know the whole sequence beforehand; one fetches weights as far ahead as
// the ring has room, the other x behind the barriers of the grid.
#pragma once

#include "../../common/arch.cuh"
#include "../../common/launch.cuh"
#include "../../dense/sm90/multiply.cuh"
#include "layers_attention.cuh"
#include "layers_fused.cuh"

namespace frt::cuda {

#if FRT_ARCH_WGMMA

namespace flow {

// ---- what a block does --------------------------------------------------------------------------

// What a block is. Nothing here is kept in registers: it is found anew where it is used.
struct Shape {
  const FlowTiles& tiles;
  __device__ __forceinline__ int block() const { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ int blocks() const { return static_cast<int>(gridDim.x); }
  __device__ __forceinline__ int cluster() const { return block() / kFlowCluster; }
  __device__ __forceinline__ int clusters() const { return blocks() / kFlowCluster; }
  __device__ __forceinline__ int rank() const { return block() % kFlowCluster; }
};

// A place in the ring and how often it went round.
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages, int by = 1) {
    for (stage += by; stage >= stages; stage -= stages) parity ^= 1;
  }
};

// ---- copies -------------------------------------------------------------------------------------

__device__ __forceinline__ void copy_weights(uint32_t target, const CUtensorMap& map, int row,
                                             int half, uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %2, %2, %3, %4}], [%5], %6;" ::"r"(target),
      "l"(&map), "r"(0), "r"(row), "r"(half), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
template <bool kByEights>
__device__ __forceinline__ void copy_x(uint32_t target, const CUtensorMap& map, int unit,
                                       uint64_t* barrier) {
  if constexpr (kByEights) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %2, %2, %2, %3}], [%4];" ::"r"(target),
        "l"(&map), "r"(0), "r"(unit), "r"(shared_address(barrier))
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %2, %3}], [%4];" ::"r"(target),
        "l"(&map), "r"(0), "r"(unit * 2), "r"(shared_address(barrier))
        : "memory");
  }
}
// To all blocks of the cluster, from a row on.
__device__ __forceinline__ void copy_x_to_all(uint32_t target, const CUtensorMap& map, int row,
                                              int unit, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(target),
      "l"(&map), "r"(0), "r"(row), "r"(unit * 2), "r"(shared_address(barrier)),
      "h"(static_cast<uint16_t>((1 << kFlowCluster) - 1))
      : "memory");
}
__device__ __forceinline__ uint32_t address_at(uint32_t address, int rank) {
  uint32_t result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
  return result;
}

// The weights of all phases, one after the other, as far ahead as the ring reaches: one thread.
// Loops are not unrolled here: threads that compute run once through long code, which competes for
// the caches of instructions.
template <int kRows, bool kFp8>
__device__ void fetch_weights(const FlowArgs& args, FlowShared<kRows>& shared, uint32_t ring) {
  const Shape shape{args.tiles};
  uint64_t policy;  // read once a step: contexts, read in every step, shall stay in L2
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  Place place;
  // Boxes of `halves` halves of units, from `half` to `end`.
  const auto fetch = [&](const CUtensorMap& map, int row, int half, int end, int halves,
                         int bytes) {
#pragma unroll 1
    for (; half < end; half += halves) {
      barrier_wait(shared.empty + place.stage, place.parity ^ 1);
      barrier_expect(shared.full + place.stage, bytes);
      copy_weights(ring + place.stage * kFlowUnitBytes, map, row, half, shared.full + place.stage,
                   policy);
      place.advance(args.stages);
    }
  };
  const auto divided = [&](const CUtensorMap& map, int units) {
#pragma unroll 1
    for (int t = shape.cluster(); t < shape.tiles.output_tiles; t += shape.clusters()) {
      fetch(map, t * kFlowOutputs, shape.rank() * units * 2, (shape.rank() + 1) * units * 2, 2,
            kFlowUnitBytes);
    }
  };
#pragma unroll 1
  for (int i = 0; i < args.layer_count; ++i) {
    const FlowMaps& maps = args.maps[i];
#pragma unroll 1
    for (int t = shape.block(); t < shape.tiles.input_tiles; t += shape.blocks()) {
      const bool query = t < shape.tiles.query_tiles;
      const int tile = query ? t : t - shape.tiles.query_tiles;
      fetch(query ? maps.query : maps.key_value,
            tile / shape.tiles.head_tiles * args.head_dim +
                tile % shape.tiles.head_tiles * kFlowPairs,
            0, shape.tiles.width_units * 2, 4, kFlowPairBytes);
    }
    divided(maps.output, shape.tiles.attended_units);
#pragma unroll 1
    for (int t = shape.block(); t < shape.tiles.gate_tiles; t += shape.blocks()) {
      fetch(maps.gate_up, t * (kFlowOutputs / 2), 0, shape.tiles.width_units * 2, 2,
            kFlowUnitBytes);
    }
    divided(maps.down, shape.tiles.hidden_units);
  }
}

// x of all phases, each behind the grid's barrier: one thread.
template <int kRows, bool kFp8>
__device__ void fetch_x(const FlowArgs& args, FlowShared<kRows>& shared, uint32_t area,
                        const FlowSync& sync) {
  using Shared = FlowShared<kRows>;
  const Shape shape{args.tiles};
  // Of a unit: parts that are fetched for all, and bytes of a part.
  const int parts = Shared::kByEights ? (args.rows + args.shifts + 7) / 8 : 1;
  constexpr int kPart = Shared::kSharedRows * 2 * kFlowInputs;
  uint32_t empty_parity = 0;
  // In rounds of `slots` units; all of them again for the next tile.
  const auto fetch = [&](const CUtensorMap& map, bool to_all, int first, int units, int slots,
                         int tiles) {
    const int chunks = (units + slots - 1) / slots, loads = tiles * chunks;
#pragma unroll 1
    for (int load = 0; load < loads; ++load) {
      if (load > 0) {
        barrier_wait(&shared.x_empty, empty_parity);
        empty_parity ^= 1;
      }
      const int begin = load % chunks * slots, count = min(slots, units - begin);
      if (to_all) {
        // Parts, unit by unit, are scheduled statically to the blocks of the cluster.
        int slot = 0, part = shape.rank();
#pragma unroll 1
        while (true) {
#pragma unroll 1
          for (; part >= parts; part -= parts) ++slot;
          if (slot >= count) break;
          copy_x_to_all(area + slot * Shared::kXUnit + part * kPart, map,
                        part * Shared::kSharedRows, begin + slot, shared.x_full + slot);
          part += kFlowCluster;
        }
      }
#pragma unroll 1
      for (int slot = 0; slot < count; ++slot) {
        barrier_expect(shared.x_full + slot, parts * kPart);
        if (!to_all) {
          copy_x<Shared::kByEights>(area + slot * Shared::kXUnit, map, first + begin + slot,
                                    shared.x_full + slot);
        }
      }
    }
  };
  const auto shared_by_all = [&](uint32_t barrier, int tiles) {
    const int first = shape.cluster() * kFlowCluster;
    if (first >= tiles) return;
    sync.wait_alone(barrier);
    barrier_arrive(&shared.passed);
    if (kFp8) return;  // threads that compute make it
    sync.show_to_copies();
    fetch(args.normed, true, 0, shape.tiles.width_units, Shared::kSlots,
          (tiles - first + shape.blocks() - 1) / shape.blocks());
  };
  const auto divided = [&](uint32_t barrier, const CUtensorMap& map, int units) {
    if (shape.cluster() >= shape.tiles.output_tiles) return;
    sync.wait_alone(barrier);
    sync.show_to_copies();
    fetch(map, false, shape.rank() * units, units, Shared::kSplitSlots,
          (shape.tiles.output_tiles - shape.cluster() + shape.clusters() - 1) / shape.clusters());
  };
#pragma unroll 1
  for (int i = 0; i < args.layer_count; ++i) {
    const uint32_t passed = 1 + 5 * i;
    shared_by_all(passed, shape.tiles.input_tiles);
    divided(passed + 2, args.attended, shape.tiles.attended_units);
    shared_by_all(passed + 3, shape.tiles.gate_tiles);
    divided(passed + 4, args.activated, shape.tiles.hidden_units);
  }
}

}  // namespace flow

#endif  // FRT_ARCH_WGMMA

}  // namespace frt::cuda
