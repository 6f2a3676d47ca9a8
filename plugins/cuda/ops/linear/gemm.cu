// SPDX-License-Identifier: Apache-2.0
// Products of many rows, y = x W^T: which way each one takes.
//
//   bf16 x, BF16 weights      not so few rows of several products: streamed in one kernel
//                             (skinny_gemm.cu); more through cuBLASLt; our own tiles where it is
//                             missing, something is unaligned, or y is bf16 and added to; the
//                             narrow way in groups of rows for few rows and few outputs
//   bf16 x, quantised weights    dequantised to bf16 in slices of outputs, then as above; with few
//   rows
//                             inside the product (gemm_quantised.cu), or in groups through the
//                             narrow way where sizes or alignments do not allow it
//   bf16 x, FP8 weights       with the option fp8_activations: x is rounded to FP8, cuBLASLt
//   f32 x or F32 weights      our own tiles in f32, quantised weights dequantised to f32
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
#include "../common/launch.cuh"
#include "dequantise.cuh"
#include "gemm_fp8.cuh"
#include "gemm_quantised.cuh"
#include "gemm_tile.cuh"
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
// kernel; with few rows the GEMV kernels does all such products of one x in a launch per kGemvRows
// rows.
constexpr int32_t kFewOutputs = 64;
// From here on rounding the activations to FP8 is worth its launches.
constexpr int32_t kFp8Rows = 64;
// Up to here BF16 weights are streamed by a kernel of our own where several products of one x are
// asked for, which it does in one launch. 32 rows of the 27B, H200: four products of one x 48.6 us,
// 72 through the library; a single one of 17408 x 5120 59.5 us, 50.7 through the library.
constexpr int32_t kSkinnyRowsTogether = 64;
constexpr std::size_t kTogether = 3;  // two of 17408 x 5120: 112 us, 101 through the library

enum class Way { kChunk, kPlain, kDequantise, kQuantised, kFewRows, kFp8 };

