// SPDX-License-Identifier: Apache-2.0
// gemv_weights.cuh - of the streaming kernel: which weights a warp reads, how they come to
// shared memory ahead of the products, and their scales.
#pragma once

#include "../common/async_copy.cuh"
#include "gemv_x.cuh"

namespace frt::cuda::gemv {

// Where `go`: 16 bytes to shared memory, or zeros. A predicate, not a branch: what is around it can
// be put in between.
__device__ __forceinline__ void copy16(uint32_t target, const uint8_t* source, bool valid,
                                       bool go) {
  asm volatile(
      "{.reg .pred go; setp.ne.u32 go, %3, 0;"
      " @go cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;}" ::"r"(target),
      "l"(source), "r"(valid ? 16 : 0), "r"(static_cast<uint32_t>(go))
      : "memory");
}
// A lane's part of a chunk, where `go`: 16 bytes of each half of its two rows, or zeros. One piece
// of code: apart, the compiler guards each copy against the loads around it.
__device__ __forceinline__ void copy_rows(uint32_t target, const uint8_t* low, const uint8_t* high,
                                          bool first, bool second, bool go) {
  asm volatile(
      "{.reg .pred go; setp.ne.u32 go, %5, 0;"
      " @go cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %3;"
      " @go cp.async.cg.shared.global.L2::128B [%0 + 512], [%1 + 64], 16, %4;"
      " @go cp.async.cg.shared.global.L2::128B [%0 + 1024], [%2], 16, %3;"
      " @go cp.async.cg.shared.global.L2::128B [%0 + 1536], [%2 + 64], 16, %4;}" ::"r"(target),
      "l"(low), "l"(high), "r"(first ? 16 : 0), "r"(second ? 16 : 0), "r"(static_cast<uint32_t>(go))
      : "memory");
}
// The same of a whole chunk, and 16 bytes of scales where `scaled`.
__device__ __forceinline__ void copy_scaled(uint32_t target, const uint8_t* low,
                                            const uint8_t* high, const uint8_t* scales, bool scaled,
                                            bool go) {
  asm volatile(
      "{.reg .pred go, scaled; setp.ne.u32 go, %5, 0; setp.ne.and.u32 scaled, %4, 0, go;"
      " @go cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
      " @go cp.async.cg.shared.global.L2::128B [%0 + 512], [%1 + 64], 16;"
      " @go cp.async.cg.shared.global.L2::128B [%0 + 1024], [%2], 16;"
      " @go cp.async.cg.shared.global.L2::128B [%0 + 1536], [%2 + 64], 16;"
      " @scaled cp.async.cg.shared.global.L2::128B [%0 + 2048], [%3], 16;}" ::"r"(target),
      "l"(low), "l"(high), "l"(scales), "r"(static_cast<uint32_t>(scaled)),
      "r"(static_cast<uint32_t>(go))
      : "memory");
}

// ---- weights ----------------------------------------------------------------------------------

// What a kernel knows of its parts when it is compiled: their kinds, a bit each, and whether there
// are several. The fewer there can be, the fewer steps it takes from chunk to chunk and from tile
// to tile, and the fewer registers.
constexpr int kind_bit(GemvKind kind) {
  return 1 << static_cast<int>(kind);
}
template <int kKinds, bool kSeveral>
struct Parts {
  static constexpr bool kMany = kSeveral;
  static constexpr bool has(GemvKind kind) { return kKinds & kind_bit(kind); }
  static constexpr bool only(GemvKind kind) { return kKinds == kind_bit(kind); }
};
using AnyParts = Parts<kind_bit(GemvKind::kBf16) | kind_bit(GemvKind::kFp8) |
                           kind_bit(GemvKind::kFp8Block) | kind_bit(GemvKind::kNvfp4),
                       true>;

// Whether `part`, one of Known, is of this kind.
template <class Known>
__device__ __forceinline__ bool is(const GemvPart& part, GemvKind kind) {
  return Known::only(kind) || (Known::has(kind) && part.kind == kind);
}
template <class Known>
__device__ __forceinline__ GemvKind kind_of(const GemvPart& part) {
  constexpr GemvKind kKinds[] = {GemvKind::kBf16, GemvKind::kFp8, GemvKind::kFp8Block};
  for (const GemvKind kind : kKinds) {
    if (is<Known>(part, kind)) return kind;
  }
  return GemvKind::kNvfp4;
}

// Which part a tile belongs to, and its number there.
template <class Known = AnyParts>
__device__ __forceinline__ int part_of(const GemvArgs& a, int tile, int& local) {
  local = tile;
  if (!Known::kMany) return 0;
  int part = 0, begin = 0;
  while (tile >= a.tile_ends[part]) begin = a.tile_ends[part++];
  local = tile - begin;
  return part;
}

// First row of the low and of the high half of a tile.
__device__ __forceinline__ int low_row(const GemvArgs& a, int local) {
  return a.gated ? local * 8 : local * 16;
}
__device__ __forceinline__ int high_row(const GemvArgs& a, int local) {
  return a.gated ? local * 8 : local * 16 + 8;
}

// What a lane copies: runs ahead of the products by the length of the ring. kGroup warps share a
// tile.
template <int kGroup>
struct Copies {
  const uint8_t* low;  // this lane's next piece of its two rows
  const uint8_t* high;
  const uint8_t* scales;  // kNvfp4: of the tile's row that this lane (0..15) copies
  int left;               // bytes of the row from that piece on
  int chunks = 0;         // of this tile still to be copied by this warp
  int tile, next;         // this one, and which of the group's the next is
  bool scaled;            // this lane has such scales to copy

