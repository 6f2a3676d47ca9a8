// SPDX-License-Identifier: Apache-2.0
// Products with bias, activation, gate, addend and residual: frt.dense/1, frt.norm_dense/1,
// frt.norm_geglu/1, frt.norm_qkv/1.
//
//   skinny    few rows (a chunk of actions), BF16: one kernel, bound by reading the weights
//             (linear/skinny_gemm.cu); up to 128 rows where a block has the memory
//   wgmma     many rows (images, prompts), BF16, sm_90: one kernel, bound by arithmetic
//             (sm90/wgmma.cu)
//   composed  the product to f32 sums, or straight to y where nothing is added, then one pass over
//             the sums
//
// fp8.cu has those of activations in e4m3 with a static scale.
//
// Sums in f32 keep the rule that a value is rounded once. They stay in L2: 512 x 4304 are 8.8 MB,
// 3 us to write and read.
#include <frt/ops/dense.h>
#include <frt/ops/elementwise.h>

#include <frt/checks.hpp>

#include <algorithm>
#include <array>
#include <string>

#include "../attention/dense.hpp"
#include "../common/call.hpp"
#include "../common/convert_values.cuh"
#include "../common/launch.cuh"
#include "../common/pieces.hpp"
#include "../common/row_norm.cuh"
#include "../common/weight.hpp"
#include "../linear/product.hpp"
#include "../linear/skinny_gemm.hpp"
#include "../registry.hpp"
#include "../variants.hpp"
#include "fp8.hpp"
#include "sm90/wgmma.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;

// What follows a product.
struct Finish {
  const float* sums;  // (rows, outputs)
  int rows, outputs;
  const int32_t* row_count;
  const float* bias;
  uint32_t activation;
  frt_modulation gate;
  const float* addend;
  int addend_rows;
  bool accumulate;
  frt_dtype y_dtype;
  void* y;
  int64_t y_stride;
};

bool needed(const Finish& finish) {
  return finish.bias || finish.activation != FRT_ACTIVATION_NONE || finish.gate.rows ||
         finish.addend;
}

template <int N>
__global__ void __launch_bounds__(kThreads) finish_kernel(const __grid_constant__ Finish f) {
  pdl_trigger();
  pdl_wait();
  const int rows = active_rows(f.rows, f.row_count);
  const int column = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * N;
  if (column >= f.outputs) return;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    float z[N], other[N];
    load_typed(f.sums + static_cast<int64_t>(row) * f.outputs + column, z);
    if (f.bias) {
      load_typed(f.bias + column, other);
#pragma unroll
      for (int i = 0; i < N; ++i) z[i] += other[i];
    }
    if (f.activation != FRT_ACTIVATION_NONE) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        z[i] = f.activation == FRT_ACTIVATION_GELU ? gelu(z[i]) : silu(z[i]);
      }
    }
    if (f.gate.rows) {
      load_typed(modulation_of(f.gate, row) + 2 * static_cast<int64_t>(f.outputs) + column, other);
#pragma unroll
      for (int i = 0; i < N; ++i) z[i] *= other[i];
    }
    if (f.addend) {
      load_typed(f.addend + static_cast<int64_t>(row % f.addend_rows) * f.outputs + column, other);
#pragma unroll
      for (int i = 0; i < N; ++i) z[i] += other[i];
    }
    const int64_t at = row * f.y_stride + column;
    if (f.accumulate) {
      load_values(f.y_dtype, f.y, at, other);
#pragma unroll
      for (int i = 0; i < N; ++i) z[i] += other[i];
    }
    store_values(f.y_dtype, f.y, at, z);
  }
}

void finish(Stream& stream, const Finish& f) {
  const bool vector = f.outputs % 8 == 0 && vector_rows(f.y, f.y_stride) && aligned(f.bias) &&
                      aligned(f.gate.rows) && aligned(f.gate.clean) && aligned(f.addend);
  const int64_t columns = ceil_div(f.outputs, kThreads * (vector ? 8 : 1));
  const Grid grid{
      dim3(static_cast<unsigned>(columns), static_cast<unsigned>(std::min(f.rows, 65535))),
      dim3(kThreads)};
  launch(stream, grid, vector ? finish_kernel<8> : finish_kernel<1>, f);
}

