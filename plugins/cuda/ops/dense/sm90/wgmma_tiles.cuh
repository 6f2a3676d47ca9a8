// SPDX-License-Identifier: Apache-2.0
// wgmma_tiles.cuh - what the blocks of wgmma.cuh are told, and which tile is whose.
//
// A block of outputs by a block of rows is a tile. `splits` blocks of a cluster divide its inputs,
// and `sharing` clusters divide them further: SMs come in groups that clusters of four do
// not fill. Each of two clusters finishes half of the tile's outputs.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "../../common/arch.cuh"
#include "../../common/launch.cuh"
#include "../../linear/skinny_gemm.hpp"

namespace frt::cuda {

inline constexpr int kWgmmaDepthBytes = 128;  // of inputs, in a stage
template <bool kFp8>
constexpr int kWgmmaDepth = kFp8 ? 128 : 64;
inline constexpr int kWgmmaThreads = 384;
inline constexpr int kWgmmaMultiplying = 256;  // of them, the first
inline constexpr int kWgmmaParts = FRT_DENSE_PARTS_MAX;
inline constexpr int kMostSplits = 4;     // blocks of a cluster
inline constexpr int kMostSharing = 2;    // clusters of one tile, 1 or 2; if two,
inline constexpr int kSharingSplits = 2;  // of so many blocks
inline constexpr int kSharingBlocks = 2;  // and tiles of as many times 128 outputs

struct WgmmaMaps {
  CUtensorMap x;
  CUtensorMap weights[kWgmmaParts];  // gated: gate and up
};

struct WgmmaArgs {
  SkinnyProduct product;
  SkinnyPart parts[kWgmmaParts];
  int first_block[kWgmmaParts + 1];  // of outputs
  int row_tiles, tiles;              // of the rows; of all
  int splits, sharing;
  int steps, steps_each;  // of the inputs; of those a block's
  // Of e4m3 by e4m3: what sums are multiplied by, and results in e4m3.
  float factors[kWgmmaParts], up_factor;
  float y_factors[kWgmmaParts];
  // Where clusters share tiles: (tile, row of the tile, output of the tile), and zeros.
  float* sums;
  uint32_t* work_counters;  // (tile, rank)
};

template <int kBlocks, int kRows>
constexpr int kWgmmaStageBytes = (kBlocks * 128 + kRows) * kWgmmaDepthBytes;
template <int kBlocks, int kRows>
constexpr int kWgmmaStages = std::min(8, 225 * 1024 / kWgmmaStageBytes<kBlocks, kRows>);
template <int kBlocks, int kRows>
constexpr int kWgmmaSumBytes = kRows*(kBlocks * 128 + 4) * 4;
template <int kBlocks, int kRows, bool kGated>
constexpr int kWgmmaSharedBytes =  // the ring begins at a multiple of 1024
    std::max(kWgmmaStages<kBlocks, kRows>* kWgmmaStageBytes<kBlocks, kRows>,
             kGated ? 0 : kWgmmaSumBytes<kBlocks, kRows>) +
    1024;

struct WgmmaKernel {
  int blocks, rows;
  bool gated;
  void (*function)(WgmmaMaps, WgmmaArgs);
  std::size_t shared_bytes;

  int outputs() const { return (gated ? 64 : 128) * blocks; }
};

// Of e4m3 by e4m3 (wgmma_fp8.cu).
std::span<const WgmmaKernel> wgmma_fp8_kernels();

#if FRT_ARCH_WGMMA

namespace wgmma {

// The place of `address` of this block's shared memory in block `rank` of the cluster.
__device__ __forceinline__ uint32_t address_at(uint32_t address, int rank) {
  uint32_t result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
  return result;
}
// cluster_barrier() without what was written: who is there, who is done. A microsecond less.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}

// A block's share of the inputs, in steps, from its place in the grid: integer divisions would hold
// up the first copies by half a microsecond.
struct Share {
  int rank, first, steps;
  int half;  // of a tile's outputs, where clusters share it

  __device__ __forceinline__ explicit Share(const WgmmaArgs& args) {
    rank = static_cast<int>(blockIdx.x);
    half = static_cast<int>(blockIdx.y) & (args.sharing - 1);
    first = min((half * args.splits + rank) * args.steps_each, args.steps);
    steps = min(args.steps_each, args.steps - first);
  }
};

struct Tile {
  int number, part, output, row;  // of all tiles; the first ones
};

__device__ __forceinline__ Tile tile_at(const WgmmaArgs& args, int block, int row_tile,
                                        int outputs_each, int rows_each) {
  Tile tile;
  tile.number = block * args.row_tiles + row_tile;
  tile.part = 0;
  while (block >= args.first_block[tile.part + 1]) ++tile.part;
  tile.output = (block - args.first_block[tile.part]) * outputs_each;
  tile.row = row_tile * rows_each;
  return tile;
}

// Tiles of a block: of many where they are gated, otherwise one.
template <int kBlocks, int kRows, bool kGated>
struct Tiles {
  static constexpr int kOutputs = kBlocks * (kGated ? 64 : 128);
  int number;

  __device__ __forceinline__ Tiles() : number(kGated ? static_cast<int>(blockIdx.y) : 0) {}
  __device__ __forceinline__ bool left(const WgmmaArgs& args) const {
    return kGated ? number < args.tiles : number == 0;
  }
  __device__ __forceinline__ void advance() { number += kGated ? static_cast<int>(gridDim.y) : 1; }
  __device__ __forceinline__ Tile tile(const WgmmaArgs& args) const {
    if constexpr (kGated) {
      const int block = number / args.row_tiles;
      return tile_at(args, block, number - block * args.row_tiles, kOutputs, kRows);
    } else {
      return tile_at(args, static_cast<int>(blockIdx.z),
                     static_cast<int>(blockIdx.y) >> (args.sharing - 1), kOutputs, kRows);
    }
  }
};

}  // namespace wgmma

#endif  // FRT_ARCH_WGMMA

}  // namespace frt::cuda
