// SPDX-License-Identifier: Apache-2.0
// weights.cuh - a weight matrix of one or many experts as the device code of the
// mixture-of-experts operators sees it.
//
// A weight is value(row, col) * local(row, col) * factor(row): `local` is the scale of a block or
// group and changes along a row, `factor` is constant along a row and applied to the finished sum.
// The fast kernels read rows in portions of eight values ("eights"), dequantised to f32 in
// registers:
//
//   format   bytes of an eight   how it is dequantised
//   f32      32                  as it is
//   bf16     16                  shifted into the upper half of an f32
//   fp8      8                   e4m3x2 -> f16x2 in hardware, then to f32; exact
//   nvfp4    4                   e2m1x2 -> f16x2 in hardware that can (common/fp4.cuh); elsewhere
//                                the bits are placed into an f16, which is then 2^-14 times the
//                                value, and the local scale carries the 2^14; exact
#pragma once

#include <frt/weights.hpp>

#include <cstdint>

#include "../common/fp4.cuh"
#include "../common/numbers.cuh"

namespace frt::cuda {

struct MoeMatrix {
  const uint8_t* data = nullptr;
  const uint8_t* scale = nullptr;
  const float* global_scales = nullptr;  // (experts) or NULL
  int64_t data_stride = 0;               // bytes from one expert to the next
  int64_t scale_stride = 0;              // bytes
  int64_t row_bytes = 0;
  int32_t rows = 0, cols = 0;
  int32_t block_rows = 1, block_cols = 1;
  int32_t scale_columns = 0;  // FP8_BLOCK: scales of one row of blocks
  int32_t block_shift = 0;    // FP8_BLOCK: log2(block_cols) where that is a whole number
  WeightType type = WeightType::kBf16;
  bool scale_bf16 = false;
  float global_scale = 1.0f;
};

// One row of one expert's matrix.
struct MoeRow {
  const uint8_t* data;
  const uint8_t* scale;  // of the row's blocks or groups; FP8_CHANNEL: of the matrix
  float factor;
};

__device__ __forceinline__ float moe_scale(const MoeMatrix& matrix, const uint8_t* scale,
                                           int64_t index) {
  return matrix.scale_bf16 ? to_float(reinterpret_cast<const bf16*>(scale)[index])
                           : reinterpret_cast<const float*>(scale)[index];
}

__device__ __forceinline__ float e4m3_float(uint8_t code) {
  const __half_raw half = __nv_cvt_fp8_to_halfraw(code, __NV_E4M3);
  return __half2float(__half(half));
}

__device__ __forceinline__ MoeRow moe_row(const MoeMatrix& matrix, int expert, int row) {
  MoeRow made{matrix.data + expert * matrix.data_stride + row * matrix.row_bytes,
              matrix.scale + expert * matrix.scale_stride, 1.0f};
  const float global = matrix.global_scales ? matrix.global_scales[expert] : matrix.global_scale;
  switch (matrix.type) {
    case WeightType::kFp8Tensor:
      made.factor = global;
      break;
    case WeightType::kFp8Channel:
      made.factor = moe_scale(matrix, made.scale, row);
      break;
    case WeightType::kFp8Block:
      made.scale += static_cast<int64_t>(row / matrix.block_rows) * matrix.scale_columns *
                    (matrix.scale_bf16 ? 2 : 4);
      break;
    case WeightType::kNvfp4:
      made.scale += static_cast<int64_t>(row) * (matrix.cols / 16);
      made.factor = global;
      break;
    default:
      break;
  }
  return made;
}

// ---- one value at a time: any shape ----------------------------------------------------------

// value * local of column `col`.
__device__ __forceinline__ float moe_value(const MoeMatrix& matrix, const MoeRow& row, int col) {
  switch (matrix.type) {
    case WeightType::kF32:
      return reinterpret_cast<const float*>(row.data)[col];
    case WeightType::kBf16:
      return to_float(reinterpret_cast<const bf16*>(row.data)[col]);
    case WeightType::kFp8Block:
      return e4m3_float(row.data[col]) * moe_scale(matrix, row.scale, col / matrix.block_cols);
    case WeightType::kNvfp4: {
      const unsigned code = row.data[col / 2] >> (col % 2 * 4) & 15u;
      const __half_raw half{static_cast<unsigned short>((code & 7u) << 9 | (code & 8u) << 12)};
      return __half2float(__half(half)) * 16384.0f * e4m3_float(row.scale[col / 16]);
    }
    default:
      return e4m3_float(row.data[col]);
  }
}

// ---- eights ----------------------------------------------------------------------------------

enum class MoeFormat { kF32, kBf16, kFp8, kFp4 };

inline MoeFormat moe_format(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return MoeFormat::kF32;
    case WeightType::kBf16:
      return MoeFormat::kBf16;
    case WeightType::kNvfp4:
      return MoeFormat::kFp4;
    default:
      return MoeFormat::kFp8;
  }
}

