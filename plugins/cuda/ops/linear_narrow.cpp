// SPDX-License-Identifier: Apache-2.0
// Narrow products: which kernel takes which, and the launches of the streaming one. What is chosen
// depends on weights and addresses, not on the number of rows, so that a row's bits do not; but for
// the choice between two kernels that give the same bits.
#include "linear_narrow.hpp"

#include <algorithm>
#include <frt/error.hpp>

#include "../device.hpp"
#include "board.hpp"

namespace frt::cuda {
namespace {

NarrowDevice narrow_device(Stream& stream) {
  const DeviceProperties& device = stream.device().properties();
  return {.multiprocessors = device.multiprocessors,
          .shared_block = device.shared_bytes_block,
          .clusters = FRT_CUDA_ARCH >= 90};
}

bool x_streams(const Product& product) {
  return product.x_dtype == FRT_DTYPE_BF16 && reinterpret_cast<uintptr_t>(product.x) % 16 == 0 &&
         product.x_stride % 8 == 0;
}

bool make_part(const Product& product, NarrowPart& part) {
  if (!make_narrow_part(product.weight, part)) return false;
  part.y = product.y;
  part.y_stride = product.y_stride;
  part.y_float = product.y_dtype == FRT_DTYPE_F32;
  part.accumulate = product.accumulate;
  return true;
}

// From here on x takes so much of the ring's room that the other kernel is faster, where tiles are
// enough for it.
constexpr int32_t kMoreRows = 9;

bool more_is_faster(const Product& product, const NarrowArgs& args, const NarrowDevice& device) {
  const auto plain = [](const NarrowPart& part) { return part.kind == NarrowKind::kBf16; };
  return product.rows >= kMoreRows && args.tiles >= device.multiprocessors &&
         std::all_of(args.parts, args.parts + args.part_count, plain);
}

// All rows of x at once, where they do not fit beside the ring of the streaming kernel: a launch
// for each family of weights, instead of reading all weights for each few rows.
void stream_x(Stream& stream, const Product& product, const NarrowPlan& plan, NarrowArgs args) {
  args.x = product.x;
  if (const NarrowArgs some = family_parts(args, NarrowFamily::kBf16, product.rows);
      some.part_count > 0) {
    launch_narrow_more(stream, some);
  }
  for (const NarrowFamily family : {NarrowFamily::kFp8, NarrowFamily::kNvfp4}) {
    const NarrowArgs some = family_parts(args, family, product.rows);
    if (some.part_count > 0) launch_narrow_streamed_x(stream, plan, some);
  }
}

// Launches the parts of `args` for all rows of `product`; false where not even one row fits.
bool stream_parts(Stream& stream, const Product& product, NarrowArgs& args) {
  const NarrowDevice device = narrow_device(stream);
  args.cols = product.weight.cols;
  args.x_stride = product.x_stride;
  args.row_count = product.row_count;
  const NarrowPlan plan = plan_narrow(
      args, product.rows, device, stream.settled() ? NarrowAhead::kProduct : NarrowAhead::kOther);
  if (plan.rows == 0) return false;
  if (plan.rows < product.rows || more_is_faster(product, args, device)) {
    stream_x(stream, product, plan, args);
    return true;
  }
  if (args.asking_groups > 0) args.tickets = tickets(stream);
  args.x = product.x;
  launch_narrow_stream(stream, plan, args);
  return true;
}

}  // namespace

void narrow_products(Stream& stream, std::span<const Product> products) {
  NarrowArgs args;
  const Product* streamed = nullptr;
  const auto flush = [&] {
    // While a warp multiplies a tile it copies a later one as the kind that it multiplies needs it,
    // and only NVFP4 has scales to copy.
    std::partition(args.parts, args.parts + args.part_count,
                   [](const NarrowPart& part) { return part.kind == NarrowKind::kNvfp4; });
    if (args.part_count > 0 && !stream_parts(stream, *streamed, args)) {
      throw Error(FRT_ERR_INTERNAL, "narrow products: a group does not fit into shared memory");
    }
    args = NarrowArgs{};
  };
  for (const Product& product : products) {
    NarrowPart part;
    bool fits = x_streams(product) && make_part(product, part);
    if (fits) {
      // By itself it must fit, and then together with what there is.
      NarrowArgs one;
      one.part_count = 1;
      one.parts[0] = part;
      one.cols = product.weight.cols;
      const NarrowDevice device = narrow_device(stream);
      fits = plan_narrow(one, 1, device).rows > 0;
      if (fits) {
        if (args.part_count == kNarrowParts) flush();
        NarrowArgs together = args;
        together.parts[together.part_count++] = part;
        together.cols = product.weight.cols;
        if (plan_narrow(together, 1, device).rows == 0) flush();
        args.parts[args.part_count++] = part;
        streamed = &product;
      }
    }
    if (!fits) launch_narrow_general(stream, product);
  }
  flush();
}

bool narrow_gate_up(Stream& stream, const Product& gate, const Weight& up) {
  NarrowArgs args;
  NarrowPart high;
  if (!x_streams(gate) || !make_part(gate, args.parts[0]) || !make_narrow_part(up, high)) {
    return false;
  }
  const NarrowPart& low = args.parts[0];
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
