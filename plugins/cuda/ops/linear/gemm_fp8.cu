// SPDX-License-Identifier: Apache-2.0
// Activations in FP8, rounded as they are needed: e4m3 with one scale per 128 values of a row, for
// weights in blocks of 128 x 128, or per row, for weights with a scale per output or one for all.
//
// Rounding reads two bytes per value and writes one: 8192 rows of 5120 are 126 MB, 30 us, against
// 500 us or more for a product of the 27B. It is done once for all products of one x.
//
// Per group: eight values per lane, sixteen lanes per group, so a warp has two groups and each lane
// one load of 16 bytes. Per row: a block, the row twice, the second time from L2.
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/pieces.hpp"
#include "gemm_fp8.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 128;
constexpr float kLargest = 448.0f;  // of e4m3

using Eight = Vector<__nv_bfloat162, 4>;

__device__ __forceinline__ float largest_of(const Eight& values) {
  float largest = 0;
#pragma unroll
  for (const __nv_bfloat162 pair : values.values) {
    const float2 two = __bfloat1622float2(pair);
    largest = fmaxf(largest, fmaxf(fabsf(two.x), fabsf(two.y)));
  }
  return largest;
}

__device__ __forceinline__ void store_fp8(void* target, const Eight& values, float factor) {
  Vector<__nv_fp8x2_storage_t, 4> packed;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = __bfloat1622float2(values.values[i]);
    packed.values[i] = __nv_cvt_float2_to_fp8x2(make_float2(two.x * factor, two.y * factor),
                                                __NV_SATFINITE, __NV_E4M3);
  }
  *static_cast<Vector<__nv_fp8x2_storage_t, 4>*>(target) = packed;
}

__global__ void __launch_bounds__(kThreads)
    quantise_groups(const bf16* x, int64_t x_stride, const __grid_constant__ Fp8Rows out) {
  pdl_trigger();
  pdl_wait();
  const int groups = out.inputs / kGroup;
  const int64_t group = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 16;
  const int row = static_cast<int>(group / groups), place = static_cast<int>(group % groups);
  const bool inside = row < out.rows;  // whole half warps
  const int col = place * kGroup + threadIdx.x % 16 * 8;
  Eight values{};
  if (inside) values = *reinterpret_cast<const Eight*>(x + row * x_stride + col);
  float largest = largest_of(values);
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, offset));
  }
  if (!inside) return;
  const float scale = largest > 0 ? largest / kLargest : 1.0f;
  store_fp8(static_cast<uint8_t*>(out.values) + static_cast<int64_t>(row) * out.inputs + col,
            values, 1.0f / scale);
  if (threadIdx.x % 16 == 0) out.scale[static_cast<int64_t>(place) * out.rows + row] = scale;
}

__global__ void __launch_bounds__(kThreads)
    quantise_whole_rows(const bf16* x, int64_t x_stride, const __grid_constant__ Fp8Rows out) {
  __shared__ float partial[kThreads / 32];
  pdl_trigger();
  pdl_wait();
  const int row = blockIdx.x;
  const bf16* source = x + row * x_stride;
  float largest = 0;
  for (int col = threadIdx.x * 8; col < out.inputs; col += kThreads * 8) {
    largest = fmaxf(largest, largest_of(*reinterpret_cast<const Eight*>(source + col)));
  }
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = largest;
  __syncthreads();
  largest = warp_max(partial[threadIdx.x % (kThreads / 32)]);
  const float scale = largest > 0 ? largest / kLargest : 1.0f;
  auto* target = static_cast<uint8_t*>(out.values) + static_cast<int64_t>(row) * out.inputs;
  for (int col = threadIdx.x * 8; col < out.inputs; col += kThreads * 8) {
    store_fp8(target + col, *reinterpret_cast<const Eight*>(source + col), 1.0f / scale);
  }
  if (threadIdx.x == 0) out.scale[row] = scale;
}

