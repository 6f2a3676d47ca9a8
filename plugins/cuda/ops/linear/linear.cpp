// SPDX-License-Identifier: Apache-2.0
// Products with weights: frt.linear/1, frt.norm_linears/1, frt.norm_gate_up/1. Up to kGemvRows rows
// stream the weights (gemv*; one row of short products: resident*), more go to the tensor cores in
// large blocks (gemm*, skinny_gemm.cu).
#include <frt/ops/elementwise.h>
#include <frt/ops/norm.h>
#include <frt/ops/checks/linear.hpp>

#include <array>

#include "../../stream.hpp"
#include "../common/call.hpp"
#include "../common/weight.hpp"
#include "../registry.hpp"
#include "../variants.hpp"
#include "gemv.hpp"
#include "product.hpp"
#include "resident.hpp"

namespace frt::cuda {
namespace {

// residual += delta; x = norm(residual).
template <class Args>
void norm_before(Stream& stream, const Args& args, int32_t cols) {
  if (!args.residual) return;
  frt_add_rms_norm_args norm{};
  norm.residual_dtype = args.residual_dtype;
  norm.dtype = args.dtype;
  norm.rows = args.rows;
  norm.width = cols;
  norm.epsilon = args.epsilon;
  norm.row_count = args.row_count;
  norm.residual = args.residual;
  norm.delta = args.delta;
  norm.weight = args.norm_weight;
  norm.y = args.x;
  run_operator(stream, FRT_OP_ADD_RMS_NORM, norm);
}

// ---- variants ----------------------------------------------------------------------------------

struct LinearCall {
  std::span<const Product> products;  // of one x
  ResidentPlan resident;
};

bool supports_resident(Device& device, LinearCall& call) {
  return plan_resident(device, call.products, call.resident);
}
bool supports_gemv(Device&, LinearCall& call) {
  return call.products.front().rows <= kGemvRows;
}
constexpr Variant<LinearCall> kLinearVariants[] = {
    {"resident",
     {feature::kPdl | feature::kClusters | feature::kBulkCopies},
     supports_resident,
     [](Stream& stream, LinearCall& call) { launch_resident(stream, call.resident); }},
    {"gemv",
     {},
     supports_gemv,
     [](Stream& stream, LinearCall& call) { gemv_products(stream, call.products); }},
    {"gemm",
     {},
     nullptr,
     [](Stream& stream, LinearCall& call) { gemm_products(stream, call.products); }},
};
constexpr Variants<LinearCall> kLinearTable{FRT_OP_LINEAR, kLinearVariants};

struct GateUpCall {
  const frt_norm_gate_up_args& args;
  Product gate, up;
  GemvAhead ahead;
  GemvCall gemv;
};

bool supports_gate_up(Device& device, GateUpCall& call) {
  return call.gate.rows <= kGemvRows &&
         plan_gemv_gate_up(device, call.gate, call.up.weight, call.ahead, call.gemv);
}
void launch_gate_up_composed(Stream& stream, GateUpCall& call) {
  const frt_norm_gate_up_args& args = call.args;
  const int32_t width = args.gate_weight.rows;
  call.gate.y = args.gate;
  const std::array<Product, 2> products = {call.gate, call.up};
  multiply(stream, products);
  frt_binary_args gated{};
  gated.dtype = args.dtype;
  gated.rows = args.rows;
  gated.width = width;
  gated.row_count = args.row_count;
  gated.a = args.gate;
  gated.a_stride = width;
  gated.b = args.h;
  gated.b_stride = width;
  gated.y = args.h;
  gated.y_stride = width;
  run_operator(stream, FRT_OP_SILU_MUL, gated);
}
constexpr Variant<GateUpCall> kGateUpVariants[] = {
    {"gemv",
     {},
     supports_gate_up,
     [](Stream& stream, GateUpCall& call) { gemv_planned(stream, call.gemv); }},
    {"composed", {}, nullptr, launch_gate_up_composed},
};
constexpr Variants<GateUpCall> kGateUpTable{FRT_OP_NORM_GATE_UP, kGateUpVariants};

// ---- operators ---------------------------------------------------------------------------------

template <class Args>
Product normed_product(const Args& args, const Weight& weight, void* y, int64_t y_stride) {
  Product product{};
  product.x_dtype = args.dtype;
  product.y_dtype = args.dtype;
  product.rows = args.rows;
  product.row_count = args.row_count;
  product.x = args.x;
  product.x_stride = weight.cols;
  product.weight = weight;
  product.y = y;
  product.y_stride = y_stride;
  return product;
}

void linear(Stream& stream, const frt_linear_args& args) {
  check_linear(Checks(FRT_OP_LINEAR), args, kWeightFormats);
  if (args.rows == 0) return;
  Product product{};
  product.x_dtype = args.x_dtype;
  product.y_dtype = args.y_dtype;
  product.rows = args.rows;
  product.row_count = args.row_count;
  product.x = args.x;
  product.x_stride = args.x_stride;
  product.weight = args.weight;
  product.y = args.y;
  product.y_stride = args.y_stride;
  product.accumulate = args.accumulate == 1;
  multiply(stream, {&product, 1});
}

void norm_linears(Stream& stream, const frt_norm_linears_args& args) {
  check_norm_linears(Checks(FRT_OP_NORM_LINEARS), args, kWeightFormats);
  if (args.rows == 0) return;
  const int32_t cols = args.parts[0].weight.cols;
  std::array<Product, FRT_LINEAR_GROUP_MAX> products{};
  const auto count = static_cast<std::size_t>(args.part_count);
  for (std::size_t i = 0; i < count; ++i) {
    const frt_linear_part& part = args.parts[i];
    products[i] = normed_product(args, part.weight, part.y, part.y_stride);
  }
  norm_before(stream, args, cols);
  multiply(stream, {products.data(), count});
}

void norm_gate_up(Stream& stream, const frt_norm_gate_up_args& args) {
  check_norm_gate_up(Checks(FRT_OP_NORM_GATE_UP), args, kWeightFormats);
  if (args.rows == 0) return;
  const int32_t width = args.gate_weight.rows;
  norm_before(stream, args, args.gate_weight.cols);
  GateUpCall call{args,
                  normed_product(args, args.gate_weight, args.h, width),
                  normed_product(args, args.up_weight, args.h, width),
                  gemv_ahead(stream),
                  {}};
  run_variant(stream, kGateUpTable, call);
}

}  // namespace

void multiply(Stream& stream, std::span<const Product> products) {
  LinearCall call{products, {}};
  run_variant(stream, kLinearTable, call);
}

void register_linear(KernelList& list) {
  list.add<frt_linear_args>(FRT_OP_LINEAR, kFloatTypes, kWeightFormats, linear);
  list.add<frt_norm_linears_args>(FRT_OP_NORM_LINEARS, kFloatTypes, kWeightFormats, norm_linears);
  list.add<frt_norm_gate_up_args>(FRT_OP_NORM_GATE_UP, kFloatTypes, kWeightFormats, norm_gate_up);
  list.add_variants(kLinearTable);
  list.add_variants(kGateUpTable);
  register_gemv(list);
  register_gemm(list);
}

}  // namespace frt::cuda