std::size_t round_up(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

const void* row_of(const void* matrix, frt_dtype dtype, int64_t elements) {
  return static_cast<const char*>(matrix) + elements * dtype_bits(dtype) / 8;
}
void* row_of(void* matrix, frt_dtype dtype, int64_t elements) {
  return static_cast<char*>(matrix) + elements * dtype_bits(dtype) / 8;
}

bool aligned(const void* pointer, int64_t stride_bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride_bytes % 16 == 0;
}

// Outputs [first, first + count), whose weights lie at `weight` as plain numbers.
void multiply_plain(Stream& stream, Blas* blas, const Product& product, const void* weight,
                    frt_dtype weight_dtype, int32_t first, int32_t count, void* workspace) {
  void* y = row_of(product.y, product.y_dtype, first);
  const int32_t inputs = product.weight.cols;
  // The library rounds a product to bf16 before it adds it to a y of bf16; one rounding is
  // promised.
  const bool rounded_twice = product.accumulate && product.y_dtype == FRT_DTYPE_BF16;
  if (blas && !rounded_twice && product.x_dtype == FRT_DTYPE_BF16 &&
      weight_dtype == FRT_DTYPE_BF16 && aligned(product.x, product.x_stride * 2) &&
      aligned(weight, int64_t{inputs} * 2) &&
      aligned(y, product.y_stride * dtype_bits(product.y_dtype) / 8)) {
    const BlasShape shape{BlasTypes::kBf16, product.y_dtype, product.accumulate,
                          product.rows,     count,           inputs,
                          product.x_stride, product.y_stride};
    const BlasOperands operands{product.x, nullptr, weight, nullptr, y, workspace};
    if (blas->multiply(stream, shape, operands)) return;
  }
  tile_product(stream, {product.x_dtype, weight_dtype, product.y_dtype, product.accumulate,
                        product.rows, count, inputs, product.row_count, product.x, product.x_stride,
                        weight, inputs, y, product.y_stride});
}

// Outputs of which the dequantised weights make one slice.
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

void multiply_dequantised(Stream& stream, Blas* blas, const Product& product, void* room,
                          void* workspace) {
  const frt_dtype plain = product.x_dtype;
  const int32_t slice = slice_of(product);
  for (int32_t first = 0; first < product.weight.rows; first += slice) {
    const int32_t count = std::min(slice, product.weight.rows - first);
    dequantise(stream, product.weight, first, count, plain, room);
    multiply_plain(stream, blas, product, room, plain, first, count, workspace);
  }
}

// Rows from `first` on in groups of kGemvRows; the products are of one x.
void multiply_few(Stream& stream, std::span<const Product> products, int32_t first) {
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

// The library takes rows of FP8 in fours; the last ones go the GEMV kernels.
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

bool skinny_fits(const Product& product) {
  return product.x_dtype == FRT_DTYPE_BF16 && product.weight.form == WeightForm::kBf16 &&
         product.rows <= kSkinnyRowsTogether &&
         skinny_gemm_supports(skinny_product(product), product.weight.data);
}

// All products that go this way, some at a time.
void multiply_chunks(Stream& stream, std::span<const Product> products, std::span<const Way> ways) {
  std::vector<SkinnyPart> parts;
  const SkinnyProduct x = skinny_product(products.front());
  const auto submit = [&] {
    if (!parts.empty()) skinny_gemm_products(stream, x, parts);
    parts.clear();
  };
  for (std::size_t i = 0; i < products.size(); ++i) {
    if (ways[i] != Way::kChunk) continue;
    const Product& product = products[i];
    SkinnyPart part{};
    part.weight = product.weight.data;
    part.outputs = product.weight.rows;
    part.accumulate = product.accumulate;
    part.y_dtype = product.y_dtype;
    part.y = product.y;
    part.y_stride = product.y_stride;
    parts.push_back(part);
    if (parts.size() == kSkinnyParts) submit();
  }
  submit();
}

Way way_of(const Product& product, bool together, Blas* blas, BlasTypes& types) {
  const bool packed =
      product.weight.form != WeightForm::kBf16 && product.weight.form != WeightForm::kF32;
  if (!packed) {
    if (together && skinny_fits(product)) return Way::kChunk;
    const bool few = product.rows <= kFewRows && product.weight.rows <= kFewOutputs &&
                     product.x_dtype == FRT_DTYPE_BF16 && product.weight.form == WeightForm::kBf16;
    return few ? Way::kFewRows : Way::kPlain;
  }
  if (product.x_dtype != FRT_DTYPE_BF16) return Way::kDequantise;
  if (blas && product.rows >= kFp8Rows && fp8_gemm_supports(product, types) &&
      blas->offers(fp8_shape(product, types))) {
    return Way::kFp8;
  }
  if (product.rows <= kQuantisedGemmRows && quantised_gemm_supports(product))
    return Way::kQuantised;
  return product.rows <= kFewRows ? Way::kFewRows : Way::kDequantise;
}

// Which way each of some products of one x takes, and its part of one block of working memory:
// the library's workspace, then a slice of weights, then their scales, then x in FP8.
struct GemmPlan {
  Blas* blas = nullptr;
  std::vector<Way> ways;
  std::vector<BlasTypes> types;
  std::size_t slice = 0, weight_scales = 0;
  std::array<Fp8Rows, 2> fp8_x{};  // in blocks, by row
  std::size_t bytes = 0;
};

GemmPlan plan_of(Device& device, std::span<const Product> products) {
  GemmPlan plan;
  const Product& any = products.front();
  plan.blas = any.x_dtype == FRT_DTYPE_BF16 ? Blas::find(device) : nullptr;
  Blas* fp8_blas = device.options().fp8_activations ? plan.blas : nullptr;
  plan.types.assign(products.size(), BlasTypes::kBf16);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product& product = products[i];
    plan.ways.push_back(way_of(product, products.size() >= kTogether, fp8_blas, plan.types[i]));
    if (plan.ways[i] == Way::kDequantise) plan.slice = std::max(plan.slice, slice_bytes(product));
    if (plan.ways[i] == Way::kQuantised) {
      plan.slice =
          std::max(plan.slice, quantised_gemm_bytes(product, device.properties().multiprocessors));
    }
    if (plan.ways[i] == Way::kFp8) {
      plan.fp8_x[plan.types[i] == BlasTypes::kFp8Channel] = {plan.types[i], any.rows / 4 * 4,
                                                             any.weight.cols, nullptr, nullptr};
      plan.weight_scales = std::max(plan.weight_scales, round_up(fp8_scale_bytes(product.weight)));
    }
  }
  plan.slice = round_up(plan.slice);
  plan.bytes = (plan.blas ? Blas::kWorkspaceBytes : 0) + plan.slice + plan.weight_scales;
  for (const Fp8Rows& x : plan.fp8_x) {
    plan.bytes += round_up(Fp8Rows::value_bytes(x.rows, x.inputs)) +
                  round_up(Fp8Rows::scale_bytes(x.types, x.rows, x.inputs));
  }
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
  GemmPlan plan = plan_of(stream.device(), products);
  Blas* blas = plan.blas;
  const std::vector<Way>& ways = plan.ways;
  const std::vector<BlasTypes>& types = plan.types;
  std::array<Fp8Rows, 2>& fp8_x = plan.fp8_x;
  char* workspace = static_cast<char*>(memory);
  char* slice_room = workspace + (blas ? Blas::kWorkspaceBytes : 0);
  char* scale_room = slice_room + plan.slice;
  char* next = scale_room + plan.weight_scales;
  for (Fp8Rows& x : fp8_x) {
    if (x.rows == 0) continue;
    x.values = next;
    next += round_up(Fp8Rows::value_bytes(x.rows, x.inputs));
    x.scale = reinterpret_cast<float*>(next);
    next += round_up(Fp8Rows::scale_bytes(x.types, x.rows, x.inputs));
    quantise_rows(stream, any.x, any.x_stride, x);
  }

  multiply_chunks(stream, products, ways);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product& product = products[i];
    if (ways[i] == Way::kPlain) {
      multiply_plain(stream, blas, product, product.weight.data,
                     product.weight.form == WeightForm::kF32 ? FRT_DTYPE_F32 : FRT_DTYPE_BF16, 0,
                     product.weight.rows, workspace);
    } else if (ways[i] == Way::kDequantise) {
      multiply_dequantised(stream, blas, product, slice_room, workspace);
    } else if (ways[i] == Way::kQuantised) {
      quantised_gemm(stream, product, slice_room);
    } else if (ways[i] == Way::kFp8) {
      const Fp8Rows& x = fp8_x[types[i] == BlasTypes::kFp8Channel];
      const float* scales =
          fp8_weight_scales(stream, product.weight, reinterpret_cast<float*>(scale_room));
      blas->multiply(stream, fp8_shape(product, types[i]),
                     {x.values, x.scale, product.weight.data, scales, product.y, workspace});
    }
  }
  // Last, because the GEMV kernels has working memory of its own, in the same place.
  std::vector<Product> few, rest;
  for (std::size_t i = 0; i < products.size(); ++i) {
    if (ways[i] == Way::kFewRows) few.push_back(products[i]);
    if (ways[i] == Way::kFp8) rest.push_back(products[i]);
  }
  multiply_few(stream, few, 0);
  multiply_few(stream, rest, any.rows / 4 * 4);
}

}  // namespace frt::cuda
