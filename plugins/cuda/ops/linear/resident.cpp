// SPDX-License-Identifier: Apache-2.0
// Resident products: which they are, and which block has which tiles.
#include "resident.hpp"

#include <algorithm>

#include "../../device.hpp"
#include "../common/pieces.hpp"

namespace frt::cuda {
namespace {

// Asked for by each block before the wait for x. What is under way then, x waits behind.
constexpr int64_t kEarlyBytes = 68 << 10;
constexpr int64_t kStaticBytes = 1024;  // of shared memory: barriers and what CUDA takes

bool supports(const GemvPart& part) {
  return part.kind == GemvKind::kBf16 || part.kind == GemvKind::kFp8 ||
         part.kind == GemvKind::kFp8Block;
}

int64_t tile_bytes(const GemvPart& part) {
  return int64_t{kResidentRows} * (part.row_bytes + kResidentGap);
}

// Neighbours for each block, so that the block with the most has as few bytes as can be.
int assign_tiles(ResidentArgs& args, int blocks, int64_t most) {
  int64_t total = 0, smallest = INT64_MAX;
  for (int i = 0; i < args.part_count; ++i) {
    const int64_t bytes = tile_bytes(args.parts[i]);
    total += bytes * (args.tile_ends[i] - (i > 0 ? args.tile_ends[i - 1] : 0));
    smallest = std::min(smallest, bytes);
  }
  const int tiles = args.tile_ends[args.part_count - 1];
  for (int64_t limit = (total + blocks - 1) / blocks; limit <= most + smallest; limit += smallest) {
    int used = 0, part = 0, count = 0;
    int64_t bytes = 0;
    bool fits = true;
    args.first[0] = 0;
    for (int tile = 0; tile < tiles && fits; ++tile) {
      while (tile >= args.tile_ends[part]) ++part;
      const int64_t own = tile_bytes(args.parts[part]);
      if (count > 0 && (bytes + own > std::min(limit, most) || count == kResidentTiles)) {
        args.first[++used] = static_cast<uint16_t>(tile);
        bytes = count = 0;
        fits = used < blocks;
      }
      bytes += own;
      ++count;
      fits &= bytes <= most;
    }
    if (!fits) continue;
    args.first[++used] = static_cast<uint16_t>(tiles);
    return used;
  }
  return 0;
}

}  // namespace

bool plan_resident(const Device& on, std::span<const Product> products, ResidentPlan& plan) {
  const DeviceProperties& device = on.properties();
  const Product& front = products.front();
  const int32_t cols = front.weight.cols, blocks = device.multiprocessors;
  if (blocks > kResidentBlocks || front.rows != 1 || products.size() > kGemvParts ||
      front.x_dtype != FRT_DTYPE_BF16 || cols % kGemvXUnit != 0 || !aligned(front.x)) {
    return false;
  }
  // The streaming kernel's plan says in which order it would add.
  GemvArgs gemv;
  gemv.cols = cols;
  bool copies[kXCopies] = {};
  int64_t tiles = 0;
  for (const Product& product : products) {
    GemvPart& part = gemv.parts[gemv.part_count++];
    if (!make_gemv_part(product.weight, part) || !supports(part)) return false;
    part.y = product.y;
    part.y_stride = product.y_stride;
    part.y_float = product.y_dtype == FRT_DTYPE_F32;
    part.accumulate = product.accumulate;
    copies[gemv_x(part.kind)] = true;
    tiles += (part.rows + kResidentRows - 1) / kResidentRows;
  }
  if (tiles > UINT16_MAX) return false;
  const GemvDevice gemv_device{
      .multiprocessors = blocks, .shared_block = device.shared_bytes_block, .clusters = true};
  const GemvPlan streamed = plan_gemv(gemv, 1, gemv_device);
  if (streamed.rows == 0 || streamed.group != kGemvGroup || gemv.split > kResidentSplit)
    return false;

  ResidentArgs& args = plan.args;
  args = {};
  args.part_count = gemv.part_count;
  args.split = gemv.split;
  args.part_cols = gemv.part_cols;
  std::copy_n(gemv.tile_ends, kGemvParts, args.tile_ends);
  std::copy_n(gemv.parts, kGemvParts, args.parts);
  args.cols = cols;
  args.chunks = std::max(cols / gemv_chunk_cols(GemvKind::kFp8), args.split * kGemvGroup);
  int64_t rest = 0;
  const auto take = [&](int64_t wanted) {
    const int64_t at = rest;
    rest += (wanted + 127) / 128 * 128;
    return static_cast<int32_t>(at);
  };
  for (int copy = 0; copy < kXCopies; ++copy) {
    if (copies[copy]) args.x_offset[copy] = take(int64_t{cols} * 2);
  }
  if (copies[kXF16]) args.x_inverse_offset = take(int64_t{cols} / kGemvXUnit * 4);
  const int64_t tile_sums = int64_t{args.chunks} * kResidentRows * 4;
  const int64_t most = device.shared_bytes_block - kStaticBytes - rest -
                       tile_sums * ((tiles + blocks - 1) / blocks + 1);
  const int used = most > 0 ? assign_tiles(args, blocks, most) : 0;
  if (used == 0) return false;
  int most_tiles = 0;
  int64_t most_bytes = 0;
  for (int b = 0, part = 0; b < used; ++b) {
    int64_t own = 0;
    for (int tile = args.first[b]; tile < args.first[b + 1]; ++tile) {
      while (tile >= args.tile_ends[part]) ++part;
      own += tile_bytes(args.parts[part]);
    }
    most_bytes = std::max(most_bytes, own);
    most_tiles = std::max(most_tiles, args.first[b + 1] - args.first[b]);
  }
  // A lane of each warp has the scale of a half of a tile in one of its chunks.
  const int chunks_warp = (args.chunks + kResidentWarps - 1) / kResidentWarps;
  if (most_tiles * chunks_warp * 2 > 32) return false;
  most_bytes = (most_bytes + 127) / 128 * 128;
  for (int32_t& offset : args.x_offset) {
    if (offset >= 0) offset += static_cast<int32_t>(most_bytes);
  }
  if (args.x_inverse_offset >= 0) args.x_inverse_offset += static_cast<int32_t>(most_bytes);
  args.sums_offset = static_cast<int32_t>(most_bytes + rest);
  const int64_t shared = most_bytes + rest + tile_sums * most_tiles;
  if (shared > device.shared_bytes_block - kStaticBytes) return false;
  int64_t widest = 0;
  for (int i = 0; i < args.part_count; ++i) {
    widest = std::max(widest, tile_bytes(args.parts[i]));
  }
  args.early = static_cast<int32_t>(std::max<int64_t>(1, kEarlyBytes / widest));
  args.row_count = front.row_count;
  args.x = front.x;
  plan.blocks = used;
  plan.shared_bytes = static_cast<std::size_t>(shared);
  return true;
}

}  // namespace frt::cuda