SkinnyProduct skinny_product(const Product& product) {
  return {product.rows, product.weight.cols, product.row_count, product.x, product.x_stride};
}

bool plain_bf16(const Product& product) {
  return product.x_dtype == FRT_DTYPE_BF16 && product.weight.type == WeightType::kBf16;
}

// ---- variants ----------------------------------------------------------------------------------

// Products of one x and what follows each.
struct DenseCall {
  std::span<Product> products;
  std::span<Finish> finishes;

  bool plain() const { return std::ranges::all_of(products, plain_bf16); }
};

// As the kernels take them that do both.
struct SkinnyParts {
  explicit SkinnyParts(const DenseCall& call) : product(skinny_product(call.products.front())) {
    for (const Finish& f : call.finishes) {
      all[count] = {call.products[count].weight.data,
                    f.outputs,
                    f.bias,
                    f.activation,
                    f.gate,
                    f.addend,
                    f.addend_rows,
                    f.accumulate,
                    f.y_dtype,
                    f.y,
                    f.y_stride};
      ++count;
    }
  }
  std::span<const SkinnyPart> used() const { return {all.data(), count}; }

  SkinnyProduct product;
  std::array<SkinnyPart, FRT_DENSE_PARTS_MAX> all{};
  std::size_t count = 0;
};

// GEMVs are faster where nothing follows.
template <int32_t kRows>
bool supports_skinny(Device&, DenseCall& call) {
  const bool worth_it =
      call.products.front().rows > kGemvRows || std::ranges::any_of(call.finishes, needed);
  return call.plain() && worth_it && std::ranges::all_of(call.products, [](const Product& product) {
           return skinny_gemm_supports(skinny_product(product), product.weight.data, kRows);
         });
}
void launch_skinny(Stream& stream, DenseCall& call) {
  const SkinnyParts parts(call);
  skinny_gemm_products(stream, parts.product, parts.used());
}

bool supports_wgmma(Device&, DenseCall& call) {
  if (!call.plain()) return false;
  const SkinnyParts parts(call);
  return wgmma_supports(parts.product, parts.used());
}
void launch_wgmma(Stream& stream, DenseCall& call) {
  const SkinnyParts parts(call);
  wgmma_products(stream, parts.product, parts.used());
}

void launch_composed(Stream& stream, DenseCall& call) {
  const auto& [parts, finishes] = call;
  const bool gemv = parts.front().rows <= kGemvRows;
  std::size_t sums = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!needed(finishes[i])) continue;
    parts[i].y_dtype = FRT_DTYPE_F32;
    parts[i].y_stride = finishes[i].outputs;
    parts[i].accumulate = false;
    sums += round_up(static_cast<std::size_t>(finishes[i].rows) *
                     static_cast<std::size_t>(finishes[i].outputs) * sizeof(float));
  }
  // Sizes of the working memory depend on where y lies only by its alignment.
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (needed(finishes[i])) parts[i].y = nullptr;
  }
  const std::size_t gemm = gemv ? 0 : round_up(gemm_scratch_bytes(stream.device(), parts));
  char* memory = gemm + sums > 0 ? static_cast<char*>(stream.scratch(gemm + sums)) : nullptr;
  char* next = memory + gemm;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!needed(finishes[i])) continue;
    parts[i].y = next;
    finishes[i].sums = reinterpret_cast<const float*>(next);
    next += round_up(static_cast<std::size_t>(finishes[i].rows) *
                     static_cast<std::size_t>(finishes[i].outputs) * sizeof(float));
  }
  if (gemv) {
    gemv_products(stream, parts);
  } else {
    gemm_products(stream, parts, memory);
  }
  for (const Finish& f : finishes) {
    if (needed(f)) finish(stream, f);
  }
}

constexpr FeatureSet kWgmmaAndCopies =
    feature::kWgmma | feature::kClusters | feature::kBulkCopies | feature::kCoResident;
constexpr Variant<DenseCall> kDenseVariants[] = {
    {"skinny", {}, supports_skinny<kSkinnyRows>, launch_skinny},
    {"skinny-128",
     {feature::kClusters, kSkinnyMostBytes},
     supports_skinny<kSkinnyMostRows>,
     launch_skinny},
    {"wgmma", {kWgmmaAndCopies}, supports_wgmma, launch_wgmma},
    {"composed", {}, nullptr, launch_composed},
};
constexpr Variants<DenseCall> kDenseTable{FRT_OP_DENSE, kDenseVariants};

