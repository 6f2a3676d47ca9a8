// SPDX-License-Identifier: Apache-2.0
// GEMMs, y = x W^T of many rows: the tables of their variants, and the working memory they share.
//
// clang-format off
//   skinny       bf16 x, BF16 weights, not so many rows of several products: the weights stream
//                once, all products in one kernel (skinny_gemm.cu)
//   fp8          bf16 x, FP8 weights, with the option activations = "fp8": x is rounded to FP8,
//                cuBLASLt
//   w4a4         NVFP4 weights, with the option activations = "fp4": x is rounded to NVFP4
//                (quantise_fp4.cu, gemm_w4a4.cu)
//   quantised    bf16 x, quantised weights, up to 128 rows: dequantised inside the product
//                (gemm_quantised.cu)
//   dequantise   quantised weights to bf16, for f32 x to f32, in slices of outputs, then as plain
//   plain        plain weights: cuBLASLt; our own tiles (gemm_tile.cu) where it is missing,
//                something is f32 or unaligned, or y is bf16 and added to
//   gemv-groups  few rows: GEMVs of kGemvRows rows each, for few outputs, and for quantised weights
//                whose sizes or alignments the others do not support
// clang-format on
//
// Floor, 8192 rows of the 27B: 416 TFLOP at about 790 TFLOP/s are 527 ms. Dequantising FP8 weights
// reads 25 GB, writes 50 and reads these once more, 30 ms for the whole model at the speed of
// memory; on an H200 all products of 512 rows took 55 ms with FP8 weights and 36 ms with BF16. It
// is the exact way. Slices bound the memory for it, they are not made small enough for L2.
#include <algorithm>
#include <array>
#include <frt/error.hpp>
#include <vector>

#include "../../blas.hpp"
#include "../../device.hpp"
#include "../../kernel_list.hpp"
#include "../common/pieces.hpp"
#include "../variants.hpp"
#include "dequantise.cuh"
#include "gemm_fp8.cuh"
#include "gemm_quantised.cuh"
#include "gemm_tile.cuh"
#include "gemm_w4a4.cuh"
#include "product.hpp"
#include "skinny_gemm.hpp"

namespace frt::cuda {
namespace {

// A slice of dequantised weights.
constexpr std::size_t kSliceBytes = std::size_t{192} << 20;
// Up to here quantised weights are read once per kGemvRows rows rather than dequantised: four times
// one byte or less, against one read, two written and two read again.
constexpr int32_t kFewRows = 64;
// So few outputs leave the chip idle in the library, whose parts of a sum then need a second
// kernel; GEMVs do all such products of one x in a launch per kGemvRows rows.
constexpr int32_t kFewOutputs = 64;
// Up to here BF16 weights are streamed by a kernel of our own where several products of one x are
// asked for, which it does in one launch. 32 rows of the 27B, H200: four products of one x 48.6 us,
// 72 through the library; a single one of 17408 x 5120 59.5 us, 50.7 through the library.
constexpr int32_t kSkinnyRowsTogether = 64;
constexpr std::size_t kTogether = 3;  // two of 17408 x 5120: 112 us, 101 through the library

const void* row_of(const void* matrix, frt_dtype dtype, int64_t elements) {
  return static_cast<const char*>(matrix) + elements * dtype_bits(dtype) / 8;
}
void* row_of(void* matrix, frt_dtype dtype, int64_t elements) {
  return static_cast<char*>(matrix) + elements * dtype_bits(dtype) / 8;
}

bool aligned_rows(const void* matrix, int64_t stride_bytes) {
  return aligned(matrix) && stride_bytes % 16 == 0;
}

// ---- plain weights -----------------------------------------------------------------------------

// Outputs [first, first + count), whose weights lie at `weight` as plain numbers.
struct PlainProduct {
  const Product& product;
  const void* weight;
  frt_dtype weight_dtype;  // f32, bf16
  int32_t first, count;
  void* workspace;  // of the library; NULL without it

