// SPDX-License-Identifier: Apache-2.0
#include "linear_narrow_plan.hpp"

#include <algorithm>

namespace frt::cuda {
namespace {

bool aligned(const void* pointer, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

int32_t round_up(int32_t value, int32_t step) {
  return (value + step - 1) / step * step;
}

// At least so many bytes of weights in flight, or fewer rows of x at once.
constexpr int32_t kLeastRing = 48 * 1024;

}  // namespace

bool make_narrow_part(const frt_weight& weight, NarrowPart& part) {
  part = NarrowPart{};
  part.rows = weight.rows;
  part.low.data = static_cast<const uint8_t*>(weight.data);
  part.low.scale = weight.scale;
  part.scale_bf16 = weight.scale_dtype == FRT_DTYPE_BF16;
  bool fits = aligned(weight.data, 16);
  switch (weight.format) {
    case FRT_WEIGHT_BF16:
      part.kind = NarrowKind::kBf16;
      part.row_bytes = weight.cols * 2;
      fits &= weight.cols % 8 == 0 && weight.cols < INT32_MAX / 2;
      break;
    case FRT_WEIGHT_FP8_TENSOR:
    case FRT_WEIGHT_FP8_CHANNEL:
      part.kind = NarrowKind::kFp8;
      part.row_bytes = weight.cols;
      part.scale_rows = weight.format == FRT_WEIGHT_FP8_CHANNEL;
      part.low.factor = part.scale_rows ? 1.0f : weight.global_scale;
      fits &= weight.cols % 16 == 0;
      break;
    case FRT_WEIGHT_FP8_BLOCK:
      part.kind = NarrowKind::kFp8Block;
      part.row_bytes = weight.cols;
      part.scale_stride =
          static_cast<int32_t>((int64_t{weight.cols} + weight.block_cols - 1) / weight.block_cols);
      part.block_rows = weight.block_rows;
      part.block_chunks = std::max(weight.block_cols / 128, 1);
      fits &= weight.cols % 16 == 0 && weight.block_cols % 128 == 0 && weight.block_rows % 8 == 0;
      break;
    case FRT_WEIGHT_NVFP4:
      part.kind = NarrowKind::kNvfp4;
      part.row_bytes = weight.cols / 2;
      part.scale_stride = weight.cols / 16;
      // The decoded values are 2^-6 of the true ones.
      part.low.factor = weight.global_scale * 64.0f;
      fits &= weight.cols % 128 == 0 && aligned(weight.scale, 8);
      break;
    default:
      return false;
  }
  const int32_t cols = narrow_chunk_cols(part.kind);
  part.chunks = static_cast<int32_t>((int64_t{weight.cols} + cols - 1) / cols);
  part.high = part.low;
  return fits;
}

NarrowPlan plan_narrow(NarrowArgs& args, int32_t rows, int32_t multiprocessors,
                       int32_t shared_bytes, int32_t warps) {
  NarrowPlan plan;
  bool copies[kXCopies] = {};
  int32_t tiles = 0, slot = 0;
  for (int32_t i = 0; i < args.part_count; ++i) {
    NarrowPart& part = args.parts[i];
    const int32_t step = args.gated ? 8 : 16;
    tiles += (part.rows + step - 1) / step;
    part.tile_end = tiles;
    slot = std::max(slot, narrow_slot_bytes(part.kind));
    copies[narrow_x(part.kind)] = true;
    if (part.kind == NarrowKind::kFp8Block && part.chunks > 8 * kNarrowMaxScales) return plan;
  }
  plan.warps = warps ? warps : 8;
  plan.blocks = std::min(multiprocessors, tiles);
  args.tiles = tiles;
  args.slot_bytes = slot;
  const auto row_bytes = static_cast<int64_t>(round_up(args.cols, 128)) * 2;
  const int32_t count = static_cast<int32_t>(std::count(copies, copies + kXCopies, true));
  for (rows = std::min(rows, kNarrowRows); rows > 0; rows = rows > 8 ? 8 : rows / 2) {
    const int32_t halves = rows > 8 ? 2 : 1;
    const int64_t x = (row_bytes + 64) * rows * count;
    const int32_t sums = 2 * plan.warps * halves * 8 * kNarrowSumStride * 4;
    const int64_t ring = shared_bytes - x - sums;
    if (ring < std::min(kLeastRing, shared_bytes / 4)) continue;
    args.stages = static_cast<int32_t>(
        std::min<int64_t>(ring / (int64_t{plan.warps} * slot), kNarrowMaxStages));
    if (args.stages < 2) continue;
    if (args.stages > 12) args.stages = args.stages / 4 * 4;  // those that the kernel can wait for
    int32_t offset = plan.warps * args.stages * slot;
    for (int copy = 0; copy < kXCopies; ++copy) {
      args.x_offset[copy] = copies[copy] ? offset : -1;
      if (!copies[copy]) continue;
      // An odd multiple of 64 bytes: the two rows that a quarter of a warp reads share no bank.
      args.x_pitch[copy] = static_cast<int32_t>(row_bytes + 64);
      offset += args.x_pitch[copy] * rows;
    }
    args.sums_offset = offset;
    args.rows = rows;
    plan.rows = rows;
    plan.shared_bytes = static_cast<std::size_t>(offset + sums);
    return plan;
  }
  return plan;
}

}  // namespace frt::cuda
