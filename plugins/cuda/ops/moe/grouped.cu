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
//
// Each product is the first of these that the device and the matrices allow:
//
//   w4a4         NVFP4 matrices, with the option activations = "fp4": x is rounded to NVFP4
//                (grouped_w4a4.cu); never the router's
//   wgmma        bf16 matrices (sm90/grouped.cu)
//   dequantised  many rows of each expert: quantised matrices to bf16 in working memory
//                (dequantise.cu), then as wgmma
//   mma          every matrix: quantised ones are dequantised in shared memory (grouped_mma.cuh)
// clang-format on
//
// Qwen3.6-35B-A3B, 8192 rows: 0.464 TFLOP per layer, 0.59 ms at 790 TFLOP/s; 200 rows touch every
// expert: 1.62 GB of bf16, 0.35 ms at 4.65 TB/s.
#include <algorithm>
#include <array>
#include <span>

#include "../../kernel_list.hpp"
#include "../common/launch.cuh"
#include "../common/pieces.hpp"
#include "../linear/fp4_tile.hpp"
#include "grouped.cuh"
#include "grouped_mma.cuh"
#include "moe.hpp"
#include "sort.cuh"

namespace frt::cuda {
namespace {

// Tiles of kSmallTile rows up to this many assignments per expert.
constexpr int64_t kSmallTileLoad = 8;
// From so many assignments per expert on quantised matrices are dequantised to bf16 in memory
// before the product. That moves 3 bytes a value however many rows there are; dequantising inside
// the product makes each row take 1.8 times as long (notes/2026-11-28-experts-dequantised.md).
constexpr int64_t kDequantiseLoad = 96;

bool multiplies(const MoeMatrix& matrix) {
  return matrix.type != WeightType::kF32 && reads_in_portions(matrix);
}

bool fits(const MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
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

// Rows of a tile, and how many tiles there may be.
struct Tiling {
  explicit Tiling(const frt_moe_block_args& args)
      : assignments(static_cast<int64_t>(args.rows) * args.experts_per_token),
        tile_rows(assignments <= kSmallTileLoad * args.experts ? kSmallTile : kLargeTile),
        rows_tile(args.rows <= 64 ? kSmallTile : kLargeTile),
        tiles(assignments / tile_rows + std::min<int64_t>(args.experts, assignments)) {}
  int64_t assignments;
  int tile_rows, rows_tile;  // of the experts, of products with one matrix
  int64_t tiles;
};

struct Memory {
  Memory(Cutter& cutter, const MoeBlock& block, const Tiling& tiling) {
    const frt_moe_block_args& args = block.args;
    places = cutter.take<int32_t>(sort_blocks(args.rows, args.experts_per_token) * args.experts);
    first = cutter.take<int32_t>(args.experts);
    order = cutter.take<int32_t>(tiling.assignments);
    tile = cutter.take<MoeTile>(tiling.tiles);
    first_tile = cutter.take<int32_t>(args.experts);
    tile_count = cutter.take<int32_t>(1);
    hidden = cutter.take<bf16>(tiling.assignments * block.width);
    results = cutter.take<float>(tiling.assignments * block.inputs);
  }
  int32_t *places, *first, *order;
  MoeTile* tile;
  int32_t *first_tile, *tile_count;
  bf16* hidden;
  float* results;
  bf16* slice = nullptr;  // of one product after the other
};

bool supports_w4a4(Device&, GroupedCall& call) {
  return grouped_w4a4_supports(call);
}
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
     supports_w4a4,
     launch_grouped_w4a4},
    {"wgmma", kWgmmaNeeds, supports_wgmma, launch_grouped_wgmma},
    {"dequantised", kWgmmaNeeds, supports_dequantised, launch_grouped_dequantised},
    {"mma", {}, nullptr, launch_grouped_mma},
};
constexpr Variants<GroupedCall> kProductTable{"grouped product", kProductVariants};

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

// The products of a block in the order of their launches, the router's first. The same list gives
// the size of the working memory, from a `memory` of NULLs, and what is launched: nothing is
// launched that was not counted.
class Products {
 public:
  Products(const MoeBlock& block, const Tiling& tiling, const Memory& memory)
      : slice_(memory.slice) {
    const frt_moe_block_args& args = block.args;
    if (!block.routed) {
      MoeProduct router = plain_product(block, args.x, block.router, args.logits);
      router.y_f32 = true;
      add({router, args.rows, 1, tiling.rows_tile, false, true, nullptr});
    }
    if (block.shared) {
      MoeProduct hidden = plain_product(block, args.x, block.shared_gate, args.shared_hidden);
      hidden.up = block.shared_up;
      add({hidden, args.rows, 1, tiling.rows_tile, true, false, nullptr});
      const MoeProduct down =
          plain_product(block, args.shared_hidden, block.shared_down, args.shared_y);
      add({down, args.rows, 1, tiling.rows_tile, false, false, nullptr});
    }
    MoeProduct hidden = plain_product(block, args.x, block.gate, memory.hidden);
    hidden.up = block.up;
    hidden.tiles = memory.tile;
    hidden.first_tile = memory.first_tile;
    hidden.tile_count = memory.tile_count;
    hidden.tile_limit = static_cast<int32_t>(tiling.tiles);
    hidden.order = memory.order;
    hidden.top_k = args.experts_per_token;
    hidden.gather = true;
    add({hidden, args.rows, args.experts, tiling.tile_rows, true, false, nullptr});
    MoeProduct down = hidden;
    down.x = memory.hidden;
    down.gather = false;
    down.scatter = true;
    down.matrix = block.down;
    down.y = memory.results;
    down.y_f32 = true;
    add({down, tiling.assignments, args.experts, tiling.tile_rows, false, false, nullptr});
  }
  std::span<const GroupedProduct> all() const { return {products_.data(), count_}; }

