// SPDX-License-Identifier: Apache-2.0
// Products of e4m3 by e4m3, and what follows them: the FP8 half of frt.dense/1, frt.norm_dense/1,
// frt.norm_geglu/1 and frt.norm_qkv/1.
//
//   skinny   up to 64 rows: the weights stream once, everything in one kernel (skinny_fp8.cu)
//   wgmma    hundreds of rows on sm_90, weights with one scale: everything in one kernel
//            (sm90/wgmma.cu)
//   library  more: cuBLASLt, e4m3 by e4m3 without scales in memory (they are one factor), straight
//   to
//            y where a factor and += are all that follows; otherwise to sums, and one pass over
//            them. Gate and up that lie together are one product.
//   general  a block per row and 64 outputs: odd sizes, unaligned memory, no library
//
// Floor, 544 rows of a prefix layer: 120 GFLOP at about 1300 TFLOP/s, 92 us.
#include "fp8.cuh"

#include <algorithm>

#include "../../blas.hpp"
#include "../../kernel_list.hpp"
#include "../common/call.hpp"
#include "../common/launch.cuh"
#include "../common/pieces.hpp"
#include "../variants.hpp"
#include "sm90/wgmma.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kOutputsEach = 8;  // of a warp of the general kernel

// ---- any sizes -------------------------------------------------------------------------------

__device__ __forceinline__ float e4m3_at(const void* data, int64_t at) {
  return float_of_e4m3(static_cast<const uint8_t*>(data)[at]);
}

// The sum of output `output` of row `row`, in every lane.
__device__ __forceinline__ float dot(const Fp8Input& in, const void* weight, int row, int output,
                                     int lane) {
  float sum = 0;
  for (int k = lane; k < in.inputs; k += 32) {
    sum += e4m3_at(in.x, row * in.x_stride + k) *
           e4m3_at(weight, static_cast<int64_t>(output) * in.inputs + k);
  }
  return warp_sum(sum);
}

