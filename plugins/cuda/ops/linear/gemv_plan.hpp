// SPDX-License-Identifier: Apache-2.0
// gemv_plan.hpp - what the streaming kernel of GEMVs is told, and how its shared
// memory is cut. Host arithmetic only; the kernel is in gemv_stream.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "product.hpp"

namespace frt::cuda {

// How quantised values become operands of the tensor cores.
enum class GemvKind : int32_t {
  kBf16,      // as they are, 64 columns per chunk
  kFp8,       // e4m3 -> f16; one scale per matrix or row, applied to the finished sum
  kFp8Block,  // e4m3 -> f16; one scale per 128 columns (or a multiple), applied to chunk sums
  kNvfp4,     // e2m1 * e4m3 -> f16, exact
};

// Copies of x in shared memory: the type and the order of columns that a kind reads.
enum GemvX : int32_t { kXBf16, kXF16, kXF16Fp4, kXCopies };

struct GemvMatrix {
  const uint8_t* data = nullptr;
  const void* scale = nullptr;
  float factor = 1.0f;  // of the finished sum
};

// One weight (two of equal shape if gated), cut into tiles of 16 rows.
struct GemvPart {
  GemvMatrix low, high;  // rows 0..7 and 8..15 of a tile; differ if gated
  GemvKind kind = GemvKind::kBf16;
  int32_t rows = 0;    // outputs
  int32_t chunks = 0;  // per row
  int32_t row_bytes = 0;
  int32_t scale_stride = 0;       // kFp8Block: scales per row of blocks; kNvfp4: per row
  int32_t block_row_shift = 0;    // kFp8Block: rows per scale, a power of two
  int32_t block_chunk_shift = 0;  // kFp8Block: chunks per scale, a power of two
  uint32_t scale_bf16 : 1 = 0;    // scales are bf16, else f32
  uint32_t scale_rows : 1 = 0;    // kFp8: one scale per row
  uint32_t y_float : 1 = 0;       // y is f32, else bf16
  uint32_t accumulate : 1 = 0;
  void* y = nullptr;
  int64_t y_stride = 0;
};

inline constexpr int kGemvParts = 8;
inline constexpr int kGemvGroup = 4;       // warps that share a tile's columns
inline constexpr int kGemvSmallGroup = 3;  // the same where tiles are few (choose_group())
inline constexpr int kGemvWarps = 16;      // of a block, at most
// Slots of a warp's ring: fewer where x is large.
inline constexpr int kGemvStages = 5;
inline constexpr int kGemvSomeStages = 4;
inline constexpr int kGemvFewStages = 3;
inline constexpr int kGemvLeastStages = 2;
inline constexpr int kGemvSumStride = 20;  // floats from one x row to the next: no bank twice

// What a block needs for its first copies comes first: parameters come from memory line by line.
struct GemvArgs {
  int32_t part_count = 0;
  int32_t tiles = 0;
  // Blocks of a cluster that share its tiles, each with its columns; the sums meet in the first.
  int32_t split = 1;      // 1 or kGemvSplit
  int32_t clusters = 0;   // of the launch
  int32_t part_cols = 0;  // multiple of 256
  int32_t slot_bytes = 0;
  int32_t early_stages = 0;  // filled before x is read
  uint32_t gated = 0;        // one part; y = silu(low) * high
  // Tiles from static_tiles on are scheduled dynamically, to dynamic_groups of each block; 0: there
  // are none.
  int32_t static_tiles = 0;
  int32_t dynamic_groups = 0;
  int32_t tile_ends[kGemvParts] = {};  // tiles of a part and those before it
  GemvPart parts[kGemvParts];
  int32_t rows = 0;  // of x, 1..16
  int32_t cols = 0;
  // Shared memory: (warps, stages, slot_bytes), copies of x, sums.
  int32_t x_offset[kXCopies] = {-1, -1, -1};  // bytes; -1: not used
  int32_t x_pitch[kXCopies] = {0, 0, 0};      // bytes from row to row
  int32_t x_inverse_offset = -1;              // f32 (units of columns, padded rows); -1: not used
  int32_t sums_offset = 0;
  int32_t shares_offset = 0;
  const int32_t* row_count = nullptr;
  const void* x = nullptr;
  int64_t x_stride = 0;
  uint32_t* work_counters = nullptr;  // counts what is scheduled dynamically (common/exchange.hpp)
};

// The tiles of a group of warps, one after the other: its static ones, and then, if it takes part
// in dynamic scheduling, those that it gets from the work counter (schedule_tiles() says why).
inline constexpr int kTileQueue = 4;   // tiles that are known and in use, a power of two
inline constexpr int kTilesAhead = 2;  // a group counts so many tiles ahead
struct GroupTiles {
  int first, step;   // step: as many as there are groups
  bool dynamic;      // takes part in dynamic scheduling
  const int* queue;  // tile n, if it is dynamic, at n % kTileQueue