  void* y() const { return row_of(product.y, product.y_dtype, first); }
};
using PlainCall = const PlainProduct;

BlasShape plain_shape(PlainCall& call) {
  const Product& product = call.product;
  return {BlasTypes::kBf16, product.y_dtype,     product.accumulate, product.rows,
          call.count,       product.weight.cols, product.x_stride,   product.y_stride};
}

bool library_supports(Device& device, PlainCall& call) {
  const Product& product = call.product;
  // The library rounds a product to bf16 before it adds it to a y of bf16; one rounding is
  // promised.
  const bool rounded_twice = product.accumulate && product.y_dtype == FRT_DTYPE_BF16;
  return !rounded_twice && product.x_dtype == FRT_DTYPE_BF16 &&
         call.weight_dtype == FRT_DTYPE_BF16 && aligned_rows(product.x, product.x_stride * 2) &&
         aligned_rows(call.weight, int64_t{product.weight.cols} * 2) &&
         aligned_rows(call.y(), product.y_stride * dtype_bits(product.y_dtype) / 8) &&
         Blas::find(device)->offers(plain_shape(call));
}
void launch_library(Stream& stream, PlainCall& call) {
  const BlasOperands operands{call.product.x, nullptr,  call.weight,
                              nullptr,        call.y(), call.workspace};
  Blas::find(stream.device())->multiply(stream, plain_shape(call), operands);
}

void launch_tiles(Stream& stream, PlainCall& call) {
  const Product& product = call.product;
  const int32_t inputs = product.weight.cols;
  tile_product(stream, {product.x_dtype, call.weight_dtype, product.y_dtype, product.accumulate,
                        product.rows, call.count, inputs, product.row_count, product.x,
                        product.x_stride, call.weight, inputs, call.y(), product.y_stride});
}

constexpr Variant<PlainCall> kPlainVariants[] = {
    {"library", {feature::kLibrary}, library_supports, launch_library},
    {"tiles", {}, nullptr, launch_tiles},
};
constexpr Variants<PlainCall> kPlainTable{"gemm of plain weights", kPlainVariants};

// ---- quantised weights, dequantised before the product -----------------------------------------

// Outputs whose dequantised weights make one slice.
int32_t slice_of(const Product& product) {
  const std::size_t row_bytes =
      static_cast<std::size_t>(product.weight.cols) * (product.x_dtype == FRT_DTYPE_BF16 ? 2 : 4);
  const std::size_t rows = std::max<std::size_t>(kSliceBytes / row_bytes / 128 * 128, 128);
  return static_cast<int32_t>(
      std::min<std::size_t>(rows, static_cast<std::size_t>(product.weight.rows)));
}

std::size_t slice_bytes(const Product& product) {
  return static_cast<std::size_t>(slice_of(product)) *
         static_cast<std::size_t>(product.weight.cols) *
         (product.x_dtype == FRT_DTYPE_BF16 ? 2 : 4);
}

// ---- groups of GEMVs --------------------------------------------------------------------------

// Rows from `first` on in groups of kGemvRows; the products are of one x.
void multiply_groups(Stream& stream, std::span<const Product> products, int32_t first) {
  if (products.empty()) return;
  for (; first < products.front().rows; first += kGemvRows) {
    std::vector<Product> parts(products.begin(), products.end());
    for (Product& part : parts) {
      part.rows = std::min(kGemvRows, part.rows - first);
      part.row_count = nullptr;
      part.x = row_of(part.x, part.x_dtype, first * part.x_stride);
      part.y = row_of(part.y, part.y_dtype, first * part.y_stride);
    }
    gemv_products(stream, parts);
  }
}

// ---- the table ---------------------------------------------------------------------------------

// Working memory of the products of one x: the library's workspace, a slice of weights, their
// scales, x in FP8 and in NVFP4.
struct GemmMemory {
  char* workspace = nullptr;
  char* slice = nullptr;
  char* weight_scales = nullptr;
  std::array<Fp8Rows, 2> fp8_x{};  // in blocks, by row
  Fp4Rows fp4_x{};
};

// Products of one x. Selection looks at one; a launch has all that selected the variant.
struct GemmCall {
  std::span<const Product> products;
  bool together = false;  // several products of this x are asked for
  GemmMemory* memory = nullptr;
};

bool is_quantised(const Product& product) {
  return product.weight.type != WeightType::kBf16 && product.weight.type != WeightType::kF32;
}

// The library takes rows of FP8 in fours; GEMVs do the last ones.
BlasShape fp8_shape(const Product& product, BlasTypes types) {
  return {types,
          product.y_dtype,
          product.accumulate,
          product.rows / 4 * 4,
          product.weight.rows,
          product.weight.cols,
          product.weight.cols,
          product.y_stride};
}

SkinnyProduct skinny_product(const Product& product) {
  return {product.rows, product.weight.cols, product.row_count, product.x, product.x_stride};
}

bool supports_skinny(Device&, GemmCall& call) {
  const Product& product = call.products.front();
  return call.together && product.x_dtype == FRT_DTYPE_BF16 &&
         product.weight.type == WeightType::kBf16 && product.rows <= kSkinnyRowsTogether &&
         skinny_gemm_supports(skinny_product(product), product.weight.data, kSkinnyRows);
}
// Some products at a time.
void launch_skinny(Stream& stream, GemmCall& call) {
  std::vector<SkinnyPart> parts;
  const SkinnyProduct x = skinny_product(call.products.front());
  for (const Product& product : call.products) {
    SkinnyPart part{};
    part.weight = product.weight.data;
    part.outputs = product.weight.rows;
    part.accumulate = product.accumulate;
    part.y_dtype = product.y_dtype;
    part.y = product.y;
    part.y_stride = product.y_stride;
    parts.push_back(part);
    if (parts.size() < kSkinnyParts) continue;
    skinny_gemm_products(stream, x, parts);
    parts.clear();
  }
  if (!parts.empty()) skinny_gemm_products(stream, x, parts);
}

bool supports_fp8(Device& device, GemmCall& call) {
  const Product& product = call.products.front();
  BlasTypes types;
  return product.x_dtype == FRT_DTYPE_BF16 && is_quantised(product) &&
         product.rows >= kRoundedRows && fp8_gemm_supports(product, types) &&
         Blas::find(device)->offers(fp8_shape(product, types));
}
void launch_fp8(Stream& stream, GemmCall& call) {
  GemmMemory& memory = *call.memory;
  for (const Product& product : call.products) {
    BlasTypes types = BlasTypes::kBf16;
    fp8_gemm_supports(product, types);
    const Fp8Rows& x = memory.fp8_x[types == BlasTypes::kFp8Channel];
    const float* scales =
        fp8_weight_scales(stream, product.weight, reinterpret_cast<float*>(memory.weight_scales));
    Blas::find(stream.device())
        ->multiply(stream, fp8_shape(product, types),
                   {x.values, x.scale, product.weight.data, scales, product.y, memory.workspace});
  }
}

bool supports_w4a4(Device&, GemmCall& call) {
  const Product& product = call.products.front();
  return product.rows >= kRoundedRows && w4a4_gemm_supports(product);
}
void launch_w4a4(Stream& stream, GemmCall& call) {
  for (const Product& product : call.products) w4a4_gemm(stream, product, call.memory->fp4_x);
}

bool supports_quantised(Device&, GemmCall& call) {
  const Product& product = call.products.front();
  return product.rows <= kQuantisedGemmRows && quantised_gemm_supports(product);
}
void launch_quantised(Stream& stream, GemmCall& call) {
  for (const Product& product : call.products) {
    quantised_gemm(stream, product, call.memory->slice);
  }
}

bool supports_dequantise(Device&, GemmCall& call) {
  const Product& product = call.products.front();
  return is_quantised(product) && (product.x_dtype != FRT_DTYPE_BF16 || product.rows > kFewRows);
}
void launch_dequantise(Stream& stream, GemmCall& call) {
  const GemmMemory& memory = *call.memory;
  for (const Product& product : call.products) {
    const frt_dtype plain = product.x_dtype;
    const int32_t slice = slice_of(product);
    for (int32_t first = 0; first < product.weight.rows; first += slice) {
      const int32_t count = std::min(slice, product.weight.rows - first);
      dequantise(stream, product.weight, first, count, plain, memory.slice);
      const PlainProduct part{product, memory.slice, plain, first, count, memory.workspace};
      run_variant(stream, kPlainTable, part);
    }
  }
}

bool supports_plain(Device&, GemmCall& call) {
  const Product& product = call.products.front();
  const bool few = product.rows <= kFewRows && product.weight.rows <= kFewOutputs &&
                   product.x_dtype == FRT_DTYPE_BF16 && product.weight.type == WeightType::kBf16;
  return !is_quantised(product) && !few;
}
void launch_plain(Stream& stream, GemmCall& call) {
  for (const Product& product : call.products) {
    const frt_dtype dtype =
        product.weight.type == WeightType::kF32 ? FRT_DTYPE_F32 : FRT_DTYPE_BF16;
    const PlainProduct all{product, product.weight.data, dtype,
                           0,       product.weight.rows, call.memory->workspace};
    run_variant(stream, kPlainTable, all);
  }
}

void launch_groups(Stream& stream, GemmCall& call) {
  multiply_groups(stream, call.products, 0);
}

// The last one has working memory of its own, in the same place: products are launched in this
// order.
constexpr Variant<GemmCall> kGemmVariants[] = {
    {"skinny", {}, supports_skinny, launch_skinny},
    {"fp8", {feature::kLibrary | feature::kFp8Activations}, supports_fp8, launch_fp8},
    {"w4a4",
     {feature::kFp4Mma | feature::kFp4Activations, kFp4SharedBytes},
     supports_w4a4,
     launch_w4a4},
    {"quantised", {}, supports_quantised, launch_quantised},
    {"dequantise", {}, supports_dequantise, launch_dequantise},
    {"plain", {}, supports_plain, launch_plain},
    {"gemv-groups", {}, nullptr, launch_groups},
};
constexpr Variants<GemmCall> kGemmTable{"gemm", kGemmVariants};

// What each of some products of one x selects, and the sizes of their working memory.
struct GemmPlan {
  std::vector<const Variant<GemmCall>*> selected;
  std::size_t workspace = 0, slice = 0, weight_scales = 0;
  std::array<Fp8Rows, 2> fp8_x{};
  Fp4Rows fp4_x{};
  std::size_t bytes = 0;
};

GemmPlan plan_of(Device& device, std::span<const Product> products) {
  GemmPlan plan;
  const Product& any = products.front();
  if (any.x_dtype == FRT_DTYPE_BF16 && Blas::find(device)) plan.workspace = Blas::kWorkspaceBytes;
  for (const Product& product : products) {
    GemmCall call{{&product, 1}, products.size() >= kTogether, nullptr};
    const Variant<GemmCall>* selected = &select_variant(device, kGemmTable, call);
    plan.selected.push_back(selected);
    if (selected->launch == launch_dequantise) {
      plan.slice = std::max(plan.slice, slice_bytes(product));
    } else if (selected->launch == launch_quantised) {
      plan.slice =
          std::max(plan.slice, quantised_gemm_bytes(product, device.properties().multiprocessors));
    } else if (selected->launch == launch_fp8) {
      BlasTypes types = BlasTypes::kBf16;
      fp8_gemm_supports(product, types);
      plan.fp8_x[types == BlasTypes::kFp8Channel] = {types, any.rows / 4 * 4, any.weight.cols,
                                                     nullptr, nullptr};
      plan.weight_scales = std::max(plan.weight_scales, round_up(fp8_scale_bytes(product.weight)));
    } else if (selected->launch == launch_w4a4) {
      plan.fp4_x = {any.rows, any.weight.cols, any.row_count, nullptr, nullptr, nullptr};
    }
  }
  plan.slice = round_up(plan.slice);
  plan.bytes = plan.workspace + plan.slice + plan.weight_scales;
  for (const Fp8Rows& x : plan.fp8_x) {
    plan.bytes += round_up(Fp8Rows::value_bytes(x.rows, x.inputs)) +
                  round_up(Fp8Rows::scale_bytes(x.types, x.rows, x.inputs));
  }
  Cutter sizes(nullptr);
  plan.fp4_x.take(sizes);
  plan.bytes += sizes.bytes();
  return plan;
}

}  // namespace

void gemm_products(Stream& stream, std::span<const Product> products) {
  if (products.empty() || products.front().rows <= 0) return;
  const std::size_t bytes = gemm_scratch_bytes(stream.device(), products);
  gemm_products(stream, products, bytes > 0 ? stream.scratch(bytes) : nullptr);
}

std::size_t gemm_scratch_bytes(Device& device, std::span<const Product> products) {
  return plan_of(device, products).bytes;
}

void gemm_products(Stream& stream, std::span<const Product> products, void* memory) {
  if (products.empty() || products.front().rows <= 0) return;
  const Product& any = products.front();
  const GemmPlan plan = plan_of(stream.device(), products);
  GemmMemory room;
  room.workspace = static_cast<char*>(memory);
  room.slice = room.workspace + plan.workspace;
  room.weight_scales = room.slice + plan.slice;
  room.fp8_x = plan.fp8_x;
  char* next = room.weight_scales + plan.weight_scales;
  for (Fp8Rows& x : room.fp8_x) {
    if (x.rows == 0) continue;
    x.values = next;
    next += round_up(Fp8Rows::value_bytes(x.rows, x.inputs));
    x.scale = reinterpret_cast<float*>(next);
    next += round_up(Fp8Rows::scale_bytes(x.types, x.rows, x.inputs));
    quantise_rows(stream, any.x, any.x_stride, x);
  }
  if (plan.fp4_x.rows > 0) {
    Fp4Rows& x = room.fp4_x;
    x = plan.fp4_x;
    Cutter cutter(next);
    x.take(cutter);
    quantise_fp4_rows(stream, any.x_dtype, any.x, any.x_stride, x);
  }
  std::vector<Product> own, rounded;
  for (const Variant<GemmCall>& variant : kGemmTable.all) {
    own.clear();
    for (std::size_t i = 0; i < products.size(); ++i) {
      if (plan.selected[i] == &variant) own.push_back(products[i]);
    }
    if (own.empty()) continue;
    GemmCall call{own, false, &room};
    launch_variant(stream, variant, call);
    if (variant.launch == launch_fp8) rounded = own;
  }
  multiply_groups(stream, rounded, any.rows / 4 * 4);
}

void register_gemm(KernelList& list) {
  list.add_variants(kGemmTable);
  list.add_variants(kPlainTable);
}

}  // namespace frt::cuda
