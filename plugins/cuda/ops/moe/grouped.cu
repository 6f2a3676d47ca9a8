// SPDX-License-Identifier: Apache-2.0
// A mixture-of-experts block of many rows, bf16. Every assignment (row, j) is a row of a product
// with its expert's matrices:
//
// clang-format off
//   norm      residual += delta, x = norm(residual), the shared expert's scale
//   router    logits = x router^T, as a product with one matrix
//   route     ids and weights, a warp per row
//   sort      assignments by expert, tiles of them
//   gate, up  hidden[sorted] = silu(x gate^T) * (x up^T), rows of x gathered; also of the shared expert
//   down      results[assignment] = hidden down^T, f32; also of the shared expert
//   mix       the weighted sum over j in order, plus the shared expert
// clang-format on
//
// Qwen3.6-35B-A3B, 8192 rows: 0.464 TFLOP per layer, 0.59 ms at 790 TFLOP/s; 200 rows touch every
// expert: 1.62 GB of bf16, 0.35 ms at 4.65 TB/s.
#include <algorithm>

#include "../../kernel_list.hpp"
#include "../common/launch.cuh"
#include "../linear/fp4_tile.hpp"
#include "grouped.cuh"
#include "grouped_mma.cuh"
#include "moe.hpp"
#include "sort.cuh"