  constexpr bool own(const GemvArgs& a, int n) const { return first + n * step < a.static_tiles; }
  // The n-th; a.tiles or more: there is none.
  constexpr int at(const GemvArgs& a, int n) const {
    return own(a, n) ? first + n * step : dynamic ? queue[n % kTileQueue] : a.tiles;
  }
  // Whether a dynamic group counts when it begins its n-th tile, behind which comes `next`.
  constexpr bool counts_now(const GemvArgs& a, int n, int next) const {
    return !own(a, n + kTilesAhead) && next < a.tiles;
  }
};
// The last number of the work counter: every dynamic group counts once too often, and nobody counts
// behind that.
constexpr int last_dynamic(const GemvArgs& a) {
  return a.tiles + a.clusters * a.dynamic_groups - 1;
}

// Columns of a row of x that are scaled by the same power of two where x becomes f16.
inline constexpr int kGemvXUnit = 256;
// Rows of x as the tensor cores take them, eight at a time.
inline constexpr int32_t gemv_padded_rows(int32_t rows) {
  return rows > 8 ? 16 : 8;
}

inline constexpr int kGemvSplit = 2;       // blocks that share tiles
inline constexpr int kGemvMaxShares = 16;  // tiles per cluster, if split

// What the planner asks of the device.
struct GemvDevice {
  int32_t multiprocessors = 0;
  int32_t shared_block = 0;  // bytes that a block may have
  bool clusters = false;
};

// A launch. `rows` may be fewer than asked for: the rest needs further launches.
struct GemvPlan {
  int32_t rows = 0;            // 0: one row does not fit
  int32_t group = kGemvGroup;  // warps that share a tile
  int32_t warps = 0;
  int32_t stages = 0;
  int32_t blocks = 0;
  std::size_t shared_bytes = 0;
};

// What a slot of one chunk takes, and its columns.
inline constexpr int32_t gemv_slot_bytes(GemvKind kind) {
  return kind == GemvKind::kNvfp4 ? 2048 + 256 : 2048;
}
inline constexpr int32_t gemv_chunk_shift(GemvKind kind) {  // log2 of the columns
  return kind == GemvKind::kBf16 ? 6 : kind == GemvKind::kNvfp4 ? 8 : 7;
}
inline constexpr int32_t gemv_chunk_cols(GemvKind kind) {
  return 1 << gemv_chunk_shift(kind);
}
inline constexpr GemvX gemv_x(GemvKind kind) {
  return kind == GemvKind::kBf16 ? kXBf16 : kind == GemvKind::kNvfp4 ? kXF16Fp4 : kXF16;
}

// Where the rows of x do not fit: x streams beside FP8 or NVFP4 weights, in steps of kGemvXUnit
// columns, and one launch takes all rows (gemv_streamed_x_quantised.cu).
inline constexpr int kStreamedXWarps = 8;                    // of a block; each has a tile
inline constexpr int kStreamedXPitch = kGemvXUnit * 2 + 64;  // bytes from row to row of a step
inline constexpr int streamed_x_stages(bool fp4) {           // slots of a warp's ring, in steps
  return fp4 ? 3 : 2;
}
// Shared memory of a block: (warps, stages, step), two steps of x, their factors, sums of tiles.
inline constexpr int64_t streamed_x_shared_bytes(const GemvArgs& args, bool fp4) {
  const GemvKind kind = fp4 ? GemvKind::kNvfp4 : GemvKind::kFp8;
  const int64_t step = kGemvXUnit / gemv_chunk_cols(kind) * gemv_slot_bytes(kind);
  const int64_t rows = gemv_padded_rows(args.rows);
  const int64_t own_tiles = (args.tiles + args.clusters - 1) / args.clusters;
  const int64_t shares = args.split > 1 ? own_tiles * rows * 16 * 4 : 0;
  return kStreamedXWarps * streamed_x_stages(fp4) * step + 2 * rows * (kStreamedXPitch + 4) +
         shares;
}

// The parts of `args` that one kernel multiplies with all `rows` of x, where x streams: those of
// BF16, FP8 or NVFP4. part_count is 0 where there are none. Blocks divide the columns as
// plan_gemv() chose for all parts together, since a row's bits follow from that.
enum class GemvFamily { kBf16, kFp8, kNvfp4 };
GemvArgs family_parts(const GemvArgs& args, GemvFamily family, int32_t rows);

// Whether the streaming kernel takes `weight` with bf16 x; fills what depends on the weight alone.
bool make_gemv_part(const Weight& weight, GemvPart& part);

// What is launched ahead of a product, and so how soon x is there.
enum class GemvAhead { kProduct, kOther };

// Cuts shared memory for `rows` rows; completes `args` (parts, cols, gated are given).
GemvPlan plan_gemv(GemvArgs& args, int32_t rows, const GemvDevice& device,
                   GemvAhead ahead = GemvAhead::kOther);

}  // namespace frt::cuda
