// SPDX-License-Identifier: Apache-2.0
#include "gemv_plan.hpp"

#include <algorithm>
#include <bit>

#include "../common/pieces.hpp"

namespace frt::cuda {
namespace {

int32_t round_up(int32_t value, int32_t step) {
  return (value + step - 1) / step * step;
}

// The decoded values are smaller than the true ones by these.
constexpr float kFp4Factor = 16384.0f;

// Of shared memory, for static variables and for a small kernel beside this one.
constexpr int32_t kStaticBytes = 3072;

// Blocks per tile. Two share one where there are too few tiles for all groups of warps, or where
// some multiprocessors would have much more to do than others.
int32_t choose_split(int32_t tiles, int32_t cols, const GemvDevice& device) {
  if (!device.clusters || device.multiprocessors % 2 != 0 || cols < 1024) return 1;
  const int32_t whole = (tiles + device.multiprocessors - 1) / device.multiprocessors;
  const int32_t clusters = device.multiprocessors / 2;
  const int32_t halves = (tiles + clusters - 1) / clusters;
  if (halves > kGemvMaxShares) return 1;
  const bool better =
      whole < kGemvWarps / kGemvGroup ? halves <= whole * 2 : halves * 100 < whole * 2 * 96;
  return better ? kGemvSplit : 1;
}

// Warps that share a tile: three, so that a block has five groups, where that takes fewer turns. It
// is for blocks that share few tiles, of which the four groups would have one each and one of them
// a second one, with all others waiting for it. (BF16 has a kernel of more rows that goes by four.)
int32_t choose_group(const GemvArgs& args, int32_t own_tiles) {
  const GemvPart& part = args.parts[0];
  if (args.part_count != 1 || args.split == 1 || part.kind == GemvKind::kBf16) {
    return kGemvGroup;
  }
  const int32_t chunks = std::min(part.chunks, args.part_cols >> gemv_chunk_shift(part.kind));
  const auto turns = [&](int32_t group) {
    const int32_t groups = kGemvWarps / group;
    return (own_tiles + groups - 1) / groups * ((chunks + group - 1) / group);
  };
  return turns(kGemvSmallGroup) < turns(kGemvGroup) ? kGemvSmallGroup : kGemvGroup;
}

// Splits the tiles into static and dynamic ones. SMs do not get equal shares of the bandwidth: they
// are up to 15 % apart. Each block has 11 twelfths of an equal share as static tiles. The rest is
// dynamic: a group takes the next one from the work counter when it gets there. Few dynamic tiles
// are for few groups of each block, so that no block takes more than it has the bandwidth for.
// (With all groups, the last 64 of 2176 tiles can go to the fastest blocks four at a time, and then
// all others wait for those.) Dynamic scheduling is for many tiles, and for products that wait for
// memory. The copies of a warp must not run ahead by more than a tile.
void schedule_tiles(GemvArgs& args, const GemvPlan& plan) {
  const int32_t groups = plan.warps / plan.group;
  args.static_tiles = args.tiles;
  args.dynamic_groups = 0;
  bool useful = args.split == 1 && args.tiles >= 3 * args.clusters * groups;
  for (int32_t i = 0; i < args.part_count; ++i) {
    const GemvPart& part = args.parts[i];
    useful &= part.kind != GemvKind::kNvfp4 && part.chunks / plan.group >= plan.stages;
  }
  if (!useful) return;
  args.static_tiles =
      static_cast<int32_t>(int64_t{args.tiles} * 11 / 12 / args.clusters) * args.clusters;
  const int32_t rest = args.tiles - args.static_tiles;
  args.dynamic_groups = std::min(groups, (rest + args.clusters - 1) / args.clusters);
}

}  // namespace

bool make_gemv_part(const Weight& weight, GemvPart& part) {
  part = GemvPart{};
  part.rows = weight.rows;
  part.low.data = static_cast<const uint8_t*>(weight.data);
  part.low.scale = weight.scale;
  part.scale_bf16 = weight.scale_dtype == FRT_DTYPE_BF16;
  bool fits = aligned(weight.data, 16);
  switch (weight.type) {
    case WeightType::kBf16:
      part.kind = GemvKind::kBf16;
      part.row_bytes = weight.cols * 2;
      fits &= weight.cols % 8 == 0 && weight.cols < INT32_MAX / 2;
      break;
    case WeightType::kFp8Tensor:
    case WeightType::kFp8Channel:
      part.kind = GemvKind::kFp8;
      part.row_bytes = weight.cols;
      part.scale_rows = weight.type == WeightType::kFp8Channel;
      part.low.factor = part.scale_rows ? 1.0f : weight.global_scale;
      fits &= weight.cols % 16 == 0;
      break;
    case WeightType::kFp8Block:
      part.kind = GemvKind::kFp8Block;
      part.row_bytes = weight.cols;
      part.scale_stride =
          static_cast<int32_t>((int64_t{weight.cols} + weight.block_cols - 1) / weight.block_cols);
      part.block_row_shift = std::bit_width(static_cast<uint32_t>(weight.block_rows)) - 1;
      part.block_chunk_shift =
          std::bit_width(static_cast<uint32_t>(weight.block_cols / 128 | 1)) - 1;
      fits &= weight.cols % 16 == 0 && weight.block_rows % 8 == 0 && weight.block_cols % 128 == 0 &&
              weight.block_rows == 1 << part.block_row_shift &&
              weight.block_cols == 128 << part.block_chunk_shift;
      break;
    case WeightType::kNvfp4:
      part.kind = GemvKind::kNvfp4;
      part.row_bytes = weight.cols / 2;
      part.scale_stride = weight.cols / 16;
      part.low.factor = kFp4Factor * weight.global_scale;
      fits &= weight.cols % 256 == 0 && aligned(weight.scale, 16);
      break;
    default:
      return false;
  }
  const int32_t cols = gemv_chunk_cols(part.kind);
  part.chunks = static_cast<int32_t>((int64_t{weight.cols} + cols - 1) / cols);
  part.high = part.low;
  return fits;
}

GemvPlan plan_gemv(GemvArgs& args, int32_t rows, const GemvDevice& device, GemvAhead ahead) {
  GemvPlan plan;
  bool copies[kXCopies] = {};
  int32_t tiles = 0, slot = 0;
  for (int32_t i = 0; i < args.part_count; ++i) {
    GemvPart& part = args.parts[i];
    const int32_t step = args.gated ? 8 : 16;
    tiles += (part.rows + step - 1) / step;
    args.tile_ends[i] = tiles;
    slot = std::max(slot, gemv_slot_bytes(part.kind));
    copies[gemv_x(part.kind)] = true;
  }
  const auto count = static_cast<int32_t>(std::count(copies, copies + kXCopies, true));
  args.split = choose_split(tiles, args.cols, device);
  args.part_cols = round_up((args.cols + args.split - 1) / args.split, 256);
  args.tiles = tiles;
  args.slot_bytes = slot;
  const int32_t clusters = std::min(device.multiprocessors / args.split, tiles);
  args.clusters = clusters;
  plan.blocks = clusters * args.split;
  const int64_t pitch = int64_t{args.part_cols} * 2 + 64;
  const int32_t own_tiles = (tiles + clusters - 1) / clusters;
  plan.group = choose_group(args, own_tiles);
  for (rows = std::min(rows, kGemvRows); rows > 0; rows = rows > 8 ? 8 : rows / 2) {
    const bool scaled = copies[kXF16] || copies[kXF16Fp4];
    const int32_t inverses = scaled ? args.part_cols / kGemvXUnit * gemv_padded_rows(rows) * 4 : 0;
    const int64_t x = pitch * rows * count + inverses;
    const int32_t shares = args.split > 1 ? own_tiles * args.split * rows * 16 * 4 : 0;
    const int64_t most = device.shared_block - kStaticBytes - x - shares;
    int32_t sums = 0, ring = 0;
    const auto fits = [&](int32_t groups, int32_t stages) {
      const int32_t warps = groups * plan.group;
      sums = 2 * warps * rows * kGemvSumStride * 4;
      ring = warps * stages * slot;
      plan.warps = warps;
      plan.stages = stages;
      return sums + ring <= most;
    };
    const int32_t all = kGemvWarps / plan.group, half = (all + 1) / 2;
    if (!fits(all, kGemvStages) && !fits(all, kGemvSomeStages) && !fits(all, kGemvFewStages) &&
        !fits(half, kGemvFewStages) && !fits(half, kGemvLeastStages) && !fits(1, kGemvFewStages)) {
      continue;
    }
    // Copies are issued no faster than memory delivers, and x waits behind them. That costs most
    // where much is to be done once x is there, and behind a small kernel, where x is there soon.
    // Behind a product the ring fills while that one's slower blocks still run.
    const bool soon = ahead == GemvAhead::kOther && plan.stages == kGemvStages;
    args.early_stages = std::min(soon ? plan.stages - 1 : plan.stages, scaled ? 3 : plan.stages);
    schedule_tiles(args, plan);
    int32_t offset = ring;
    for (int copy = 0; copy < kXCopies; ++copy) {
      args.x_offset[copy] = copies[copy] ? offset : -1;
      if (!copies[copy]) continue;
      // An odd multiple of 64 bytes: the two rows that a quarter of a warp reads share no bank.
      args.x_pitch[copy] = static_cast<int32_t>(pitch);
      offset += args.x_pitch[copy] * rows;
    }
    args.x_inverse_offset = scaled ? offset : -1;
    offset += inverses;
    args.sums_offset = offset;
    args.shares_offset = offset + sums;
    args.rows = rows;
    plan.rows = rows;
    plan.shared_bytes = static_cast<std::size_t>(offset + sums + shares);
    return plan;
  }
  return plan;
}

GemvArgs family_parts(const GemvArgs& args, GemvFamily family, int32_t rows) {
  const auto family_of = [](GemvKind kind) {
    return kind == GemvKind::kBf16    ? GemvFamily::kBf16
           : kind == GemvKind::kNvfp4 ? GemvFamily::kNvfp4
                                      : GemvFamily::kFp8;
  };
  GemvArgs some = args;
  some.part_count = some.tiles = 0;
  for (int32_t i = 0; i < args.part_count; ++i) {
    if (family_of(args.parts[i].kind) != family) continue;
    some.tiles += args.tile_ends[i] - (i > 0 ? args.tile_ends[i - 1] : 0);
    some.tile_ends[some.part_count] = some.tiles;
    some.parts[some.part_count++] = args.parts[i];
  }
  some.static_tiles = some.tiles;
  some.dynamic_groups = 0;
  some.clusters = std::min(args.clusters, some.tiles);
  some.rows = rows;
  return some;
}

}  // namespace frt::cuda
