// SPDX-License-Identifier: Apache-2.0
// Dequantising quantised weights to bf16 or f32: value times scale, in f32, rounded once.
//
// Bound by memory: an FP8 value is one byte read and two written, an NVFP4 value 9/16 of a byte
// read and two written; 178 MB of bf16 (a feed-forward matrix of the 27B) are 267 MB of traffic
// from FP8, 63 us at 4.27 TB/s. In the fast path a warp has one row, so that nothing is divided,
// and a lane eight values at a time: its store has 16 bytes and those of a warp lie together. Four
// loads are in flight per lane. e4m3 is dequantised by the hardware's conversion, e2m1 by moving
// its three bits to where an f32 has exponent and mantissa and one multiplication by 2^126, which
// also makes normal numbers of the subnormal ones.
//
// The fast path takes rows of multiples of eight values and blocks whose width is a power of two
// from eight on; everything else goes value by value.
#include <bit>
#include <type_traits>

#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "dequantise.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;

struct Dequantise {
  Weight weight;
  int64_t scale_cols;  // scales of a row
  int32_t first, count;
  void* plain;
};

// The factor at place `at` of the weight's scales.
__device__ __forceinline__ float scale_of(const Dequantise& args, int64_t at) {
  const Weight& weight = args.weight;
  if (weight.type == WeightType::kFp8Tensor) return weight.global_scale;
  if (weight.type == WeightType::kNvfp4) {
    return to_float(static_cast<const f8e4m3*>(weight.scale)[at]) * weight.global_scale;
  }
  return weight.scale_dtype == FRT_DTYPE_F32 ? static_cast<const float*>(weight.scale)[at]
                                             : to_float(static_cast<const bf16*>(weight.scale)[at]);
}

// The factor of value (row, col).
__device__ __forceinline__ float scale_at(const Dequantise& args, int row, int col) {
  const Weight& weight = args.weight;
  if (weight.type == WeightType::kNvfp4) return scale_of(args, row * args.scale_cols + col / 16);
  if (weight.type == WeightType::kFp8Block) {
    return scale_of(args, row / weight.block_rows * args.scale_cols + col / weight.block_cols);
  }
  return scale_of(args, row);
}

// e2m1 in the lowest four bits: sign, two bits of exponent, one of mantissa.
__device__ __forceinline__ float from_e2m1(uint32_t bits) {
  const float magnitude = __uint_as_float((bits & 7u) << 22) * 0x1p126f;
  return __uint_as_float(__float_as_uint(magnitude) | (bits & 8u) << 28);
}

// Four e4m3 of one word, times `scale`.
__device__ __forceinline__ void dequantise_fp8(uint32_t word, float scale, float* values) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const __half2_raw raw =
        __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word >> 16 * half), __NV_E4M3);
    const float2 pair = __half22float2(__half2(raw));
    values[2 * half] = pair.x * scale;
    values[2 * half + 1] = pair.y * scale;
  }
}

// Eight e2m1 of one word, times `scale`; the even ones are low.
__device__ __forceinline__ void dequantise_fp4(uint32_t word, float scale, float* values) {
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = from_e2m1(word >> 4 * i) * scale;
}

__device__ __forceinline__ void store_eight(bf16* target, const float (&values)[8]) {
  Vector<__nv_bfloat162, 4> packed;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    packed.values[i] = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
  }
  *reinterpret_cast<Vector<__nv_bfloat162, 4>*>(target) = packed;
}
__device__ __forceinline__ void store_eight(float* target, const float (&values)[8]) {
  auto* quads = reinterpret_cast<float4*>(target);
  quads[0] = make_float4(values[0], values[1], values[2], values[3]);
  quads[1] = make_float4(values[4], values[5], values[6], values[7]);
}

// Eights that a lane has under way.
constexpr int kInFlight = 4;

