// SPDX-License-Identifier: Apache-2.0
// Widening packed weights to bf16 or f32: value times scale, in f32, rounded once.
//
// Bound by memory: an FP8 value is one byte read and two written, an NVFP4 value 9/16 of a byte
// read and two written; 178 MB of bf16 (a feed-forward matrix of the 27B) are 267 MB of traffic
// from FP8, 63 us at 4.27 TB/s. So the fast path moves 16 packed bytes per load, two loads in
// flight per thread, and keeps the arithmetic at a few instructions per value: e4m3 is widened by
// the hardware's conversion, e2m1 by moving its three bits to where an f32 has exponent and
// mantissa and one multiplication by 2^126, which also makes normal numbers of the subnormal ones.
//
// The fast path takes rows of multiples of 16 (FP8) or 32 (NVFP4) and scales that are constant in
// 16 inputs; everything else goes value by value.
#include "launch.cuh"
#include "numbers.cuh"
#include "unpack.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;

struct Unpack {
  frt_weight weight;
  int64_t scale_cols;  // of FP8_BLOCK and NVFP4
  int32_t first, count;
  void* plain;
};

// The factor of value (row, col).
__device__ __forceinline__ float scale_at(const Unpack& args, int row, int col) {
  const frt_weight& weight = args.weight;
  if (weight.format == FRT_WEIGHT_FP8_TENSOR) return weight.global_scale;
  if (weight.format == FRT_WEIGHT_NVFP4) {
    const auto* scales = static_cast<const f8e4m3*>(weight.scale);
    return to_float(scales[row * args.scale_cols + col / 16]) * weight.global_scale;
  }
  const int64_t at = weight.format == FRT_WEIGHT_FP8_CHANNEL
                         ? row
                         : row / weight.block_rows * args.scale_cols + col / weight.block_cols;
  return weight.scale_dtype == FRT_DTYPE_F32 ? static_cast<const float*>(weight.scale)[at]
                                             : to_float(static_cast<const bf16*>(weight.scale)[at]);
}

// e2m1 in the lowest four bits: sign, two bits of exponent, one of mantissa.
__device__ __forceinline__ float from_e2m1(uint32_t bits) {
  const float magnitude = __uint_as_float((bits & 7u) << 22) * 0x1p126f;
  return __uint_as_float(__float_as_uint(magnitude) | (bits & 8u) << 28);
}

// Four e4m3 of one word, times `scale`.
__device__ __forceinline__ void widen_fp8(uint32_t word, float scale, float* values) {
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
__device__ __forceinline__ void widen_fp4(uint32_t word, float scale, float* values) {
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = from_e2m1(word >> 4 * i) * scale;
}

__device__ __forceinline__ void store_values(bf16* target, const float* values, int count) {
  for (int i = 0; i < count; i += 8) {
    Vector<__nv_bfloat162, 4> packed;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      packed.values[j] = __floats2bfloat162_rn(values[i + 2 * j], values[i + 2 * j + 1]);
    }
    *reinterpret_cast<Vector<__nv_bfloat162, 4>*>(target + i) = packed;
  }
}
__device__ __forceinline__ void store_values(float* target, const float* values, int count) {
  for (int i = 0; i < count; i += 4) {
    *reinterpret_cast<float4*>(target + i) =
        make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
  }
}

// A piece is 16 packed bytes: 16 e4m3 or 32 e2m1. Each thread has kPieces of them.
constexpr int kPieces = 2;