// Gate and up of one x, bf16: y = gelu(gate) * up to `args.h`.
struct GegluCall {
  const frt_norm_geglu_args& args;
  std::array<Product, 2> products;  // to gate and h

  bool plain() const { return plain_bf16(products[0]) && plain_bf16(products[1]); }
  SkinnyPart part(int i) const {
    SkinnyPart made{};
    made.weight = products[i].weight.data;
    made.outputs = products[i].weight.rows;
    made.activation = FRT_ACTIVATION_GELU;
    made.y_dtype = args.dtype;
    made.y = args.h;
    made.y_stride = products[i].weight.rows;
    return made;
  }
};

template <int32_t kRows>
bool supports_skinny_geglu(Device&, GegluCall& call) {
  return call.plain() && std::ranges::all_of(call.products, [](const Product& product) {
           return skinny_gemm_supports(skinny_product(product), product.weight.data, kRows);
         });
}
void launch_skinny_geglu(Stream& stream, GegluCall& call) {
  skinny_gemm_gate_up(stream, skinny_product(call.products[0]), call.part(0), call.part(1).weight);
}

bool supports_wgmma_geglu(Device&, GegluCall& call) {
  return call.plain() &&
         wgmma_supports(skinny_product(call.products[0]), std::array{call.part(0), call.part(1)});
}
void launch_wgmma_geglu(Stream& stream, GegluCall& call) {
  wgmma_gate_up(stream, skinny_product(call.products[0]), call.part(0), call.part(1).weight);
}

void launch_composed_geglu(Stream& stream, GegluCall& call) {
  const frt_norm_geglu_args& args = call.args;
  const int32_t width = args.gate_weight.rows;
  if (args.rows <= kGemvRows) {
    gemv_products(stream, call.products);
  } else {
    gemm_products(stream, call.products);
  }
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
  run_operator(stream, FRT_OP_GELU_MUL, gated);
}

constexpr Variant<GegluCall> kGegluVariants[] = {
    {"skinny", {}, supports_skinny_geglu<kSkinnyRows>, launch_skinny_geglu},
    {"skinny-128",
     {feature::kClusters, kSkinnyMostBytes},
     supports_skinny_geglu<kSkinnyMostRows>,
     launch_skinny_geglu},
    {"wgmma", {kWgmmaAndCopies}, supports_wgmma_geglu, launch_wgmma_geglu},
    {"composed", {}, nullptr, launch_composed_geglu},
};
constexpr Variants<GegluCall> kGegluTable{FRT_OP_NORM_GEGLU, kGegluVariants};

// ---- operators ---------------------------------------------------------------------------------

void dense(Stream& stream, const frt_dense_args& args) {
  const Checks check(FRT_OP_DENSE);
  check.scale("x_scale", args.x_scale, "weight.format", args.weight);
  if (args.x_scale > 0) {
    check.dtype("x_dtype", args.x_dtype, {FRT_DTYPE_F8_E4M3});
  } else {
    check.dtype("x_dtype", args.x_dtype);
  }
  check.dtype("y_dtype", args.y_dtype);
  check.at_least("rows", args.rows, 0);
  check.range("activation", args.activation, FRT_ACTIVATION_NONE, FRT_ACTIVATION_SILU);
  check.require(args.accumulate <= 1, "accumulate", "is neither 0 nor 1");
  check_weight(check, "weight", args.weight);
  check.pointer("x", args.x);
  check.pointer("y", args.y);
  check.at_least("x_stride", args.x_stride, args.weight.cols);
  check.at_least("y_stride", args.y_stride, args.weight.rows);
  if (args.gate.rows) check_modulation(check, "gate", args.gate);
  if (args.addend) check.positive("addend_rows", args.addend_rows);
  if (args.rows == 0) return;
  if (args.x_scale > 0) {
    const Fp8Input input{args.rows, args.weight.cols, args.row_count,
                         args.x,    args.x_stride,    args.x_scale};
    const Fp8Part part{args.weight, args.bias,        args.activation,      args.gate,
                       args.addend, args.addend_rows, args.accumulate == 1, args.y_dtype,
                       0,           args.y,           args.y_stride};
    return fp8_products(stream, input, {&part, 1});
  }
  Product part{args.x_dtype,  args.y_dtype, args.rows, args.row_count, args.x,
               args.x_stride, args.weight,  args.y,    args.y_stride,  args.accumulate == 1};
  Finish last{nullptr,         args.rows, args.weight.rows, args.row_count,   args.bias,
              args.activation, args.gate, args.addend,      args.addend_rows, args.accumulate == 1,
              args.y_dtype,    args.y,    args.y_stride};
  DenseCall call{{&part, 1}, {&last, 1}};
  run_variant(stream, kDenseTable, call);
}