// One warp per output. `block_shift`: log2 of the inputs that share a scale; 31: all of a row.
template <class T, bool kFp4>
__global__ void __launch_bounds__(kThreads)
    dequantise_rows(const __grid_constant__ Dequantise args, int block_shift) {
  using Eight = std::conditional_t<kFp4, uint32_t, uint2>;
  pdl_trigger();
  const int row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool inside = row < args.count;
  const int eights = inside ? args.weight.cols / 8 : 0;
  const int line = args.first + (inside ? row : 0);
  const auto* data =
      static_cast<const Eight*>(args.weight.data) + static_cast<int64_t>(line) * eights;
  T* target = static_cast<T*>(args.plain) + static_cast<int64_t>(row) * args.weight.cols;
  const int64_t scale_row = args.weight.type == WeightType::kFp8Block
                                ? line / args.weight.block_rows
                                : static_cast<int64_t>(line);
  pdl_wait();  // the kernel before may still be reading the target
  for (int first = lane; first < eights; first += 32 * kInFlight) {
    Eight packed[kInFlight];
    float scale[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int at = first + 32 * i;
      if (at >= eights) break;
      packed[i] = __ldcs(data + at);
      scale[i] = scale_of(args, scale_row * args.scale_cols + (at * 8 >> block_shift));
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int at = first + 32 * i;
      if (at >= eights) break;
      float values[8];
      if constexpr (kFp4) {
        dequantise_fp4(packed[i], scale[i], values);
      } else {
        dequantise_fp8(packed[i].x, scale[i], values);
        dequantise_fp8(packed[i].y, scale[i], values + 4);
      }
      store_eight(target + at * 8, values);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dequantise_values(const __grid_constant__ Dequantise args) {
  pdl_trigger();
  pdl_wait();
  const int64_t count = static_cast<int64_t>(args.count) * args.weight.cols;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < count;
       at += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int row = static_cast<int>(at / args.weight.cols) + args.first;
    const int col = static_cast<int>(at % args.weight.cols);
    const int64_t place = static_cast<int64_t>(row) * args.weight.cols + col;
    const float value =
        args.weight.type == WeightType::kNvfp4
            ? from_e2m1(static_cast<const uint8_t*>(args.weight.data)[place / 2] >> 4 * (place % 2))
            : to_float(static_cast<const f8e4m3*>(args.weight.data)[place]);
    static_cast<T*>(args.plain)[at] = from_float<T>(value * scale_at(args, row, col));
  }
}

// log2 of the inputs that share a scale; negative where they are not a power of two of eight on.
int block_shift(const Weight& weight) {
  if (weight.type == WeightType::kNvfp4) return 4;
  if (weight.type != WeightType::kFp8Block) return 31;
  const auto width = static_cast<unsigned>(weight.block_cols);
  return width >= 8 && std::has_single_bit(width) ? std::countr_zero(width) : -1;
}

template <class T>
void dequantise_to(Stream& stream, const Dequantise& args) {
  const Weight& weight = args.weight;
  const int shift = block_shift(weight);
  if (weight.cols % 8 != 0 || shift < 0 || reinterpret_cast<uintptr_t>(weight.data) % 8 != 0 ||
      reinterpret_cast<uintptr_t>(args.plain) % 16 != 0) {
    const int64_t blocks = ceil_div(static_cast<int64_t>(args.count) * weight.cols, kThreads);
    launch(stream, {dim3(static_cast<unsigned>(blocks < 65536 ? blocks : 65536)), dim3(kThreads)},
           dequantise_values<T>, args);
    return;
  }
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(args.count, kThreads / 32))), dim3(kThreads)};
  if (weight.type == WeightType::kNvfp4) {
    launch(stream, grid, dequantise_rows<T, true>, args, shift);
  } else {
    launch(stream, grid, dequantise_rows<T, false>, args, shift);
  }
}

}  // namespace

void dequantise(Stream& stream, const Weight& weight, int32_t first, int32_t count,
                frt_dtype plain_dtype, void* plain) {
  Dequantise args{weight, 1, first, count, plain};
  if (weight.type == WeightType::kNvfp4) args.scale_cols = weight.cols / 16;
  if (weight.type == WeightType::kFp8Block) {
    args.scale_cols = ceil_div(weight.cols, weight.block_cols);
  }
  if (plain_dtype == FRT_DTYPE_F32) {
    dequantise_to<float>(stream, args);
  } else {
    dequantise_to<bf16>(stream, args);
  }
}

}  // namespace frt::cuda