namespace frt::cuda {
namespace {

// Tiles of kSmallTile rows up to this many assignments per expert.
constexpr int64_t kSmallTileLoad = 8;
// From so many assignments per expert on quantised matrices are dequantised before the product: 3
// bytes of traffic a value, whatever the rows, against 1.8 times the time of each row.
constexpr int64_t kDequantiseLoad = 96;

bool multiplies(const MoeMatrix& matrix) {
  return matrix.type != WeightType::kF32 && reads_in_portions(matrix);
}

bool fits(const MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  };
  bool good = args.dtype == FRT_DTYPE_BF16 && args.experts <= kSortExperts && aligned(args.x) &&
              aligned(args.y) && multiplies(block.gate) && multiplies(block.up) &&
              multiplies(block.down) && moe_format(block.gate.type) == moe_format(block.up.type);
  if (!block.routed) good &= multiplies(block.router);
  if (block.shared) {
    good &= aligned(args.shared_hidden) && aligned(args.shared_y) &&
            multiplies(block.shared_gate) && multiplies(block.shared_up) &&
            multiplies(block.shared_down) &&
            moe_format(block.shared_gate.type) == moe_format(block.shared_up.type);
  }
  return good;
}

// Cuts a block of memory into pieces aligned to 256 bytes; without memory only their sizes count.
class Cutter {
 public:
  explicit Cutter(void* memory) : memory_(static_cast<std::byte*>(memory)) {}
  template <class T>
  T* take(int64_t count) {
    std::byte* piece = memory_ ? memory_ + used_ : nullptr;
    used_ += static_cast<std::size_t>(ceil_div(count * static_cast<int64_t>(sizeof(T)), 256) * 256);
    return reinterpret_cast<T*>(piece);
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

struct Memory {
  Memory(Cutter& cutter, const MoeBlock& block, int64_t tiles, std::size_t slice_bytes) {
    const int64_t assignments =
        static_cast<int64_t>(block.args.rows) * block.args.experts_per_token;
    places = cutter.take<int32_t>(sort_blocks(block.args.rows, block.args.experts_per_token) *
                                  block.args.experts);
    first = cutter.take<int32_t>(block.args.experts);
    order = cutter.take<int32_t>(assignments);
    tile = cutter.take<MoeTile>(tiles);
    first_tile = cutter.take<int32_t>(block.args.experts);
    tile_count = cutter.take<int32_t>(1);
    hidden = cutter.take<bf16>(assignments * block.width);
    results = cutter.take<float>(assignments * block.inputs);
    slice = cutter.take<bf16>(static_cast<int64_t>(slice_bytes / sizeof(bf16)));
  }
  int32_t *places, *first, *order;
  MoeTile* tile;
  int32_t *first_tile, *tile_count;
  bf16* hidden;
  float* results;
  bf16* slice;
};

bool supports_wgmma(Device&, GroupedCall& call) {
  return call.tile_rows == kLargeTile && call.product.matrix.type == WeightType::kBf16;
}
bool supports_dequantised(Device&, GroupedCall& call) {
  const MoeProduct& product = call.product;
  return call.experts > 1 && call.tile_rows == kLargeTile &&
         static_cast<int64_t>(product.rows) * product.top_k >= kDequantiseLoad * call.experts;
}
constexpr Needs kWgmmaNeeds{feature::kWgmma | feature::kBulkCopies, kGroupedWgmmaSharedBytes};
constexpr Variant<GroupedCall> kProductVariants[] = {
    {"w4a4",
     {feature::kFp4Mma | feature::kFp4Activations, kFp4SharedBytes},
     supports_grouped_w4a4,
     launch_grouped_w4a4},
    {"wgmma", kWgmmaNeeds, supports_wgmma, launch_grouped_wgmma},
    {"dequantised", kWgmmaNeeds, supports_dequantised, launch_grouped_dequantised},
    {"mma", {}, nullptr, launch_grouped_mma},
};
constexpr Variants<GroupedCall> kProductTable{"grouped product", kProductVariants};

// `x_rows`: rows of x in memory, `experts`: matrices in memory. `slice`: working_slice() bytes.
void multiply(Stream& stream, const MoeProduct& product, int64_t x_rows, int64_t experts,
              int tile_rows, bool gated, bf16* slice) {
  const GroupedCall call{product, x_rows, experts, tile_rows, gated, slice};
  run_variant(stream, kProductTable, call);
}

// A product of all rows with one matrix.
MoeProduct plain_product(const MoeBlock& block, const void* x, const MoeMatrix& matrix, void* y) {
  MoeProduct product{};
  product.x = static_cast<const bf16*>(x);
  product.rows = block.args.rows;
  product.row_count = block.args.row_count;
  product.matrix = matrix;
  product.y = y;
  return product;
}

// Working memory of one product after the other, for what select_variant() gives them.
std::size_t working_slice(Device& device, const MoeBlock& block, int tile_rows, int rows_tile) {
  std::size_t bytes = 0;
  const auto add = [&](const MoeProduct& product, int64_t x_rows, int64_t experts, int tile,
                       bool gated) {
    const GroupedCall call{product, x_rows, experts, tile, gated, nullptr};
    const auto selected = select_variant(device, kProductTable, call).launch;
    if (selected == launch_grouped_dequantised) bytes = std::max(bytes, grouped_slice_bytes(call));
    if (selected == launch_grouped_w4a4) bytes = std::max(bytes, grouped_w4a4_bytes(call));
  };
  const auto product_with = [&](const MoeMatrix& matrix, const MoeMatrix& up, int32_t top_k) {
    MoeProduct product = plain_product(block, nullptr, matrix, nullptr);
    product.up = up;
    product.top_k = top_k;
    return product;
  };
  const frt_moe_block_args& args = block.args;
  const int32_t chosen = args.experts_per_token;
  add(product_with(block.gate, block.up, chosen), args.rows, args.experts, tile_rows, true);
  add(product_with(block.down, {}, chosen), static_cast<int64_t>(args.rows) * chosen, args.experts,
      tile_rows, false);
  if (block.shared) {
    add(product_with(block.shared_gate, block.shared_up, 0), args.rows, 1, rows_tile, true);
    add(product_with(block.shared_down, {}, 0), args.rows, 1, rows_tile, false);
  }
  return bytes;
}

void route(Stream& stream, const MoeBlock& block, int tile_rows) {
  const frt_moe_block_args& args = block.args;
  MoeProduct router = plain_product(block, args.x, block.router, args.logits);
  router.y_f32 = true;
  multiply(stream, router, args.rows, 1, tile_rows, false, nullptr);
  frt_moe_route_args route{};
  route.rows = args.rows;
  route.experts = args.experts;
  route.experts_per_token = args.experts_per_token;
  route.normalise = args.normalise;
  route.row_count = args.row_count;
  route.logits = args.logits;
  route.ids = args.ids;
  route.weights = args.weights;
  launch_moe_route(stream, route);
}

void run_shared(Stream& stream, const MoeBlock& block, int tile_rows, bf16* slice) {
  const frt_moe_block_args& args = block.args;
  MoeProduct hidden = plain_product(block, args.x, block.shared_gate, args.shared_hidden);
  hidden.up = block.shared_up;
  multiply(stream, hidden, args.rows, 1, tile_rows, true, slice);
  const MoeProduct down =
      plain_product(block, args.shared_hidden, block.shared_down, args.shared_y);
  multiply(stream, down, args.rows, 1, tile_rows, false, slice);
}

}  // namespace

void register_moe_grouped(KernelList& list) {
  list.add_variants(kProductTable);
}

void launch_grouped_mma(Stream& stream, GroupedCall& call) {
  const auto& [product, x_rows, experts, tile_rows, gated, slice] = call;
  switch (moe_format(product.matrix.type)) {
    case MoeFormat::kFp8:
      return launch_mma_fp8(stream, product, tile_rows, gated);
    case MoeFormat::kFp4:
      return launch_mma_fp4(stream, product, tile_rows, gated);
    default:
      return launch_mma_bf16(stream, product, tile_rows, gated);
  }
}

bool supports_moe_grouped(Device&, MoeBlock& block) {
  return fits(block);
}

void launch_moe_grouped(Stream& stream, MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  const int64_t assignments = static_cast<int64_t>(args.rows) * args.experts_per_token;
  const int tile_rows = assignments <= kSmallTileLoad * args.experts ? kSmallTile : kLargeTile;
  const int rows_tile = args.rows <= 64 ? kSmallTile : kLargeTile;  // of products with one matrix
  const int64_t tiles = assignments / tile_rows + std::min<int64_t>(args.experts, assignments);
  const std::size_t slice_bytes = working_slice(stream.device(), block, tile_rows, rows_tile);
  Cutter sizes(nullptr);
  Memory(sizes, block, tiles, slice_bytes);
  Cutter cutter(stream.scratch(sizes.used()));
  const Memory memory(cutter, block, tiles, slice_bytes);

  if (args.residual || block.shared) launch_moe_norm(stream, block, block.shared);
  if (!block.routed) route(stream, block, rows_tile);
  launch_moe_sort(stream, {args.rows, args.experts, args.experts_per_token, tile_rows,
                           args.row_count, args.ids, memory.places, memory.first, memory.order,
                           memory.tile, memory.first_tile, memory.tile_count});
  if (block.shared) run_shared(stream, block, rows_tile, memory.slice);

  MoeProduct hidden = plain_product(block, args.x, block.gate, memory.hidden);
  hidden.up = block.up;
  hidden.tiles = memory.tile;
  hidden.first_tile = memory.first_tile;
  hidden.tile_count = memory.tile_count;
  hidden.tile_limit = static_cast<int32_t>(tiles);
  hidden.order = memory.order;
  hidden.top_k = args.experts_per_token;
  hidden.gather = true;
  multiply(stream, hidden, args.rows, args.experts, tile_rows, true, memory.slice);
  MoeProduct down = hidden;
  down.x = memory.hidden;
  down.gather = false;
  down.scatter = true;
  down.matrix = block.down;
  down.y = memory.results;
  down.y_f32 = true;
  multiply(stream, down, assignments, args.experts, tile_rows, false, memory.slice);

  launch_moe_mix(stream, {args.rows, args.experts, args.experts_per_token, block.inputs,
                          args.row_count, args.ids, args.weights, memory.results,
                          block.shared ? static_cast<const bf16*>(args.shared_y) : nullptr,
                          args.shared_scale, static_cast<bf16*>(args.y)});
}

}  // namespace frt::cuda
