// SPDX-License-Identifier: Apache-2.0
// stream.cuh - products of sixteen weight rows with up to eight rows of x, by one warp, at the
// speed of memory.
//
// Lane 4 g + t takes the t-th 16 bytes of every 64 of weight rows g and g + 8: they are fetched
// with cp.async into slots of shared memory that this lane alone reads back, so many are under way
// and nobody waits for anybody. They go to mma.sync (16 x 8 x 16, bf16) as they are: which columns
// a multiplication takes for its sixteen does not matter as long as x is read in the same order, so
// an eight of weights makes one lane's share of two multiplications, and an eight of x their other
// side. Sums: c[0], c[1] row g with rows 2 t, 2 t + 1 of x; c[2], c[3] row g + 8.
#pragma once

#include "../common/mma.cuh"
#include "decode.cuh"

namespace frt::cuda {

template <MoeFormat kFormat>
struct StreamShape {
  static constexpr int kValues = kFormat == MoeFormat::kBf16  ? 8
                                 : kFormat == MoeFormat::kFp8 ? 16
                                                              : 32;  // of a lane's 16 bytes
  static constexpr int kEights = kValues / 8;
  static constexpr int kStep = 4 * kValues;  // columns of a slot
  static constexpr bool kScaled = kFormat != MoeFormat::kBf16;
  static constexpr int kSlotBytes = kScaled ? 1024 + 256 : 1024;
};

// A lane's two weight rows.
struct StreamRows {
  MoeRow low, high;
  bool low_valid, high_valid;
};

template <MoeFormat kFormat>
struct Stream16 {
  using Shape = StreamShape<kFormat>;

  // Where the local scale of a lane's portion lies.
  static __device__ __forceinline__ const uint8_t* scale_at(const MoeMatrix& matrix,
                                                            const MoeRow& row, int portion) {
    if constexpr (kFormat == MoeFormat::kFp4) {
      return row.scale + portion * 2;
    } else {
      return row.scale +
             (portion * Shape::kValues >> matrix.block_shift) * (matrix.scale_bf16 ? 2 : 4);
    }
  }

  // A lane scales what it has: of FP8 sums over the whole step, of FP4 its own weights.
  static __device__ __forceinline__ int scaled_portion(int portion) {
    return kFormat == MoeFormat::kFp8 ? portion / 4 * 4 : portion;
  }

  static __device__ __forceinline__ void fetch_row(const MoeMatrix& matrix, const MoeRow& row,
                                                   bool valid, bool inside, int portion,
                                                   uint32_t slot, uint32_t scale_slot) {
    const bool weights = valid && inside;
    copy_async_or_zero(slot, weights ? row.data + portion * 16 : matrix.data, weights);
    if constexpr (Shape::kScaled) {
      if (kFormat == MoeFormat::kFp4 || matrix.type == WeightType::kFp8Block) {
        const bool scales = kFormat == MoeFormat::kFp8 ? valid : weights;
        const auto at =
            reinterpret_cast<std::uintptr_t>(scale_at(matrix, row, scaled_portion(portion)));
        const auto* word = reinterpret_cast<const void*>(at & ~std::uintptr_t{3});
        copy_async_cached_or_zero<4>(scale_slot, scales ? word : matrix.data, scales);
      }
    }
  }

  // Fetches step `step` of both rows into the slot.
  static __device__ __forceinline__ void fetch(const MoeMatrix& low, const MoeMatrix& high,
                                               const StreamRows& rows, int step, uint32_t slot) {
    const int lane = threadIdx.x % 32, portion = step * 4 + lane % 4;
    const bool inside = portion * Shape::kValues < low.cols;
    fetch_row(low, rows.low, rows.low_valid, inside, portion, slot + lane * 16,
              slot + 1024 + lane * 4);
    fetch_row(high, rows.high, rows.high_valid, inside, portion, slot + 512 + lane * 16,
              slot + 1152 + lane * 4);
  }