// The norm of both fused operators; returns what is multiplied.
template <class Args>
const void* norm_before(Stream& stream, const Args& args, int32_t cols) {
  if (args.norm.kind == FRT_NORM_NONE) return args.x;
  frt_row_norm_args norm{};
  norm.x_dtype = args.x_dtype;
  norm.y_dtype = args.dtype;
  norm.rows = args.rows;
  norm.width = cols;
  norm.row_count = args.row_count;
  norm.norm = args.norm;
  norm.x = args.x;
  norm.x_stride = cols;
  norm.y = args.normed;
  norm.y_stride = cols;
  if (args.normed_scale > 0) norm.y_dtype = FRT_DTYPE_F8_E4M3;
  normalise_rows(stream, norm, args.normed_scale);
  return args.normed;
}

// What is multiplied, in FP8.
template <class Args>
Fp8Input fp8_input(const Args& args, int32_t cols, const void* x) {
  return {args.rows, cols, args.row_count, x, cols, args.normed_scale};
}

template <class Args>
void check_normed(const Checks& check, const Args& args) {
  check.dtype("x_dtype", args.x_dtype);
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check_norm(check, args.norm);
  check.pointer("x", args.x);
  if (args.norm.kind == FRT_NORM_NONE) {
    check.require(args.x_dtype == args.dtype, "x_dtype",
                  "differs from dtype, and there is no norm");
    check.require(args.normed_scale == 0, "normed_scale", "is given, and there is no norm");
  } else {
    check.pointer("normed", args.normed);
  }
}

// With `rope` what was written is rotated.
void norm_products(Stream& stream, const Checks& check, const frt_norm_dense_args& args,
                   const frt_rope_args* rope) {
  check.range("part_count", args.part_count, 1, FRT_DENSE_PARTS_MAX);
  check.pointer("parts", args.parts);
  const int32_t cols = args.parts[0].weight.cols;
  check_normed(check, args);
  const auto count = static_cast<std::size_t>(args.part_count);
  for (std::size_t i = 0; i < count; ++i) {
    const frt_dense_part& part = args.parts[i];
    const std::string name = "parts[" + std::to_string(i) + "]";
    check_weight(check, (name + ".weight").c_str(), part.weight);
    check.require(part.weight.cols == cols, (name + ".weight.cols").c_str(),
                  "is " + std::to_string(part.weight.cols) + ", but the first part has " +
                      std::to_string(cols));
    check.range((name + ".activation").c_str(), part.activation, FRT_ACTIVATION_NONE,
                FRT_ACTIVATION_SILU);
    check.scale("normed_scale", args.normed_scale, (name + ".weight.format").c_str(), part.weight);
    check.result_scale((name + ".y_scale").c_str(), part.y_scale, args.normed_scale);
    check.pointer((name + ".y").c_str(), part.y);
    check.at_least((name + ".y_stride").c_str(), part.y_stride, part.weight.rows);
  }
  if (args.rows == 0) return;
  const void* x = norm_before(stream, args, cols);
  if (args.normed_scale > 0) {
    std::array<Fp8Part, FRT_DENSE_PARTS_MAX> parts{};
    for (std::size_t i = 0; i < count; ++i) {
      const frt_dense_part& part = args.parts[i];
      parts[i].weight = part.weight;
      parts[i].bias = part.bias;
      parts[i].activation = part.activation;
      parts[i].y_dtype = part.y_scale > 0 ? FRT_DTYPE_F8_E4M3 : args.dtype;
      parts[i].y_scale = part.y_scale;
      parts[i].y = part.y;
      parts[i].y_stride = part.y_stride;
    }
    const Fp8Input input = fp8_input(args, cols, x);
    const std::span<const Fp8Part> all(parts.data(), count);
    if (rope) return fp8_qkv(stream, input, all, *rope);
    return fp8_products(stream, input, all);
  }
  std::array<Product, FRT_DENSE_PARTS_MAX> parts{};
  std::array<Finish, FRT_DENSE_PARTS_MAX> finishes{};
  for (std::size_t i = 0; i < count; ++i) {
    const frt_dense_part& part = args.parts[i];
    parts[i] = {args.dtype, args.dtype,  args.rows, args.row_count, x,
                cols,       part.weight, part.y,    part.y_stride,  false};
    finishes[i] = {nullptr,
                   args.rows,
                   part.weight.rows,
                   args.row_count,
                   part.bias,
                   part.activation,
                   {},
                   nullptr,
                   0,
                   false,
                   args.dtype,
                   part.y,
                   part.y_stride};
  }
  DenseCall call{{parts.data(), count}, {finishes.data(), count}};
  run_variant(stream, kDenseTable, call);
  if (rope) run_operator(stream, FRT_OP_ROPE, *rope);
}