// Grid: (outputs, rows).
__global__ void __launch_bounds__(kThreads)
    any_kernel(const __grid_constant__ Fp8Input in, const __grid_constant__ Fp8Part part,
               const __grid_constant__ Fp8Factors factors) {
  pdl_trigger();
  pdl_wait();
  const int rows = active_rows(in.rows, in.row_count);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int output0 = (static_cast<int>(blockIdx.x) * kWarps + warp) * kOutputsEach;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    for (int output = output0; output < min(output0 + kOutputsEach, part.weight.rows); ++output) {
      float z[1] = {dot(in, part.weight.data, row, output, lane)};
      if (lane == 0) fp8_finish(part, factors, row, output, z);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    any_geglu_kernel(const __grid_constant__ Fp8Input in, const __grid_constant__ Fp8Part gate,
                     const __grid_constant__ Fp8Factors factors, const void* up,
                     const __grid_constant__ Fp8Factors up_factors) {
  pdl_trigger();
  pdl_wait();
  const int rows = active_rows(in.rows, in.row_count);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int output0 = (static_cast<int>(blockIdx.x) * kWarps + warp) * kOutputsEach;
  const auto factor = [](const Fp8Factors& f, int output) {
    if (!f.outputs) return f.all;
    float own[1];
    load_values(f.dtype, f.outputs, output, own);
    return f.all * own[0];
  };
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    for (int output = output0; output < min(output0 + kOutputsEach, gate.weight.rows); ++output) {
      const float a = dot(in, gate.weight.data, row, output, lane) * factor(factors, output);
      const float b = dot(in, up, row, output, lane) * factor(up_factors, output);
      float z[1] = {gelu(a) * b};
      if (lane == 0) fp8_store(gate, row * gate.y_stride + output, z);
    }
  }
}

Grid any_grid(const Fp8Input& in, int32_t outputs) {
  return {dim3(static_cast<unsigned>(ceil_div(outputs, kWarps * kOutputsEach)),
               static_cast<unsigned>(std::min(in.rows, 65535))),
          dim3(kThreads)};
}

// ---- the passes over sums --------------------------------------------------------------------

// Grid: (columns, rows).
template <int N>
__global__ void __launch_bounds__(kThreads)
    finish_kernel(const float* sums, int rows, const int32_t* row_count,
                  const __grid_constant__ Fp8Part part,
                  const __grid_constant__ Fp8Factors factors) {
  pdl_trigger();
  pdl_wait();
  const int outputs = part.weight.rows;
  const int column = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * N;
  if (column >= outputs) return;
  const int active = active_rows(rows, row_count);
  for (int row = static_cast<int>(blockIdx.y); row < active; row += static_cast<int>(gridDim.y)) {
    float z[N];
    load_typed(sums + static_cast<int64_t>(row) * outputs + column, z);
    fp8_finish(part, factors, row, column, z);
  }
}

// y = gelu(gate) * up, of (rows, stride) bf16 each, factors applied.
template <int N>
__global__ void __launch_bounds__(kThreads)
    geglu_kernel(const bf16* gate, const bf16* up, int64_t stride, int rows,
                 const int32_t* row_count, const __grid_constant__ Fp8Part part) {
  pdl_trigger();
  pdl_wait();
  const int column = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * N;
  if (column >= part.weight.rows) return;
  const int active = active_rows(rows, row_count);
  for (int row = static_cast<int>(blockIdx.y); row < active; row += static_cast<int>(gridDim.y)) {
    float a[N], b[N];
    load_typed(gate + row * stride + column, a);
    load_typed(up + row * stride + column, b);
#pragma unroll
    for (int i = 0; i < N; ++i) a[i] = gelu(a[i]) * b[i];
    fp8_store(part, row * part.y_stride + column, a);
  }
}

// Whether rows of `part` can be moved eight values at a time.
bool vector_part(const Fp8Part& part) {
  return part.weight.rows % 8 == 0 && vector_rows(part.y, part.y_stride) && aligned(part.bias) &&
         aligned(part.gate.rows) && aligned(part.gate.clean) && aligned(part.addend) &&
         (part.weight.type != WeightType::kFp8Channel || aligned(part.weight.scale));
}

Grid pass_grid(int32_t rows, int32_t outputs, bool vector) {
  return {dim3(static_cast<unsigned>(ceil_div(outputs, kThreads * (vector ? 8 : 1))),
               static_cast<unsigned>(std::min(rows, 65535))),
          dim3(kThreads)};
}

// ---- the library -----------------------------------------------------------------------------

bool library_supports(const Fp8Input& in, const Weight& weight) {
  return in.rows > kSkinnyFp8Rows && in.inputs % 16 == 0 && weight.rows % 16 == 0 &&
         aligned(in.x) && in.x_stride % 16 == 0 && aligned(weight.data);
}

BlasShape shape_of(const Fp8Input& in, int32_t outputs, frt_dtype y_dtype, int64_t y_stride,
                   bool accumulate) {
  return {BlasTypes::kFp8Tensor, y_dtype, accumulate, in.rows, outputs, in.inputs,
          in.x_stride,           y_stride};
}

// Nothing follows but a factor and +=.
bool direct(const Fp8Part& part) {
  const int64_t bytes = part.y_stride * dtype_bits(part.y_dtype) / 8;
  return !part.bias && part.activation == FRT_ACTIVATION_NONE && !part.gate.rows && !part.addend &&
         part.y_scale == 0 && part.weight.type == WeightType::kFp8Tensor && aligned(part.y) &&
         bytes % 16 == 0;
}

BlasShape part_shape(const Fp8Input& in, const Fp8Part& part) {
  return direct(part) ? shape_of(in, part.weight.rows, part.y_dtype, part.y_stride, part.accumulate)
                      : shape_of(in, part.weight.rows, FRT_DTYPE_F32, part.weight.rows, false);
}

void multiply(Stream& stream, Blas& blas, const BlasShape& shape, const Fp8Input& in,
              const void* weight, float factor, void* y, void* workspace) {
  BlasOperands operands{in.x, nullptr, weight, nullptr, y, workspace};
  operands.factor = factor;
  blas.multiply(stream, shape, operands);
}

}  // namespace

Fp8Factors fp8_factors(const Fp8Input& input, const Weight& weight) {
  if (weight.type == WeightType::kFp8Tensor) {
    return {input.scale * weight.global_scale, FRT_DTYPE_F32, nullptr};
  }
  return {input.scale, weight.scale_dtype, weight.scale};
}

