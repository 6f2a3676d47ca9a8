// SPDX-License-Identifier: Apache-2.0
// GEMVs: which kernel takes which, and the launches of the streaming one. What is chosen
// depends on weights and addresses, not on the number of rows, so that a row's bits do not; but for
// the choice between two kernels that give the same bits.
#include "gemv.hpp"

#include <algorithm>
#include <frt/error.hpp>

#include "../../device.hpp"
#include "../common/exchange.hpp"

namespace frt::cuda {
namespace {

GemvDevice gemv_device(Stream& stream) {
  const DeviceProperties& device = stream.device().properties();
  return {.multiprocessors = device.multiprocessors,
          .shared_block = device.shared_bytes_block,
          .clusters = FRT_CUDA_ARCH >= 90};
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

// From here on x takes so much of the ring's room that the other kernel is faster, where tiles are
// enough for it.
constexpr int32_t kMoreRows = 9;

bool more_is_faster(const Product& product, const GemvArgs& args, const GemvDevice& device) {
  const auto plain = [](const GemvPart& part) { return part.kind == GemvKind::kBf16; };
  return product.rows >= kMoreRows && args.tiles >= device.multiprocessors &&
         std::all_of(args.parts, args.parts + args.part_count, plain);
}

// All rows of x at once, where they do not fit beside the ring of the streaming kernel: a launch
// for each family of weights, instead of reading all weights for each few rows.
void stream_x(Stream& stream, const Product& product, const GemvPlan& plan, GemvArgs args) {
  args.x = product.x;
  if (const GemvArgs some = family_parts(args, GemvFamily::kBf16, product.rows);
      some.part_count > 0) {
    launch_gemv_streamed_x_bf16(stream, some);
  }
  for (const GemvFamily family : {GemvFamily::kFp8, GemvFamily::kNvfp4}) {
    const GemvArgs some = family_parts(args, family, product.rows);
    if (some.part_count > 0) launch_gemv_streamed_x_quantised(stream, plan, some);
  }
}

// Launches the parts of `args` for all rows of `product`; false where not even one row fits.
bool stream_parts(Stream& stream, const Product& product, GemvArgs& args) {
  const GemvDevice device = gemv_device(stream);
  args.cols = product.weight.cols;
  args.x_stride = product.x_stride;
  args.row_count = product.row_count;
  const GemvPlan plan =
      plan_gemv(args, product.rows, device,
                stream.early_reads_safe() ? GemvAhead::kProduct : GemvAhead::kOther);
  if (plan.rows == 0) return false;
  if (plan.rows < product.rows || more_is_faster(product, args, device)) {
    stream_x(stream, product, plan, args);
    return true;
  }
  if (args.dynamic_groups > 0) args.work_counters = work_counters(stream);
  args.x = product.x;
  launch_gemv_stream(stream, plan, args);
  return true;
}

}  // namespace

void gemv_products(Stream& stream, std::span<const Product> products) {
  GemvArgs args;
  const Product* streamed = nullptr;
  const auto flush = [&] {
    // While a warp multiplies a tile it copies a later one as the kind that it multiplies needs it,
    // and only NVFP4 has scales to copy.
    std::partition(args.parts, args.parts + args.part_count,
                   [](const GemvPart& part) { return part.kind == GemvKind::kNvfp4; });
    if (args.part_count > 0 && !stream_parts(stream, *streamed, args)) {
      throw Error(FRT_ERR_INTERNAL, "GEMV: a group does not fit into shared memory");
    }
    args = GemvArgs{};
  };
  for (const Product& product : products) {
    GemvPart part;
    bool fits = x_streams(product) && make_part(product, part);
    if (fits) {
      // By itself it must fit, and then together with what there is.
      GemvArgs one;
      one.part_count = 1;
      one.parts[0] = part;
      one.cols = product.weight.cols;
      const GemvDevice device = gemv_device(stream);
      fits = plan_gemv(one, 1, device).rows > 0;
      if (fits) {
        if (args.part_count == kGemvParts) flush();
        GemvArgs together = args;
        together.parts[together.part_count++] = part;
        together.cols = product.weight.cols;
        if (plan_gemv(together, 1, device).rows == 0) flush();
        args.parts[args.part_count++] = part;
        streamed = &product;
      }
    }
    if (!fits) launch_gemv_general(stream, product);
  }
  flush();
}

bool gemv_gate_up(Stream& stream, const Product& gate, const Weight& up) {
  GemvArgs args;
  GemvPart high;
  if (!x_streams(gate) || !make_part(gate, args.parts[0]) || !make_gemv_part(up, high)) {
    return false;
  }
  const GemvPart& low = args.parts[0];
  // One decoder for both halves of a tile; scales may differ, their arrangement may not.
  if (low.kind != high.kind || low.scale_bf16 != high.scale_bf16 ||
      low.scale_rows != high.scale_rows || low.block_row_shift != high.block_row_shift ||
      low.block_chunk_shift != high.block_chunk_shift) {
    return false;
  }
  args.parts[0].high = high.low;
  args.part_count = 1;
  args.gated = 1;
  return stream_parts(stream, gate, args);
}

}  // namespace frt::cuda