void norm_dense(Stream& stream, const frt_norm_dense_args& args) {
  norm_products(stream, Checks(FRT_OP_NORM_DENSE), args, nullptr);
}

void norm_qkv(Stream& stream, const frt_norm_qkv_args& args) {
  const Checks check(FRT_OP_NORM_QKV);
  check.require(args.products.rows == args.rope.count * args.rope.rows, "products.rows",
                "is not rope.count * rope.rows");
  check_rope(check, args.rope);
  norm_products(stream, check, args.products, &args.rope);
}

void norm_geglu(Stream& stream, const frt_norm_geglu_args& args) {
  const Checks check(FRT_OP_NORM_GEGLU);
  check_weight(check, "gate_weight", args.gate_weight);
  check_weight(check, "up_weight", args.up_weight);
  check.require(args.gate_weight.rows == args.up_weight.rows, "up_weight.rows",
                "differs from gate_weight.rows");
  check.require(args.gate_weight.cols == args.up_weight.cols, "up_weight.cols",
                "differs from gate_weight.cols");
  check.scale("normed_scale", args.normed_scale, "gate_weight.format", args.gate_weight);
  check.scale("normed_scale", args.normed_scale, "up_weight.format", args.up_weight);
  check.result_scale("h_scale", args.h_scale, args.normed_scale);
  check.pointer("h", args.h);
  check_normed(check, args);
  check.pointer("gate", args.gate);
  if (args.rows == 0) return;
  const int32_t width = args.gate_weight.rows, cols = args.gate_weight.cols;
  const void* x = norm_before(stream, args, cols);
  if (args.normed_scale > 0) {
    Fp8Part gate{};
    gate.weight = args.gate_weight;
    gate.y_dtype = args.h_scale > 0 ? FRT_DTYPE_F8_E4M3 : args.dtype;
    gate.y_scale = args.h_scale;
    gate.y = args.h;
    gate.y_stride = width;
    return fp8_geglu(stream, fp8_input(args, cols, x), gate, args.up_weight);
  }
  const Product gate{args.dtype, args.dtype,       args.rows, args.row_count, x,
                     cols,       args.gate_weight, args.gate, width,          false};
  GegluCall call{args, {gate, gate}};
  call.products[1].weight = args.up_weight;
  call.products[1].y = args.h;
  run_variant(stream, kGegluTable, call);
}

}  // namespace

void register_dense(KernelList& list) {
  const frt_dtype_set types = kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3);
  list.add<frt_dense_args>(FRT_OP_DENSE, {types, kFloatTypes}, kWeightFormats, dense);
  list.add<frt_norm_dense_args>(FRT_OP_NORM_DENSE, types, kWeightFormats, norm_dense);
  list.add<frt_norm_geglu_args>(FRT_OP_NORM_GEGLU, types, kWeightFormats, norm_geglu);
  list.add<frt_norm_qkv_args>(FRT_OP_NORM_QKV, types, kWeightFormats, norm_qkv);
  list.add_variants(kDenseTable);
  list.add_variants(kGegluTable);
  register_dense_fp8(list);
}

}  // namespace frt::cuda