namespace {

// ---- a product that is a launch of its own -----------------------------------------------------

struct Fp8Single {
  const Fp8Input& input;
  const Fp8Part& part;
  char* workspace;  // of the library, with room for sums behind it
};
using Fp8SingleCall = const Fp8Single;

bool supports_library(Device& device, Fp8SingleCall& call) {
  return library_supports(call.input, call.part.weight) &&
         Blas::find(device)->offers(part_shape(call.input, call.part));
}
void launch_library(Stream& stream, Fp8SingleCall& call) {
  const auto& [input, part, workspace] = call;
  const Fp8Factors factors = fp8_factors(input, part.weight);
  const bool straight = direct(part);
  auto* room = reinterpret_cast<float*>(workspace + Blas::kWorkspaceBytes);
  multiply(stream, *Blas::find(stream.device()), part_shape(input, part), input, part.weight.data,
           straight ? factors.all : 1.0f, straight ? part.y : room, workspace);
  if (straight) return;
  const bool vector = vector_part(part);
  launch(stream, pass_grid(input.rows, part.weight.rows, vector),
         vector ? finish_kernel<8> : finish_kernel<1>, room, input.rows, input.row_count, part,
         factors);
}
void launch_any(Stream& stream, Fp8SingleCall& call) {
  launch(stream, any_grid(call.input, call.part.weight.rows), any_kernel, call.input, call.part,
         fp8_factors(call.input, call.part.weight));
}
constexpr Variant<Fp8SingleCall> kSingleVariants[] = {
    {"library", {feature::kLibrary}, supports_library, launch_library},
    {"general", {}, nullptr, launch_any},
};
constexpr Variants<Fp8SingleCall> kSingleTable{"fp8 product", kSingleVariants};

// ---- products of one x -------------------------------------------------------------------------

struct Fp8Call {
  const Fp8Input& input;
  std::span<const Fp8Part> parts;
};

bool supports_skinny(Device&, Fp8Call& call) {
  return std::ranges::all_of(call.parts, [&](const Fp8Part& part) {
    return skinny_fp8_supports(call.input, part.weight);
  });
}
bool supports_wgmma(Device&, Fp8Call& call) {
  return wgmma_supports(call.input, call.parts);
}
void launch_singles(Stream& stream, Fp8Call& call) {
  std::size_t sums = 0;
  bool library = false;
  for (const Fp8Part& part : call.parts) {
    const Fp8Single single{call.input, part, nullptr};
    if (&select_variant(stream.device(), kSingleTable, single) != &kSingleVariants[0]) continue;
    library = true;
    if (direct(part)) continue;
    sums = std::max(sums, static_cast<std::size_t>(call.input.rows) *
                              static_cast<std::size_t>(part.weight.rows) * sizeof(float));
  }
  char* workspace = nullptr;
  if (library) {
    workspace = static_cast<char*>(stream.scratch(Blas::kWorkspaceBytes + round_up(sums)));
  }
  for (const Fp8Part& part : call.parts) {
    const Fp8Single single{call.input, part, workspace};
    run_variant(stream, kSingleTable, single);
  }
}

constexpr FeatureSet kWgmmaAndCopies =
    feature::kWgmma | feature::kClusters | feature::kBulkCopies | feature::kCoResident;
constexpr Variant<Fp8Call> kProductVariants[] = {
    {"skinny",
     {},
     supports_skinny,
     [](Stream& stream, Fp8Call& call) { skinny_fp8_products(stream, call.input, call.parts); }},
    {"wgmma",
     {kWgmmaAndCopies},
     supports_wgmma,
     [](Stream& stream, Fp8Call& call) { wgmma_products(stream, call.input, call.parts); }},
    {"one-by-one", {}, nullptr, launch_singles},
};
constexpr Variants<Fp8Call> kProductTable{FRT_OP_DENSE " fp8", kProductVariants};

// ---- queries, keys and values ------------------------------------------------------------------

struct QkvCall {
  Fp8Call products;
  const frt_rope_args& rope;
};

constexpr Variant<QkvCall> kQkvVariants[] = {
    {"skinny-rotated",
     {},
     [](Device&, QkvCall& call) {
       return skinny_fp8_supports_qkv(call.products.input, call.products.parts, call.rope);
     },
     [](Stream& stream, QkvCall& call) {
       skinny_fp8_qkv(stream, call.products.input, call.products.parts, call.rope);
     }},
    {"composed",
     {},
     nullptr,
     [](Stream& stream, QkvCall& call) {
       run_variant(stream, kProductTable, call.products);
       run_operator(stream, FRT_OP_ROPE, call.rope);
     }},
};
constexpr Variants<QkvCall> kQkvTable{FRT_OP_NORM_QKV " fp8", kQkvVariants};

// ---- gate and up -------------------------------------------------------------------------------

struct GegluCall {
  const Fp8Input& input;
  const Fp8Part& gate;
  const Weight& up;
  bool together;  // gate and up are one matrix, with one scale