template <class T, bool kFp4>
__global__ void __launch_bounds__(kThreads)
    unpack_pieces(const __grid_constant__ Unpack args, int pieces_of_row, int64_t pieces) {
  constexpr int kValues = kFp4 ? 32 : 16;
  pdl_trigger();
  const auto* data = static_cast<const uint4*>(args.weight.data);
  const int64_t first_piece = static_cast<int64_t>(args.first) * pieces_of_row;
  const int64_t start = static_cast<int64_t>(blockIdx.x) * kThreads * kPieces + threadIdx.x;
  uint4 packed[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int64_t piece = start + i * kThreads;
    if (piece < pieces) packed[i] = load_stream(data + first_piece + piece);
  }
  pdl_wait();  // the kernel before may still be reading the target
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int64_t piece = start + i * kThreads;
    if (piece >= pieces) return;
    const int row = static_cast<int>(piece / pieces_of_row);
    const int col = static_cast<int>(piece - static_cast<int64_t>(row) * pieces_of_row) * kValues;
    const uint32_t words[4] = {packed[i].x, packed[i].y, packed[i].z, packed[i].w};
    float values[kValues];
    if constexpr (kFp4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = scale_at(args, args.first + row, col + 16 * half);
        widen_fp4(words[2 * half], scale, values + 16 * half);
        widen_fp4(words[2 * half + 1], scale, values + 16 * half + 8);
      }
    } else {
      const float scale = scale_at(args, args.first + row, col);
#pragma unroll
      for (int j = 0; j < 4; ++j) widen_fp8(words[j], scale, values + 4 * j);
    }
    store_values(static_cast<T*>(args.plain) + piece * kValues, values, kValues);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) unpack_values(const __grid_constant__ Unpack args) {
  pdl_trigger();
  pdl_wait();
  const int64_t count = static_cast<int64_t>(args.count) * args.weight.cols;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < count;
       at += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int row = static_cast<int>(at / args.weight.cols) + args.first;
    const int col = static_cast<int>(at % args.weight.cols);
    const int64_t place = static_cast<int64_t>(row) * args.weight.cols + col;
    const float value =
        args.weight.format == FRT_WEIGHT_NVFP4
            ? from_e2m1(static_cast<const uint8_t*>(args.weight.data)[place / 2] >> 4 * (place % 2))
            : to_float(static_cast<const f8e4m3*>(args.weight.data)[place]);
    static_cast<T*>(args.plain)[at] = from_float<T>(value * scale_at(args, row, col));
  }
}

template <class T>
void unpack_to(Stream& stream, const Unpack& args) {
  const frt_weight& weight = args.weight;
  const bool fp4 = weight.format == FRT_WEIGHT_NVFP4;
  const int values = fp4 ? 32 : 16;
  const bool fast = weight.cols % values == 0 &&
                    reinterpret_cast<uintptr_t>(weight.data) % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(args.plain) % 16 == 0 &&
                    (weight.format != FRT_WEIGHT_FP8_BLOCK || weight.block_cols % 16 == 0);
  if (!fast) {
    const int64_t blocks = ceil_div(static_cast<int64_t>(args.count) * weight.cols, kThreads);
    launch(stream, {dim3(static_cast<unsigned>(blocks < 65536 ? blocks : 65536)), dim3(kThreads)},
           unpack_values<T>, args);
    return;
  }
  const int pieces_of_row = weight.cols / values;
  const int64_t pieces = static_cast<int64_t>(args.count) * pieces_of_row;
  const Grid grid{dim3(static_cast<unsigned>(ceil_div(pieces, kThreads * kPieces))),
                  dim3(kThreads)};
  if (fp4) {
    launch(stream, grid, unpack_pieces<T, true>, args, pieces_of_row, pieces);
  } else {
    launch(stream, grid, unpack_pieces<T, false>, args, pieces_of_row, pieces);
  }
}

}  // namespace

void unpack(Stream& stream, const frt_weight& weight, int32_t first, int32_t count,
            frt_dtype plain_dtype, void* plain) {
  Unpack args{weight, 0, first, count, plain};
  if (weight.format == FRT_WEIGHT_NVFP4) args.scale_cols = weight.cols / 16;
  if (weight.format == FRT_WEIGHT_FP8_BLOCK) {
    args.scale_cols = ceil_div(weight.cols, weight.block_cols);
  }
  if (plain_dtype == FRT_DTYPE_F32) {
    unpack_to<float>(stream, args);
  } else {
    unpack_to<bf16>(stream, args);
  }
}

}  // namespace frt::cuda
