// SPDX-License-Identifier: Apache-2.0
// resident.hpp - products of one row whose weights fit into the shared memory of all blocks
// at once: what the kernel (resident_kernel.cu) is told, and how tiles are assigned. The
// bits are those of the streaming kernel (gemv_stream.cuh), so that a row by itself and a
// row among others agree.
#pragma once

#include <cstdint>
#include <span>

#include "gemv_plan.hpp"
#include "product.hpp"

namespace frt::cuda {

inline constexpr int kResidentWarps = 16;
inline constexpr int kResidentThreads = kResidentWarps * 32;
inline constexpr int kResidentRows = 16;     // of a tile
inline constexpr int kResidentTiles = 16;    // of a block, at most
inline constexpr int kResidentBlocks = 256;  // at most
inline constexpr int kResidentSplit = 2;  // halves of the columns with sums of their own, at most
// Between rows of weights, so that two rows that are read together share no bank.
inline constexpr int kResidentGap = 64;

struct ResidentArgs {
  int32_t part_count = 0;
  int32_t split = 1, part_cols = 0;    // as GemvArgs
  int32_t tile_ends[kGemvParts] = {};  // tiles of a part and those before it
  GemvPart parts[kGemvParts];
  uint16_t first[kResidentBlocks + 1] = {};  // tiles of block b: from first[b] to first[b + 1]
  int32_t cols = 0;
  int32_t early = 0;   // tiles of a block that are asked for before the wait for x
  int32_t chunks = 0;  // of a row, where chunks have sums of their own: places in `sums`
  // Shared memory: the block's tiles, then these. -1: not used.
  int32_t x_offset[kXCopies] = {-1, -1, -1};
  int32_t x_inverse_offset = -1;
  int32_t sums_offset = 0;
  const int32_t* row_count = nullptr;
  const void* x = nullptr;
};

// A launch.
struct ResidentPlan {
  ResidentArgs args;
  int blocks = 0;
  std::size_t shared_bytes = 0;
};

// y_i = x W_i^T for one row of x in bf16, as `plan` says. False where this is not for them.
// [driver]
bool plan_resident(const Device& device, std::span<const Product> products, ResidentPlan& plan);

// Submits the kernel.  [driver]
void launch_resident(Stream& stream, const ResidentPlan& plan);

}  // namespace frt::cuda