  BlasShape shape() const {
    const int32_t outputs = together ? 2 * gate.weight.rows : gate.weight.rows;
    return shape_of(input, outputs, FRT_DTYPE_BF16, outputs, false);
  }
};

bool supports_skinny_geglu(Device&, GegluCall& call) {
  return skinny_fp8_supports(call.input, call.gate.weight) &&
         skinny_fp8_supports(call.input, call.up);
}
bool supports_wgmma_geglu(Device&, GegluCall& call) {
  return wgmma_supports_gate_up(call.input, call.gate, call.up);
}
bool supports_library_geglu(Device& device, GegluCall& call) {
  return call.gate.weight.type == WeightType::kFp8Tensor &&
         call.up.type == WeightType::kFp8Tensor && library_supports(call.input, call.gate.weight) &&
         library_supports(call.input, call.up) && Blas::find(device)->offers(call.shape());
}
void launch_library_geglu(Stream& stream, GegluCall& call) {
  const auto& [input, gate, up, together] = call;
  const int32_t width = gate.weight.rows;
  const BlasShape shape = call.shape();
  Blas& blas = *Blas::find(stream.device());
  const std::size_t bytes =
      static_cast<std::size_t>(input.rows) * static_cast<std::size_t>(2 * width) * sizeof(bf16);
  char* workspace = static_cast<char*>(stream.scratch(Blas::kWorkspaceBytes + bytes));
  auto* room = reinterpret_cast<bf16*>(workspace + Blas::kWorkspaceBytes);
  bf16* other = together ? room + width : room + static_cast<int64_t>(input.rows) * width;
  multiply(stream, blas, shape, input, gate.weight.data, input.scale * gate.weight.global_scale,
           room, workspace);
  if (!together) {
    multiply(stream, blas, shape, input, up.data, input.scale * up.global_scale, other, workspace);
  }
  const bool vector = width % 8 == 0 && vector_rows(gate.y, gate.y_stride);
  launch(stream, pass_grid(input.rows, width, vector), vector ? geglu_kernel<8> : geglu_kernel<1>,
         room, other, int64_t{shape.outputs}, input.rows, input.row_count, gate);
}
void launch_any_geglu(Stream& stream, GegluCall& call) {
  launch(stream, any_grid(call.input, call.gate.weight.rows), any_geglu_kernel, call.input,
         call.gate, fp8_factors(call.input, call.gate.weight), call.up.data,
         fp8_factors(call.input, call.up));
}

constexpr Variant<GegluCall> kGegluVariants[] = {
    {"skinny",
     {},
     supports_skinny_geglu,
     [](Stream& stream, GegluCall& call) {
       skinny_fp8_geglu(stream, call.input, call.gate, call.up);
     }},
    {"wgmma",
     {kWgmmaAndCopies},
     supports_wgmma_geglu,
     [](Stream& stream, GegluCall& call) {
       wgmma_gate_up(stream, call.input, call.gate, call.up);
     }},
    {"library", {feature::kLibrary}, supports_library_geglu, launch_library_geglu},
    {"general", {}, nullptr, launch_any_geglu},
};
constexpr Variants<GegluCall> kGegluTable{FRT_OP_NORM_GEGLU " fp8", kGegluVariants};

}  // namespace

void fp8_products(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts) {
  Fp8Call call{input, parts};
  run_variant(stream, kProductTable, call);
}

void fp8_qkv(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts,
             const frt_rope_args& rope) {
  QkvCall call{{input, parts}, rope};
  run_variant(stream, kQkvTable, call);
}

void fp8_geglu(Stream& stream, const Fp8Input& input, const Fp8Part& gate, const Weight& up) {
  const bool tensors =
      gate.weight.type == WeightType::kFp8Tensor && up.type == WeightType::kFp8Tensor;
  const auto* behind = static_cast<const char*>(gate.weight.data) +
                       static_cast<int64_t>(gate.weight.rows) * input.inputs;
  GegluCall call{input, gate, up,
                 tensors && gate.weight.global_scale == up.global_scale && behind == up.data};
  run_variant(stream, kGegluTable, call);
}

void register_dense_fp8(KernelList& list) {
  list.add_variants(kSingleTable);
  list.add_variants(kProductTable);
  list.add_variants(kQkvTable);
  list.add_variants(kGegluTable);
}

}  // namespace frt::cuda
