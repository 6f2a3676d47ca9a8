// SPDX-License-Identifier: Apache-2.0
// convert_values.cuh - runs of stored values to f32 registers and back, for the operators that move
// rows: one value, or eight in accesses of at most 16 bytes.
//
// The conversions by `frt_dtype` give the same bits as the CPU backend for every input, NaN
// included: bf16 keeps the sign and the upper payload and is made quiet, f16 and e4m3 keep the
// sign, e4m3 reads as the positive quiet NaN. The conversions by type are for results of
// arithmetic.
#pragma once

#include <frt/kernels.h>

#include "numbers.cuh"

namespace frt::cuda {

// The type of an embedding table's values, of the two that there are: the compiler drops the others
// from load_values.
__host__ __device__ inline frt_dtype table_type(const frt_weight& table) {
  return table.format.data == FRT_DTYPE_F32 ? FRT_DTYPE_F32 : FRT_DTYPE_BF16;
}

// ---- bit-exact conversions ------------------------------------------------------------------

__device__ __forceinline__ uint16_t bf16_bits(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

__device__ __forceinline__ uint16_t f16_bits(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7E00u);
  }
  return __half_as_ushort(__float2half_rn(value));
}

__device__ __forceinline__ uint8_t e4m3_bits(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint8_t>((bits >> 24 & 0x80u) | 0x7Fu);
  return static_cast<uint8_t>(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3));
}

// The code in the low four bits; saturates to 6, and NaN becomes 6. At a halfway point the even
// code wins, so it belongs below or above in turn.
__device__ __forceinline__ uint32_t e2m1_bits(float value) {
  const float magnitude = fabsf(value);
  if (isnan(value)) return 7;
  uint32_t code = 7;
  if (magnitude <= 0.25f) {
    code = 0;
  } else if (magnitude < 0.75f) {
    code = 1;
  } else if (magnitude <= 1.25f) {
    code = 2;
  } else if (magnitude < 1.75f) {
    code = 3;
  } else if (magnitude <= 2.5f) {
    code = 4;
  } else if (magnitude < 3.5f) {
    code = 5;
  } else if (magnitude <= 5.0f) {
    code = 6;
  }
  return (__float_as_uint(value) >> 31) << 3 | code;
}

__device__ __forceinline__ float float_of_bf16(uint32_t bits) {
  return __uint_as_float(bits << 16);
}

__device__ __forceinline__ float float_of_f16(uint32_t bits) {
  if ((bits & 0x7FFFu) > 0x7C00u) {
    return __uint_as_float((bits & 0x8000u) << 16 | 0x7F800000u | (bits & 0x3FFu) << 13);
  }
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

__device__ __forceinline__ float float_of_e4m3(uint32_t bits) {
  if ((bits & 0x7Fu) == 0x7Fu) return __uint_as_float(0x7FC00000u);
  const auto code = static_cast<__nv_fp8_storage_t>(bits);
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

// ---- one value, or eight, of a type known when the kernel runs --------------------------------

__device__ __forceinline__ int64_t bytes_of(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? 4 : dtype == FRT_DTYPE_F8_E4M3 ? 1 : 2;
}

// N consecutive values at `data` + `first`; N is 1, 4 or 8. They are aligned to their size, at most
// to 16 bytes.
template <int N>
__device__ __forceinline__ void load_values(frt_dtype dtype, const void* data, int64_t first,
                                            float (&v)[N]) {
  if (dtype == FRT_DTYPE_F32) {
    using Part = Vector<float, (N < 4 ? N : 4)>;
    const auto* parts = reinterpret_cast<const Part*>(static_cast<const float*>(data) + first);
#pragma unroll
    for (int i = 0; i < N; i += sizeof(Part) / 4) {
      const Part part = parts[i / (sizeof(Part) / 4)];
#pragma unroll
      for (int j = 0; j < static_cast<int>(sizeof(Part) / 4); ++j) v[i + j] = part.values[j];
    }
  } else if (dtype == FRT_DTYPE_F8_E4M3) {
    const auto part =
        *reinterpret_cast<const Vector<uint8_t, N>*>(static_cast<const uint8_t*>(data) + first);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = float_of_e4m3(part.values[i]);
  } else {
    const auto part =
        *reinterpret_cast<const Vector<uint16_t, N>*>(static_cast<const uint16_t*>(data) + first);
    if (dtype == FRT_DTYPE_BF16) {
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = float_of_bf16(part.values[i]);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = float_of_f16(part.values[i]);
    }
  }
}

template <int N>
__device__ __forceinline__ void store_values(frt_dtype dtype, void* data, int64_t first,
                                             const float (&v)[N]) {
  if (dtype == FRT_DTYPE_F32) {
    using Part = Vector<float, (N < 4 ? N : 4)>;
    auto* parts = reinterpret_cast<Part*>(static_cast<float*>(data) + first);
#pragma unroll
    for (int i = 0; i < N; i += sizeof(Part) / 4) {
      Part part;
#pragma unroll
      for (int j = 0; j < static_cast<int>(sizeof(Part) / 4); ++j) part.values[j] = v[i + j];
      parts[i / (sizeof(Part) / 4)] = part;
    }
  } else if (dtype == FRT_DTYPE_F8_E4M3) {
    Vector<uint8_t, N> part;
#pragma unroll
    for (int i = 0; i < N; ++i) part.values[i] = e4m3_bits(v[i]);
    *reinterpret_cast<Vector<uint8_t, N>*>(static_cast<uint8_t*>(data) + first) = part;
  } else {
    Vector<uint16_t, N> part;
    if (dtype == FRT_DTYPE_BF16) {
#pragma unroll
      for (int i = 0; i < N; ++i) part.values[i] = bf16_bits(v[i]);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) part.values[i] = f16_bits(v[i]);
    }
    *reinterpret_cast<Vector<uint16_t, N>*>(static_cast<uint16_t*>(data) + first) = part;
  }
}

// ---- N values of a type known when the kernel is compiled (f32, bf16); aligned like load_values
// --

template <int N>
__device__ __forceinline__ void load_typed(const float* data, float (&v)[N]) {
  load_values(FRT_DTYPE_F32, data, 0, v);
}
template <int N>
__device__ __forceinline__ void load_typed(const bf16* data, float (&v)[N]) {
  load_values(FRT_DTYPE_BF16, data, 0, v);
}

template <int N>
__device__ __forceinline__ void store_typed(float* data, const float (&v)[N]) {
  store_values(FRT_DTYPE_F32, data, 0, v);
}
template <int N>
__device__ __forceinline__ void store_typed(bf16* data, const float (&v)[N]) {
  Vector<bf16, N> part;
#pragma unroll
  for (int i = 0; i < N; ++i) part.values[i] = from_float<bf16>(v[i]);
  *reinterpret_cast<Vector<bf16, N>*>(data) = part;
}

// Whether eight values at a time may be moved: rows at `data`, `stride` elements apart.
inline bool vector_rows(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace frt::cuda
