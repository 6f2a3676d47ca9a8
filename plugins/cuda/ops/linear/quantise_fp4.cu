// SPDX-License-Identifier: Apache-2.0
// Activations in NVFP4, rounded as they are needed, by the rule of common/fp4_numbers.hpp.
//
// A scale of 16 values is an e4m3, whose steps are even over 2^-6 to 448 alone: without a second
// scale, groups below 0.1 of bf16 activations would lose bits. That scale is the row's, not the
// tensor's: a tensor's needs a pass over all rows before the first is rounded, and makes the bits
// of a row depend on those beside it.
//
// A block has a row and reads it twice, the second time from the first cache: 35 KB of bf16 at most
// in the 27B. 8192 rows of 5120 are 84 MB read and 24 written, 60 us at 1.8 TB/s. A thread has
// whole groups, so that their largest values need no exchange.
#include <algorithm>

#include "../common/fp4_numbers.hpp"
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "gemm_w4a4.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ void load_group(const bf16* source, float (&values)[kFp4Group]) {
  using Eight = Vector<__nv_bfloat162, 4>;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Eight eight = reinterpret_cast<const Eight*>(source)[half];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = __bfloat1622float2(eight.values[i]);
      values[half * 8 + 2 * i] = two.x;
      values[half * 8 + 2 * i + 1] = two.y;
    }
  }
}
__device__ __forceinline__ void load_group(const float* source, float (&values)[kFp4Group]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4 four = reinterpret_cast<const float4*>(source)[i];
    values[4 * i] = four.x;
    values[4 * i + 1] = four.y;
    values[4 * i + 2] = four.z;
    values[4 * i + 3] = four.w;
  }
}

__device__ __forceinline__ uint32_t largest_bits(const float (&values)[kFp4Group]) {
  uint32_t largest = 0;
#pragma unroll
  for (const float value : values) largest = max(largest, magnitude_bits(value));
  return largest;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    quantise_rows(const T* x, int64_t x_stride, const __grid_constant__ Fp4Rows out) {
  __shared__ uint32_t partial[kThreads / 32];
  pdl_trigger();
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x);
  if (row >= active_rows(out.rows, out.row_count)) return;
  const T* source = x + row * x_stride;
  const int groups = out.inputs / kFp4Group;
  float values[kFp4Group];
  uint32_t largest = 0;
  for (int group = static_cast<int>(threadIdx.x); group < groups; group += kThreads) {
    load_group(source + group * kFp4Group, values);
    largest = max(largest, largest_bits(values));
  }
  largest = __reduce_max_sync(~0u, largest);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = largest;
  __syncthreads();
  largest = __reduce_max_sync(~0u, partial[threadIdx.x % (kThreads / 32)]);
  const float row_scale = fp4_row_scale(largest);
  if (threadIdx.x == 0) out.row_scale[row] = row_scale;
  const bool finite = largest < kInfinityBits;
  const float inverse = finite ? fp4_inverse(row_scale) : 0.0f;
  uint8_t* codes = out.values + static_cast<int64_t>(row) * (out.inputs / 2);
  uint8_t* scales = out.scale + row * out.scale_stride();
  for (int group = static_cast<int>(threadIdx.x); group < groups; group += kThreads) {
    uint2 packed = make_uint2(0, 0);
    uint32_t scale_code = 0;
    if (finite) {
      load_group(source + group * kFp4Group, values);
      scale_code = fp4_scale_code(__uint_as_float(largest_bits(values)) * inverse);
      const Fp4Middles middles = fp4_middles(scale_code);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        packed.x |= fp4_code(values[i] * inverse, middles) << 4 * i;
        packed.y |= fp4_code(values[8 + i] * inverse, middles) << 4 * i;
      }
    }
    reinterpret_cast<uint2*>(codes)[group] = packed;
    scales[group] = static_cast<uint8_t>(scale_code);
  }
}

}  // namespace

void Fp4Rows::take(Cutter& cutter) {
  values = cutter.take<uint8_t>(int64_t{rows} * (inputs / 2));
  scale = cutter.take<uint8_t>(rows * scale_stride());
  row_scale = cutter.take<float>(rows);
}

void quantise_fp4_rows(Stream& stream, frt_dtype x_dtype, const void* x, int64_t x_stride,
                       const Fp4Rows& out) {
  const Grid grid{dim3(static_cast<unsigned>(out.rows)), dim3(kThreads)};
  if (x_dtype == FRT_DTYPE_BF16) {
    launch(stream, grid, quantise_rows<bf16>, static_cast<const bf16*>(x), x_stride, out);
  } else {
    launch(stream, grid, quantise_rows<float>, static_cast<const float*>(x), x_stride, out);
  }
}

}  // namespace frt::cuda