 private:
  void add(const GroupedProduct& product) {
    products_[count_] = product;
    products_[count_++].slice = slice_;
  }

  bf16* slice_;
  std::array<GroupedProduct, 5> products_{};
  std::size_t count_ = 0;
};

std::size_t slice_bytes(Device& device, GroupedCall& call) {
  const auto launch = select_variant(device, kProductTable, call).launch;
  if (launch == launch_grouped_dequantised) return grouped_slice_bytes(call);
  if (launch == launch_grouped_w4a4) return grouped_w4a4_bytes(call);
  return 0;
}

void launch_route(Stream& stream, const frt_moe_block_args& args) {
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

}  // namespace

void register_moe_grouped(KernelList& list) {
  list.add_variants(kProductTable);
}

void launch_grouped_mma(Stream& stream, GroupedCall& call) {
  const MoeProduct& product = call.product;
  switch (moe_format(product.matrix.type)) {
    case MoeFormat::kFp8:
      return launch_mma_fp8(stream, product, call.tile_rows, call.gated);
    case MoeFormat::kFp4:
      return launch_mma_fp4(stream, product, call.tile_rows, call.gated);
    default:
      return launch_mma_bf16(stream, product, call.tile_rows, call.gated);
  }
}

bool supports_moe_grouped(Device&, MoeBlock& block) {
  return fits(block);
}

void launch_moe_grouped(Stream& stream, MoeBlock& block) {
  const frt_moe_block_args& args = block.args;
  const Tiling tiling(args);
  Cutter sizes(nullptr);
  std::size_t slice = 0;
  const Products counted(block, tiling, {sizes, block, tiling});
  for (const GroupedProduct& product : counted.all()) {
    slice = std::max(slice, slice_bytes(stream.device(), product));
  }
  const auto slice_values = static_cast<int64_t>(slice / sizeof(bf16));
  sizes.take<bf16>(slice_values);
  Cutter cutter(stream.scratch(sizes.bytes()));
  Memory memory(cutter, block, tiling);
  if (slice > 0) memory.slice = cutter.take<bf16>(slice_values);
  const Products products(block, tiling, memory);
  std::span<const GroupedProduct> left = products.all();

  if (args.residual || block.shared) launch_moe_norm(stream, block, block.shared);
  if (!block.routed) {
    run_variant(stream, kProductTable, left.front());
    left = left.subspan(1);
    launch_route(stream, args);
  }
  launch_moe_sort(stream, {args.rows, args.experts, args.experts_per_token, tiling.tile_rows,
                           args.row_count, args.ids, memory.places, memory.first, memory.order,
                           memory.tile, memory.first_tile, memory.tile_count});
  for (const GroupedProduct& product : left) run_variant(stream, kProductTable, product);
  launch_moe_mix(stream, {args.rows, args.experts, args.experts_per_token, block.inputs,
                          args.row_count, args.ids, args.weights, memory.results,
                          block.shared ? static_cast<const bf16*>(args.shared_y) : nullptr,
                          args.shared_scale, static_cast<bf16*>(args.y)});
}

}  // namespace frt::cuda
