// SPDX-License-Identifier: Apache-2.0
// Products with bias, activation, gate, addend and residual: frt.dense/1, frt.norm_dense/1,
// frt.norm_geglu/1, frt.norm_qkv/1.
//
//   few rows (a chunk of actions)   linear/skinny_gemm.cu: one kernel, bound by reading the weights
//   many rows (images, prompts)     dense/sm90/wgmma.cu on Hopper: one kernel, bound by arithmetic
//   everything else                 the product to f32 sums, or straight to y where nothing is
//                                   added, then one pass over the sums
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
#include "../common/row_norm.cuh"
#include "../common/weight.hpp"
#include "../linear/product.hpp"
#include "../linear/skinny_gemm.hpp"
#include "../registry.hpp"
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

bool aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
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

std::size_t round_up(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

SkinnyProduct skinny_product(const Product& product) {
  return {product.rows, product.weight.cols, product.row_count, product.x, product.x_stride};
}

bool plain_bf16(const Product& product) {
  return product.x_dtype == FRT_DTYPE_BF16 && product.weight.form == WeightForm::kBf16;
}

bool skinny_fits(const Product& product) {
  return plain_bf16(product) && skinny_gemm_supports(skinny_product(product), product.weight.data);
}

// Products and what follows them in one kernel. False, having done nothing, where they do not go
// together.
bool together(Stream& stream, std::span<const Product> parts, std::span<const Finish> finishes) {
  std::array<SkinnyPart, FRT_DENSE_PARTS_MAX> all{};
  bool any = parts.front().rows > kGemvRows;
  bool few = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!plain_bf16(parts[i])) return false;
    few = few && skinny_fits(parts[i]);
    any = any || needed(finishes[i]);
    const Finish& f = finishes[i];
    all[i] = {parts[i].weight.data, f.outputs,    f.bias,    f.activation, f.gate,    f.addend,
              f.addend_rows,        f.accumulate, f.y_dtype, f.y,          f.y_stride};
  }
  const SkinnyProduct product = skinny_product(parts.front());
  const std::span<const SkinnyPart> used(all.data(), parts.size());
  if (few && any) {
    skinny_gemm_products(stream, product, used);
    return true;
  }
  if (!wgmma_supports(stream.device(), product, used)) return false;
  wgmma_products(stream, product, used);
  return true;
}

// Products of one x and what follows each.
void products(Stream& stream, std::span<Product> parts, std::span<Finish> finishes) {
  if (together(stream, parts, finishes)) return;
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
  products(stream, {&part, 1}, {&last, 1});
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
  const auto rotate = [&] {
    if (rope) run_operator(stream, FRT_OP_ROPE, *rope);
  };
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
    if (rope && skinny_fp8_qkv(stream, input, all, *rope)) return;
    fp8_products(stream, input, all);
    return rotate();
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
  products(stream, {parts.data(), count}, {finishes.data(), count});
  rotate();
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
  std::array<Product, 2> parts;
  parts[0] = {args.dtype, args.dtype,       args.rows, args.row_count, x,
              cols,       args.gate_weight, args.gate, width,          false};
  parts[1] = parts[0];
  parts[1].weight = args.up_weight;
  parts[1].y = args.h;
  if (plain_bf16(parts[0]) && plain_bf16(parts[1])) {
    SkinnyPart gate{};
    gate.weight = args.gate_weight.data;
    gate.outputs = width;
    gate.activation = FRT_ACTIVATION_GELU;
    gate.y_dtype = args.dtype;
    gate.y = args.h;
    gate.y_stride = width;
    SkinnyPart up = gate;
    up.weight = args.up_weight.data;
    const SkinnyProduct product = skinny_product(parts[0]);
    if (skinny_fits(parts[0]) && skinny_fits(parts[1])) {
      return skinny_gemm_gate_up(stream, product, gate, up.weight);
    }
    const std::array both = {gate, up};
    if (wgmma_supports(stream.device(), product, both)) {
      return wgmma_gate_up(stream, product, gate, up.weight);
    }
  }
  if (args.rows <= kGemvRows) {
    gemv_products(stream, parts);
  } else {
    gemm_products(stream, parts);
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

}  // namespace

void register_dense(KernelList& list) {
  const frt_dtype_set types = kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3);
  list.add<frt_dense_args>(FRT_OP_DENSE, {types, kFloatTypes}, kWeightFormats, dense);
  list.add<frt_norm_dense_args>(FRT_OP_NORM_DENSE, types, kWeightFormats, norm_dense);
  list.add<frt_norm_geglu_args>(FRT_OP_NORM_GEGLU, types, kWeightFormats, norm_geglu);
  list.add<frt_norm_qkv_args>(FRT_OP_NORM_QKV, types, kWeightFormats, norm_qkv);
}

}  // namespace frt::cuda