// moe_row where the format is known.
template <MoeFormat kFormat>
__device__ __forceinline__ MoeRow moe_row_as(const MoeMatrix& matrix, int expert, int row) {
  if constexpr (kFormat == MoeFormat::kF32 || kFormat == MoeFormat::kBf16) {
    return {matrix.data + expert * matrix.data_stride + row * matrix.row_bytes, nullptr, 1.0f};
  } else {
    return moe_row(matrix, expert, row);
  }
}

__device__ __forceinline__ float2 float2_of_bf16x2(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u));
}

__device__ __forceinline__ float2 dequantise_fp8x2(uint32_t pair) {
  const __half2_raw half =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair & 0xFFFFu), __NV_E4M3);
  return __half22float2(__half2(half));
}

// Values i and i + 4 of eight, times 2^-14.
__device__ __forceinline__ float2 dequantise_fp4_pair(uint32_t eight, int i) {
  const uint32_t shifted = eight >> (4 * i);
  const uint32_t bits = (shifted & 0x00070007u) << 9 | (shifted & 0x00080008u) << 12;
  __half2_raw half;
  half.x = static_cast<unsigned short>(bits);
  half.y = static_cast<unsigned short>(bits >> 16);
  return __half22float2(__half2(half));
}
inline constexpr float kFp4Unit = kFp4Converts ? 1.0f : 16384.0f;  // 2^14

__device__ __forceinline__ void floats_of_bf16(uint4 raw, float (&values)[8]) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = float2_of_bf16x2(words[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}
__device__ __forceinline__ void dequantise_fp8(uint2 raw, float (&values)[8]) {
  const uint32_t words[2] = {raw.x, raw.y};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = dequantise_fp8x2(words[i / 2] >> (i % 2 * 16));
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}
__device__ __forceinline__ void dequantise_fp4(uint32_t raw, float (&values)[8]) {
  if constexpr (kFp4Converts) {
    uint32_t pairs[4];
    convert_fp4(raw, pairs);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = dequantise_fp4_pair(raw, i);
      values[i] = pair.x;
      values[i + 4] = pair.y;
    }
  }
}

// The eight at column `col` of a row that lies in shared memory at `data`; its local scale.
template <MoeFormat kFormat>
__device__ __forceinline__ float dequantise_shared(const MoeMatrix& matrix, const MoeRow& row,
                                                   const uint8_t* data, int col,
                                                   float (&values)[8]) {
  if constexpr (kFormat == MoeFormat::kF32) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 four = reinterpret_cast<const float4*>(data)[col / 4 + i];
      values[4 * i] = four.x;
      values[4 * i + 1] = four.y;
      values[4 * i + 2] = four.z;
      values[4 * i + 3] = four.w;
    }
    return 1.0f;
  } else if constexpr (kFormat == MoeFormat::kBf16) {
    floats_of_bf16(reinterpret_cast<const uint4*>(data)[col / 8], values);
    return 1.0f;
  } else if constexpr (kFormat == MoeFormat::kFp8) {
    dequantise_fp8(reinterpret_cast<const uint2*>(data)[col / 8], values);
    return matrix.type == WeightType::kFp8Block
               ? moe_scale(matrix, row.scale, col >> matrix.block_shift)
               : 1.0f;
  } else {
    dequantise_fp4(reinterpret_cast<const uint32_t*>(data)[col / 8], values);
    return e4m3_float(row.scale[col / 16]) * kFp4Unit;
  }
}

}  // namespace frt::cuda
