// SPDX-License-Identifier: Apache-2.0
// Products of e4m3 by e4m3, and what follows them: the FP8 half of frt.dense/1, frt.norm_dense/1
// and frt.norm_geglu/1.
//
//   up to 64 rows   skinny_fp8.cu: the weights stream once, everything in one kernel
//   hundreds        dense/sm90/wgmma.cu on Hopper, weights with one scale: everything in one kernel
//   more            cuBLASLt, e4m3 by e4m3 without scales in memory (they are one factor), straight
//                   to y where a factor and += are all that follows; otherwise to sums, and one
//                   pass over them. Gate and up that lie together are one product.
//   any             a block per row and 64 outputs: odd sizes, unaligned memory, no library
//
// Floor, 544 rows of a prefix layer: 120 GFLOP at about 1300 TFLOP/s, 92 us.
#include "fp8.cuh"

#include <algorithm>

#include "../../blas.hpp"
#include "../common/launch.cuh"
#include "sm90/wgmma.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kOutputsEach = 8;  // of a warp of the general kernel

std::size_t round_up(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

bool aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

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
         (part.weight.form != WeightForm::kFp8Channel || aligned(part.weight.scale));
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
         part.y_scale == 0 && part.weight.form == WeightForm::kFp8Tensor && aligned(part.y) &&
         bytes % 16 == 0;
}

BlasShape part_shape(const Fp8Input& in, const Fp8Part& part) {
  return direct(part) ? shape_of(in, part.weight.rows, part.y_dtype, part.y_stride, part.accumulate)
                      : shape_of(in, part.weight.rows, FRT_DTYPE_F32, part.weight.rows, false);
}

bool library_fits(Blas* blas, const Fp8Input& in, const Fp8Part& part) {
  return blas && library_supports(in, part.weight) && blas->offers(part_shape(in, part));
}

void multiply(Stream& stream, Blas& blas, const BlasShape& shape, const Fp8Input& in,
              const void* weight, float factor, void* y, void* workspace) {
  BlasOperands operands{in.x, nullptr, weight, nullptr, y, workspace};
  operands.factor = factor;
  blas.multiply(stream, shape, operands);
}

}  // namespace

Fp8Factors fp8_factors(const Fp8Input& input, const Weight& weight) {
  if (weight.form == WeightForm::kFp8Tensor) {
    return {input.scale * weight.global_scale, FRT_DTYPE_F32, nullptr};
  }
  return {input.scale, weight.scale_dtype, weight.scale};
}

void fp8_products(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts) {
  const bool chunk = std::all_of(parts.begin(), parts.end(), [&](const Fp8Part& part) {
    return skinny_fp8_supports(input, part.weight);
  });
  if (chunk) return skinny_fp8_products(stream, input, parts);
  if (wgmma_supports(stream.device(), input, parts)) return wgmma_products(stream, input, parts);
  Blas* blas = Blas::find(stream.device());
  std::size_t sums = 0;
  bool library = false;
  for (const Fp8Part& part : parts) {
    if (!library_fits(blas, input, part)) continue;
    library = true;
    if (direct(part)) continue;
    sums = std::max(sums, static_cast<std::size_t>(input.rows) *
                              static_cast<std::size_t>(part.weight.rows) * sizeof(float));
  }
  char* workspace = nullptr;
  if (library) {
    workspace = static_cast<char*>(stream.scratch(Blas::kWorkspaceBytes + round_up(sums)));
  }
  auto* room = reinterpret_cast<float*>(workspace + Blas::kWorkspaceBytes);
  for (const Fp8Part& part : parts) {
    const Fp8Factors factors = fp8_factors(input, part.weight);
    if (!library_fits(blas, input, part)) {
      launch(stream, any_grid(input, part.weight.rows), any_kernel, input, part, factors);
      continue;
    }
    const bool straight = direct(part);
    multiply(stream, *blas, part_shape(input, part), input, part.weight.data,
             straight ? factors.all : 1.0f, straight ? part.y : room, workspace);
    if (!straight) {
      const bool vector = vector_part(part);
      launch(stream, pass_grid(input.rows, part.weight.rows, vector),
             vector ? finish_kernel<8> : finish_kernel<1>, room, input.rows, input.row_count, part,
             factors);
    }
  }
}

void fp8_geglu(Stream& stream, const Fp8Input& input, const Fp8Part& gate, const Weight& up) {
  if (skinny_fp8_supports(input, gate.weight) && skinny_fp8_supports(input, up)) {
    return skinny_fp8_geglu(stream, input, gate, up);
  }
  if (wgmma_supports_gate_up(stream.device(), input, gate, up)) {
    return wgmma_gate_up(stream, input, gate, up);
  }
  const int32_t width = gate.weight.rows;
  const Weight& first = gate.weight;
  Blas* blas = Blas::find(stream.device());
  const bool tensors = first.form == WeightForm::kFp8Tensor && up.form == WeightForm::kFp8Tensor;
  const bool together =
      tensors && first.global_scale == up.global_scale &&
      static_cast<const char*>(first.data) + static_cast<int64_t>(width) * input.inputs == up.data;
  const int32_t outputs = together ? 2 * width : width;
  const BlasShape shape = shape_of(input, outputs, FRT_DTYPE_BF16, outputs, false);
  if (!blas || !tensors || !library_supports(input, first) || !library_supports(input, up) ||
      !blas->offers(shape)) {
    launch(stream, any_grid(input, width), any_geglu_kernel, input, gate, fp8_factors(input, first),
           up.data, fp8_factors(input, up));
    return;
  }
  const std::size_t bytes =
      static_cast<std::size_t>(input.rows) * static_cast<std::size_t>(2 * width) * sizeof(bf16);
  char* workspace = static_cast<char*>(stream.scratch(Blas::kWorkspaceBytes + bytes));
  auto* room = reinterpret_cast<bf16*>(workspace + Blas::kWorkspaceBytes);
  bf16* other = together ? room + width : room + static_cast<int64_t>(input.rows) * width;
  multiply(stream, *blas, shape, input, first.data, input.scale * first.global_scale, room,
           workspace);
  if (!together) {
    multiply(stream, *blas, shape, input, up.data, input.scale * up.global_scale, other, workspace);
  }
  const bool vector = width % 8 == 0 && vector_rows(gate.y, gate.y_stride);
  launch(stream, pass_grid(input.rows, width, vector), vector ? geglu_kernel<8> : geglu_kernel<1>,
         room, other, int64_t{outputs}, input.rows, input.row_count, gate);
}

}  // namespace frt::cuda