  // Before a copy: on to the next tile, where the last chunk of one has been copied. False behind
  // the last tile.
  template <class Known>
  __device__ __forceinline__ bool ready(const GemvArgs& a, const GroupTiles& tiles) {
    if (chunks > 0) return true;
    if (tile >= a.tiles) return false;
    const int warp = static_cast<int>(threadIdx.x / 32 % kGroup);
    const int lane = static_cast<int>(threadIdx.x % 32);
    int local = 0, index = 0;
    Columns columns;
    for (;;) {
      tile = tiles.at(a, next++);
      if (tile >= a.tiles) return false;
      index = part_of<Known>(a, tile, local);
      columns = own_columns(a, a.parts[index], kind_of<Known>(a.parts[index]));
      if (warp < columns.chunks) break;
    }
    chunks = (columns.chunks - warp + kGroup - 1) / kGroup;
    const GemvPart& part = a.parts[index];
    const int g = lane / 4, t = lane % 4;
    // Rows beyond the last are read as the last one, and not stored.
    const int64_t low_index = min(low_row(a, local) + g, part.rows - 1);
    const int64_t high_index = min(high_row(a, local) + g, part.rows - 1);
    const int chunk = columns.chunk + warp, first = chunk * 128 + t * 16;
    left = part.row_bytes - first;
    low = part.low.data + low_index * part.row_bytes + first;
    high = part.high.data + high_index * part.row_bytes + first;
    scaled = is<Known>(part, GemvKind::kNvfp4) && lane < 16;
    scales = nullptr;
    if (scaled) {
      const GemvMatrix& matrix = lane < 8 ? part.low : part.high;
      const int row = lane < 8 ? low_row(a, local) + lane : high_row(a, local) + lane - 8;
      scales = static_cast<const uint8_t*>(matrix.scale) +
               int64_t{min(row, part.rows - 1)} * part.scale_stride + chunk * 16;
    }
    return true;
  }

  // Where `go`: starts the copies of the next chunk; `target` is this lane's place in the slot.
  // `kWhole`: no chunk of this kind ends behind its row; `kScaled`: has scales to copy.
  template <bool kWhole, bool kScaled>
  __device__ __forceinline__ void copy(uint32_t target, bool go) {
    if (kWhole && kScaled) {
      copy_scaled(target, low, high, scales, scaled, go);
    } else {
      copy_rows(target, low, high, kWhole || left > 0, kWhole || left > 64, go);
      if (kScaled) copy16(target + 2048, scales, true, go && scaled);
    }
    low += kGroup * 128;
    high += kGroup * 128;
    scales += kGroup * 16;
    left -= kGroup * 128;
  }
};

// kFp8Block: the scales of 32 chunks of a warp, from its chunk `first` on, one per lane.
template <class Known, int kGroup>
__device__ __forceinline__ float2 load_scales(const GemvArgs& a, int tile, int first) {
  float2 scales = make_float2(0, 0);
  if (!Known::has(GemvKind::kFp8Block)) return scales;
  if (tile >= a.tiles) return scales;
  int local;
  const GemvPart& part = a.parts[part_of<Known>(a, tile, local)];
  if (!is<Known>(part, GemvKind::kFp8Block)) return scales;
  const int warp = static_cast<int>(threadIdx.x / 32 % kGroup);
  const int chunk = warp + (first + static_cast<int>(threadIdx.x % 32)) * kGroup;
  const Columns columns = own_columns(a, part, GemvKind::kFp8Block);
  if (chunk >= columns.chunks) return scales;
  const int col = (columns.chunk + chunk) >> part.block_chunk_shift;
  const int low = (low_row(a, local) >> part.block_row_shift) * part.scale_stride + col;
  const int high =
      (min(high_row(a, local), part.rows - 1) >> part.block_row_shift) * part.scale_stride + col;
  if (part.scale_bf16) {
    scales.x = to_float(static_cast<const bf16*>(part.low.scale)[low]);
    scales.y = to_float(static_cast<const bf16*>(part.high.scale)[high]);
  } else {
    scales.x = static_cast<const float*>(part.low.scale)[low];
    scales.y = static_cast<const float*>(part.high.scale)[high];
  }
  return scales;
}

// What a finished sum of row m (0..15) of a tile is multiplied by.
template <class Known>
__device__ __forceinline__ float load_factor(const GemvArgs& a, const GemvPart& part, int local,
                                             int m) {
  const GemvMatrix& matrix = m < 8 ? part.low : part.high;
  if (!is<Known>(part, GemvKind::kFp8) || !part.scale_rows) return matrix.factor;
  const int row = min(m < 8 ? low_row(a, local) + m : high_row(a, local) + m - 8, part.rows - 1);
  return matrix.factor * (part.scale_bf16 ? to_float(static_cast<const bf16*>(matrix.scale)[row])
                                          : static_cast<const float*>(matrix.scale)[row]);
}

}  // namespace frt::cuda::gemv
