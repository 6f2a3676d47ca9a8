// SPDX-License-Identifier: Apache-2.0
// GEMVs: the table of the kernels, and which parts go into one launch. What runs depends on weights
// and addresses, not on the number of rows, so that a row's bits do not; but for the selection
// between kernels that give the same bits.
#include "gemv.hpp"

#include <algorithm>
#include <frt/error.hpp>

#include "../../kernel_list.hpp"
#include "../common/exchange.hpp"
#include "../variants.hpp"

namespace frt::cuda {
namespace {

GemvDevice gemv_device(const Device& device) {
  return {.multiprocessors = device.properties().multiprocessors,
          .shared_block = device.properties().shared_bytes_block,
          .clusters = device.has(feature::kClusters)};
}

bool x_streams(const Product& product) {
  return product.x_dtype == FRT_DTYPE_BF16 && reinterpret_cast<uintptr_t>(product.x) % 16 == 0 &&
         product.x_stride % 8 == 0;
}

bool make_part(const Product& product, GemvPart& part) {
  if (!make_gemv_part(product.weight, part)) return false;
  part.y = product.y;
  part.y_stride = product.y_stride;
  part.y_float = product.y_dtype == FRT_DTYPE_F32;
  part.accumulate = product.accumulate;
  return true;
}

// ---- variants ----------------------------------------------------------------------------------

// From here on x takes so much of the ring's room that streaming x is faster with BF16 weights,
// where tiles are enough for it.
constexpr int32_t kStreamedXRows = 9;

bool streamed_x_is_faster(const Device& device, const GemvCall& call) {
  const auto plain = [](const GemvPart& part) { return part.kind == GemvKind::kBf16; };
  return call.product->rows >= kStreamedXRows &&
         call.args.tiles >= device.properties().multiprocessors &&
         std::all_of(call.args.parts, call.args.parts + call.args.part_count, plain);
}

bool supports_stream(Device& device, GemvCall& call) {
  return call.plan.rows >= call.product->rows && !streamed_x_is_faster(device, call);
}
void launch_stream(Stream& stream, GemvCall& call) {
  GemvArgs& args = call.args;
  if (args.dynamic_groups > 0) args.work_counters = work_counters(stream);
  args.x = call.product->x;
  launch_gemv_stream(stream, call.plan, args);
}

// All rows of x at once, where they do not fit beside the ring of the streaming kernel: a launch
// for each family of weights, instead of reading all weights for each few rows.
bool supports_streamed_x(Device&, GemvCall& call) {
  return call.plan.rows > 0;
}
void launch_streamed_x(Stream& stream, GemvCall& call) {
  const int32_t rows = call.product->rows;
  call.args.x = call.product->x;
  if (const GemvArgs some = family_parts(call.args, GemvFamily::kBf16, rows); some.part_count > 0) {
    launch_gemv_streamed_x_bf16(stream, some);
  }
  for (const GemvFamily family : {GemvFamily::kFp8, GemvFamily::kNvfp4}) {
    const GemvArgs some = family_parts(call.args, family, rows);
    if (some.part_count > 0) launch_gemv_streamed_x_quantised(stream, call.plan, some);
  }
}

void launch_general(Stream& stream, GemvCall& call) {
  launch_gemv_general(stream, *call.product);
}

constexpr Variant<GemvCall> kGemvVariants[] = {
    {"stream", {}, supports_stream, launch_stream},
    {"streamed-x", {}, supports_streamed_x, launch_streamed_x},
    {"general", {}, nullptr, launch_general},
};
constexpr Variants<GemvCall> kGemvTable{"gemv", kGemvVariants};

// ---- parts -------------------------------------------------------------------------------------

// Plans the parts of `call.args` for all rows of `product`; false where not even one row fits.
bool plan_parts(const Device& device, const Product& product, GemvAhead ahead, GemvCall& call) {
  call.product = &product;
  call.args.cols = product.weight.cols;
  call.args.x_stride = product.x_stride;
  call.args.row_count = product.row_count;
  call.plan = plan_gemv(call.args, product.rows, gemv_device(device), ahead);
  return call.plan.rows > 0;
}

// Whether the parts of `args` and `part` fit into one launch.
bool fits_together(const GemvArgs& args, const GemvPart& part, int32_t cols,
                   const GemvDevice& device) {
  GemvArgs together = args;
  together.parts[together.part_count++] = part;
  together.cols = cols;
  return plan_gemv(together, 1, device).rows > 0;
}

}  // namespace

void gemv_products(Stream& stream, std::span<const Product> products) {
  GemvCall call;
  GemvArgs& args = call.args;
  const Product* streamed = nullptr;
  const auto flush = [&] {
    // While a warp multiplies a tile it copies a later one as the kind that it multiplies needs it,
    // and only NVFP4 has scales to copy.
    std::partition(args.parts, args.parts + args.part_count,
                   [](const GemvPart& part) { return part.kind == GemvKind::kNvfp4; });
    if (args.part_count > 0) {
      if (!plan_parts(stream.device(), *streamed, gemv_ahead(stream), call)) {
        throw Error(FRT_ERR_INTERNAL, "GEMV: a group does not fit into shared memory");
      }
      run_variant(stream, kGemvTable, call);
    }
    args = GemvArgs{};
  };
  const GemvDevice device = gemv_device(stream.device());
  for (const Product& product : products) {
    GemvPart part;
    // By itself it must fit, and then together with what there is.
    if (!x_streams(product) || !make_part(product, part) ||
        !fits_together(GemvArgs{}, part, product.weight.cols, device)) {
      GemvCall one{&product, {}, {}};
      run_variant(stream, kGemvTable, one);
      continue;
    }
    if (args.part_count == kGemvParts) flush();
    if (!fits_together(args, part, product.weight.cols, device)) flush();
    args.parts[args.part_count++] = part;
    streamed = &product;
  }
  flush();
}

bool plan_gemv_gate_up(Device& device, const Product& gate, const Weight& up, GemvAhead ahead,
                       GemvCall& call) {
  call.args = {};
  GemvPart high;
  if (!x_streams(gate) || !make_part(gate, call.args.parts[0]) || !make_gemv_part(up, high)) {
    return false;
  }
  const GemvPart& low = call.args.parts[0];
  // One decoder for both halves of a tile; scales may differ, their arrangement may not.
  if (low.kind != high.kind || low.scale_bf16 != high.scale_bf16 ||
      low.scale_rows != high.scale_rows || low.block_row_shift != high.block_row_shift ||
      low.block_chunk_shift != high.block_chunk_shift) {
    return false;
  }
  call.args.parts[0].high = high.low;
  call.args.part_count = 1;
  call.args.gated = 1;
  return plan_parts(device, gate, ahead, call);
}

void gemv_planned(Stream& stream, GemvCall& call) {
  run_variant(stream, kGemvTable, call);
}

void register_gemv(KernelList& list) {
  list.add_variants(kGemvTable);
}

}  // namespace frt::cuda
