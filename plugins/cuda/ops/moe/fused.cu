// SPDX-License-Identifier: Apache-2.0
// The decode kernel that is one launch, on the host: what it can do, how it divides shared memory,
// where its cells lie on the exchange memory. The kernel: fused_kernel.cu.
//
// Its sums are not in the order of decode.cu's. So whether it runs must not depend on the rows, as
// far as a row is promised the same bits alone and among others (up to kFusedMostRows): where more
// rows are given than one launch takes, there are several launches.
#include <algorithm>

#include "../common/exchange.hpp"
#include "../common/launch.cuh"
#include "../common/pieces.hpp"
#include "decode.cuh"
#include "fused.cuh"

namespace frt::cuda {
namespace {

constexpr int kMinStages = 2;
constexpr int kMinRingBytes = 96 * 1024;  // less cannot keep the memory busy
constexpr int64_t kUnitRows = 16;
constexpr int64_t kStaticBytes = 6 * 1024;  // of the kernel's shared memory, with what CUDA takes

bool fused_matrix(const MoeMatrix& matrix, MoeFormat format) {
  if (!streams(matrix) || moe_format(matrix.type) != format) return false;
  if (matrix.type != WeightType::kFp8Block) return true;
  const bool words =
      !matrix.scale_bf16 || (matrix.scale_columns % 2 == 0 && matrix.scale_stride % 4 == 0 &&
                             reinterpret_cast<std::uintptr_t>(matrix.scale) % 4 == 0);
  return words && matrix.block_shift >= 7 && matrix.block_rows % 8 == 0;
}

bool fits(const MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  const MoeFormat format = moe_format(block.gate.type);
  if (block.routed || args.dtype != FRT_DTYPE_BF16 || args.rows > kFusedMostRows ||
      (format != MoeFormat::kBf16 && format != MoeFormat::kFp8)) {
    return false;
  }
  const auto alike = [](const MoeMatrix& a, const MoeMatrix& b) {
    return a.type == b.type && a.scale_bf16 == b.scale_bf16 && a.block_shift == b.block_shift;
  };
  bool good = alike(block.gate, block.up) && args.experts % 2 == 0 && args.experts <= 256 &&
              block.inputs <= kFusedMultipliers * 8 && aligned(args.x) && aligned(args.residual) &&
              aligned(args.delta) && aligned(args.norm_weight) &&
              fused_matrix(block.router, MoeFormat::kBf16);
  for (const MoeMatrix* matrix : {&block.gate, &block.up, &block.down}) {
    good &= fused_matrix(*matrix, format);
  }
  if (block.shared) {
    const MoeFormat shared = moe_format(block.shared_gate.type);
    good &= (shared == format || shared == MoeFormat::kBf16) &&
            alike(block.shared_gate, block.shared_up);
    for (const MoeMatrix* matrix : {&block.shared_gate, &block.shared_up}) {
      good &= fused_matrix(*matrix, shared);
    }
    const MoeFormat down = moe_format(block.shared_down.type);
    good &= (down == format || down == MoeFormat::kBf16) && fused_matrix(block.shared_down, down) &&
            fused_matrix(block.shared_scale, MoeFormat::kBf16);
  }
  return good;
}

// Of a launch of `rows` rows.
FusedLayout plan(const Device& device, const MoeBlock& block, int64_t rows) {
  const int64_t assignments = rows * block.args.experts_per_token;
  const auto padded_bytes = [](int64_t values) { return values * 2 + 16; };
  const int64_t x = rows * padded_bytes(block.inputs);
  const int64_t hidden =
      assignments * padded_bytes(block.width) + rows * padded_bytes(block.shared_width);
  const int64_t results = (assignments + rows) * kFusedParts * kFusedColumns * 4;
  const int64_t sums = std::max<int64_t>(2 * kFusedWarps * 128, rows * block.args.experts) * 4;
  const int64_t rest = std::max(x, hidden) + results + sums;

  const auto align = [](int64_t bytes) { return (bytes + 127) / 128 * 128; };
  const int64_t item =
      align(kUnitRows * std::max(block.down.row_bytes, block.shared_down.row_bytes));
  const int64_t stage = align(std::max(
      item, kUnitRows * std::max({block.router.row_bytes, block.gate.row_bytes,
                                  block.shared_gate.row_bytes, block.shared_scale.row_bytes})));
  const int64_t items = std::min<int64_t>(kFusedWarps / kFusedParts, stage / item);
  const int64_t blocks = ceil_div(std::max({block.inputs, block.width, block.shared_width}), 128);
  const bool fp8 = moe_format(block.gate.type) == MoeFormat::kFp8;
  const int64_t scales = fp8 ? align(items * 2 * blocks * 4) : 0;
  const int64_t room = device.properties().shared_bytes_block - kStaticBytes - rest;
  FusedLayout made{};
  made.stages = static_cast<int32_t>(std::clamp<int64_t>(room / (stage + scales), 0, kFusedStages));
  made.stage_bytes = static_cast<int32_t>(stage);
  made.item_bytes = static_cast<int32_t>(item);
  made.items = static_cast<int32_t>(items);
  made.scale_blocks = static_cast<int32_t>(blocks);
  made.scale_bytes = static_cast<int32_t>(scales);
  made.scales = static_cast<int32_t>(made.stages * stage);
  made.x = made.hidden = static_cast<int32_t>(made.scales + made.stages * scales);
  made.results = static_cast<int32_t>(made.x + std::max(x, hidden));
  made.sums = static_cast<int32_t>(made.results + results);
  made.bytes = static_cast<int32_t>(made.sums + sums);
  return made;
}

// What blocks tell each other: cells of the exchange memory.
struct Cells {
  Cells(const MoeBlock& block, int64_t rows) {
    logits = rows * block.args.experts;
    shared = rows * block.shared_width / 2;
    count = logits + kFusedRows + shared + rows * block.args.experts_per_token * block.width / 2;
  }
  int64_t logits, shared, count;
};

// Whether a launch takes so many rows.
bool takes_rows(const Device& device, const MoeBlock& block, int32_t rows) {
  if (rows * static_cast<int64_t>(block.args.experts_per_token) > kFusedAssignments) return false;
  const FusedLayout layout = plan(device, block, rows);
  const bool small_ring =
      layout.stages < kMinStages ||
      (layout.stages < kFusedStages && layout.stages * layout.stage_bytes < kMinRingBytes);
  return !small_ring &&
         kFusedBlocks * 4 + Cells(block, rows).count * 8 <= static_cast<int64_t>(kExchangeBytes);
}

// The most rows of a launch; 0: it takes none. However many rows the block has.
int32_t most_rows(const Device& device, const MoeBlock& block) {
  int32_t rows = kFusedRows;
  while (rows > 0 && !takes_rows(device, block, rows)) --rows;
  return rows;
}

// A launch for the rows from `first` on.
FusedArgs fused_args(Stream& stream, const MoeBlock& block, int64_t first, int32_t rows) {
  const frt_moe_block_args& args = block.args;
  const Cells cells(block, rows);
  const int64_t skipped = first * block.inputs;  // values
  FusedArgs made{};
  if (args.residual) {
    const bool f32 = args.residual_dtype == FRT_DTYPE_F32;
    made.norm = {static_cast<std::byte*>(args.residual) + skipped * (f32 ? 4 : 2),
                 args.delta ? static_cast<const bf16*>(args.delta) + skipped : nullptr,
                 args.norm_weight, args.epsilon, f32};
  }
  made.x = static_cast<bf16*>(args.x) + skipped;
  made.first = static_cast<int32_t>(first);
  made.rows = rows;
  made.inputs = block.inputs;
  made.experts = args.experts;
  made.top_k = args.experts_per_token;
  made.width = block.width;
  made.shared_width = block.shared ? block.shared_width : 0;
  made.normalise = args.normalise != 0;
  made.row_count = args.row_count;
  made.router = block.router;
  made.gate = block.gate;
  made.up = block.up;
  made.down = block.down;
  made.shared_gate = block.shared_gate;
  made.shared_up = block.shared_up;
  made.shared_down = block.shared_down;
  made.shared_scale = block.shared_scale;
  made.logits = args.logits + first * args.experts;
  made.ids = args.ids + first * args.experts_per_token;
  made.weights = args.weights + first * args.experts_per_token;
  made.y = static_cast<bf16*>(args.y) + skipped;
  auto* memory = static_cast<std::byte*>(exchange_memory(stream));
  made.numbers = reinterpret_cast<uint32_t*>(memory);
  made.logit_cells = reinterpret_cast<uint64_t*>(memory + kFusedBlocks * 4);
  made.scale_cells = made.logit_cells + cells.logits;
  made.shared_cells = made.scale_cells + kFusedRows;
  made.hidden_cells = made.shared_cells + cells.shared;
  made.layout = plan(stream.device(), block, rows);
  return made;
}

}  // namespace

bool supports_moe_fused(Device& device, MoeBlock& block) {
  return fits(block) && device.properties().multiprocessors <= kFusedBlocks &&
         most_rows(device, block) > 0;
}

void launch_moe_fused(Stream& stream, MoeBlock& block) {
  const Device& device = stream.device();
  const int32_t rows = block.args.rows;
  const auto launches = static_cast<int32_t>(ceil_div(rows, most_rows(device, block)));
  const auto share = static_cast<int32_t>(ceil_div(rows, launches));
  for (int32_t first = 0; first < rows; first += share) {
    launch_fused(stream, moe_format(block.gate.type) == MoeFormat::kFp8,
                 device.properties().multiprocessors,
                 fused_args(stream, block, first, std::min(share, rows - first)));
  }
}

}  // namespace frt::cuda