  // The half of the scale's word that belongs to the portion, as bits.
  static __device__ __forceinline__ uint32_t scale_half(const MoeMatrix& matrix, const MoeRow& row,
                                                        int portion, uint32_t word) {
    const auto at =
        reinterpret_cast<std::uintptr_t>(scale_at(matrix, row, scaled_portion(portion)));
    return (at & 2) != 0 ? word >> 16 : word & 0xFFFFu;
  }
  static __device__ __forceinline__ float block_scale(const MoeMatrix& matrix, const MoeRow& row,
                                                      int portion, uint32_t word) {
    if (matrix.type != WeightType::kFp8Block) return 1.0f;
    if (!matrix.scale_bf16) return __uint_as_float(word);
    return __uint_as_float(scale_half(matrix, row, portion, word) << 16);
  }

  // Eight e of a portion as four pairs of bf16.
  static __device__ __forceinline__ void dequantise(const uint4& raw, int e, float scale,
                                                    uint32_t (&pairs)[4]) {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    if constexpr (kFormat == MoeFormat::kBf16) {
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[i] = words[i];
    } else {
      float values[8];
      if constexpr (kFormat == MoeFormat::kFp8) {
        dequantise_fp8(make_uint2(words[2 * e % 4], words[2 * e % 4 + 1]), values);
      } else {
        dequantise_fp4(words[e], values);
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] *= scale;
      }
      const uint4 packed = pack_bf16(values);
      pairs[0] = packed.x;
      pairs[1] = packed.y;
      pairs[2] = packed.z;
      pairs[3] = packed.w;
    }
  }

  // c += the slot's weights times x; `x`: row lane / 4 of x, NULL: there is none.
  static __device__ __forceinline__ void consume(const MoeMatrix& low, const MoeMatrix& high,
                                                 const StreamRows& rows, int step,
                                                 const uint8_t* slot, const uint4* x,
                                                 float (&c)[4]) {
    const int lane = threadIdx.x % 32, portion = step * 4 + lane % 4;
    const bool inside = portion * Shape::kValues < low.cols;
    const uint4 raw_low = reinterpret_cast<const uint4*>(slot)[lane];
    const uint4 raw_high = reinterpret_cast<const uint4*>(slot + 512)[lane];
    uint32_t low_word = 0, high_word = 0;
    if constexpr (Shape::kScaled) {
      low_word = reinterpret_cast<const uint32_t*>(slot + 1024)[lane];
      high_word = reinterpret_cast<const uint32_t*>(slot + 1152)[lane];
    }
    if constexpr (kFormat == MoeFormat::kFp4) {
      low_word = scale_half(low, rows.low, portion, low_word);
      high_word = scale_half(high, rows.high, portion, high_word);
    }
    float part[4] = {};
    float(&sums)[4] = kFormat == MoeFormat::kFp8 ? part : c;
#pragma unroll
    for (int e = 0; e < Shape::kEights; ++e) {
      uint4 b = make_uint4(0, 0, 0, 0);
      if (x && inside) b = x[portion * Shape::kEights + e];
      float low_scale = 1.0f, high_scale = 1.0f;
      if constexpr (kFormat == MoeFormat::kFp4) {
        low_scale = e4m3_float(static_cast<uint8_t>(low_word >> (e / 2 * 8))) * kFp4Unit;
        high_scale = e4m3_float(static_cast<uint8_t>(high_word >> (e / 2 * 8))) * kFp4Unit;
      }
      uint32_t l[4], h[4];
      dequantise(raw_low, e, low_scale, l);
      dequantise(raw_high, e, high_scale, h);
      mma_bf16<Order::kKept>(sums, l[0], h[0], l[1], h[1], b.x, b.y);
      mma_bf16<Order::kKept>(sums, l[2], h[2], l[3], h[3], b.z, b.w);
    }
    if constexpr (kFormat == MoeFormat::kFp8) {
      const float low_scale = block_scale(low, rows.low, portion, low_word);
      const float high_scale = block_scale(high, rows.high, portion, high_word);
      c[0] = fmaf(part[0], low_scale, c[0]);
      c[1] = fmaf(part[1], low_scale, c[1]);
      c[2] = fmaf(part[2], high_scale, c[2]);
      c[3] = fmaf(part[3], high_scale, c[3]);
    }
  }
};

}  // namespace frt::cuda
