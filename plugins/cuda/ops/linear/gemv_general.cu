// SPDX-License-Identifier: Apache-2.0
// The general kernel of GEMVs: what the streaming kernel does not take - f32 activations
// or weights, rows whose bytes are no multiple of 16, FP8 blocks of odd sizes. A warp computes one
// output for four rows of x at a time, in f32, each lane every 32nd column: correct for everything,
// tuned for nothing. A row's sum does not depend on the other rows.
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "gemv.hpp"

namespace frt::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kRows = 4;  // of x at a time

__device__ __forceinline__ float load_scale(const Weight& weight, int64_t index) {
  return weight.scale_dtype == FRT_DTYPE_BF16
             ? to_float(static_cast<const bf16*>(weight.scale)[index])
             : static_cast<const float*>(weight.scale)[index];
}

__device__ __forceinline__ float load_e4m3(const void* data, int64_t index) {
  f8e4m3 value;
  value.__x = static_cast<const uint8_t*>(data)[index];
  return to_float(value);
}

__device__ __forceinline__ float load_e2m1(const void* data, int64_t index) {
  const uint32_t code = static_cast<const uint8_t*>(data)[index / 2] >> index % 2 * 4 & 15u;
  // As e4m3, exponent and mantissa in the same places but for the bias: 2^-6 of the value.
  f8e4m3 value;
  value.__x = static_cast<uint8_t>((code & 8u) << 4 | (code & 7u) << 2);
  return to_float(value) * 64.0f;
}

// The weight at (row, col), without what row_factor() holds.
__device__ __forceinline__ float load_weight(const Weight& weight, int64_t row, int64_t col) {
  const int64_t index = row * weight.cols + col;
  switch (weight.type) {
    case WeightType::kF32:
      return static_cast<const float*>(weight.data)[index];
    case WeightType::kBf16:
      return to_float(static_cast<const bf16*>(weight.data)[index]);
    case WeightType::kFp8Block: {
      const int64_t blocks = (weight.cols + int64_t{weight.block_cols} - 1) / weight.block_cols;
      return load_e4m3(weight.data, index) *
             load_scale(weight, row / weight.block_rows * blocks + col / weight.block_cols);
    }
    case WeightType::kNvfp4:
      return load_e2m1(weight.data, index) *
             load_e4m3(weight.scale, row * (weight.cols / 16) + col / 16);
    default:
      return load_e4m3(weight.data, index);
  }
}

__device__ __forceinline__ float row_factor(const Weight& weight, int64_t row) {
  switch (weight.type) {
    case WeightType::kFp8Channel:
      return load_scale(weight, row);
    case WeightType::kFp8Tensor:
    case WeightType::kNvfp4:
      return weight.global_scale;
    default:
      return 1.0f;
  }
}

template <class X, class Y>
__global__ void __launch_bounds__(kWarps * 32) gemv_general(const Product a) {
  pdl_trigger();
  pdl_wait();
  const int rows = active_rows(a.rows, a.row_count);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (output >= a.weight.rows) return;
  const float factor = row_factor(a.weight, output);
  for (int first = 0; first < rows; first += kRows) {
    const X* x[kRows];
    float sums[kRows] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      x[i] = static_cast<const X*>(a.x) + min(first + i, rows - 1) * a.x_stride;
    }
    for (int col = lane; col < a.weight.cols; col += 32) {
      const float weight = load_weight(a.weight, output, col);
#pragma unroll
      for (int i = 0; i < kRows; ++i) sums[i] += to_float(x[i][col]) * weight;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float value = warp_sum(sums[i]) * factor;
      if (lane != 0 || first + i >= rows) continue;
      Y* const y = static_cast<Y*>(a.y) + (first + i) * a.y_stride + output;
      *y = from_float<Y>(a.accumulate ? to_float(*y) + value : value);
    }
  }
}

}  // namespace

void launch_gemv_general(Stream& stream, const Product& product) {
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(product.weight.rows, kWarps))),
                  dim3(kWarps * 32)};
  const bool y_float = product.y_dtype == FRT_DTYPE_F32;
  if (product.x_dtype == FRT_DTYPE_F32) {
    launch(stream, grid, y_float ? gemv_general<float, float> : gemv_general<float, bf16>, product);
  } else {
    launch(stream, grid, y_float ? gemv_general<bf16, float> : gemv_general<bf16, bf16>, product);
  }
}

}  // namespace frt::cuda