// (height, width) scales, or one for all, into (height, padded_width) f32.
__global__ void __launch_bounds__(kThreads)
    dequantise_scales(const __grid_constant__ Weight weight, int height, int width,
                      int padded_width, float* out) {
  pdl_trigger();
  pdl_wait();
  const int at = blockIdx.x * kThreads + threadIdx.x;
  if (at >= height * padded_width) return;
  const int line = at / padded_width, place = at % padded_width;
  float value = 0;
  if (weight.type == WeightType::kFp8Tensor) {
    value = weight.global_scale;
  } else if (place < width) {
    const int source = line * width + place;
    value = weight.scale_dtype == FRT_DTYPE_F32
                ? static_cast<const float*>(weight.scale)[source]
                : to_float(static_cast<const bf16*>(weight.scale)[source]);
  }
  out[at] = value;
}

struct ScaleSize {
  int32_t height, width, padded_width;
};

ScaleSize scale_size(const Weight& weight) {
  if (weight.type != WeightType::kFp8Block) return {weight.rows, 1, 1};
  const auto width = static_cast<int32_t>(ceil_div(weight.cols, kGroup));
  return {static_cast<int32_t>(ceil_div(weight.rows, kGroup)), width, (width + 3) / 4 * 4};
}

}  // namespace

std::size_t Fp8Rows::value_bytes(int32_t rows, int32_t inputs) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(inputs);
}

std::size_t Fp8Rows::scale_bytes(BlasTypes types, int32_t rows, int32_t inputs) {
  const auto groups =
      types == BlasTypes::kFp8Block ? static_cast<std::size_t>(inputs / kGroup) : std::size_t{1};
  return static_cast<std::size_t>(rows) * groups * sizeof(float);
}

bool fp8_gemm_supports(const Product& product, BlasTypes& types) {
  const Weight& weight = product.weight;
  const std::size_t y_bytes = product.y_dtype == FRT_DTYPE_F32 ? 4 : 2;
  if (product.x_dtype != FRT_DTYPE_BF16 || weight.cols % kGroup != 0 || weight.rows % 16 != 0 ||
      !aligned(product.x) || product.x_stride % 8 != 0 || !aligned(weight.data) ||
      !aligned(product.y) || static_cast<std::size_t>(product.y_stride) * y_bytes % 16 != 0) {
    return false;
  }
  if (weight.type == WeightType::kFp8Block && weight.block_rows == kGroup &&
      weight.block_cols == kGroup) {
    types = BlasTypes::kFp8Block;
    return true;
  }
  if (weight.type == WeightType::kFp8Tensor || weight.type == WeightType::kFp8Channel) {
    types = BlasTypes::kFp8Channel;
    return true;
  }
  return false;
}

void quantise_rows(Stream& stream, const void* x, int64_t x_stride, const Fp8Rows& out) {
  const auto* source = static_cast<const bf16*>(x);
  if (out.types == BlasTypes::kFp8Block) {
    const int64_t groups = static_cast<int64_t>(out.rows) * (out.inputs / kGroup);
    launch(stream, {dim3(static_cast<unsigned>(ceil_div(groups, kThreads / 16))), dim3(kThreads)},
           quantise_groups, source, x_stride, out);
  } else {
    launch(stream, {dim3(static_cast<unsigned>(out.rows)), dim3(kThreads)}, quantise_whole_rows,
           source, x_stride, out);
  }
}

std::size_t fp8_scale_bytes(const Weight& weight) {
  const ScaleSize size = scale_size(weight);
  return static_cast<std::size_t>(size.height) * static_cast<std::size_t>(size.padded_width) *
         sizeof(float);
}

const float* fp8_weight_scales(Stream& stream, const Weight& weight, float* room) {
  const ScaleSize size = scale_size(weight);
  if (weight.type != WeightType::kFp8Tensor && weight.scale_dtype == FRT_DTYPE_F32 &&
      size.width == size.padded_width && aligned(weight.scale)) {
    return static_cast<const float*>(weight.scale);
  }
  const int64_t count = static_cast<int64_t>(size.height) * size.padded_width;
  launch(stream, {dim3(static_cast<unsigned>(ceil_div(count, kThreads))), dim3(kThreads)},
         dequantise_scales, weight, size.height, size.width, size.padded_width, room);
  return room;
}

}  // namespace frt::cuda
