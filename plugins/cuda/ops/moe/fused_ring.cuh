// SPDX-License-Identifier: Apache-2.0
// fused_ring.cuh - of the decode kernel that is one launch (fused_kernel.cu): the ring
// through which every weight passes, and the cells through which blocks exchange results.
//
// A launch runs through its code once, so code is fetched from memory like weights: what is used
// more than once is written once, and loops are not unrolled without need.
#pragma once

#include "../common/arch.cuh"
#include "../common/mbarrier.cuh"
#include "../common/mma.cuh"
#include "fused.cuh"
#include "stream.cuh"

namespace frt::cuda {

// ---- the ring --------------------------------------------------------------------------------

// Sixteen weight rows: eight of `low` from low_row on, eight of `high` from high_row on.
struct Unit {
  const MoeMatrix *low, *high;  // alike but for their values
  int expert, low_row, high_row;
  int row_bytes;
  int shift;  // FP8_BLOCK: log2 of the columns that share a scale; 0: no local scales
  bool scale_bf16, factored;

  // Without two matrices, `high` continues `low`.
  __device__ __forceinline__ Unit(const MoeMatrix* low, const MoeMatrix* high, int expert, int row)
      : low(low),
        high(high),
        expert(expert),
        low_row(row),
        high_row(low == high ? row + 8 : row),
        row_bytes(static_cast<int>(low->row_bytes)),
        shift(low->type == WeightType::kFp8Block ? low->block_shift : 0),
        scale_bf16(low->scale_bf16),
        factored(low->type == WeightType::kFp8Tensor || low->type == WeightType::kFp8Channel) {}
  __device__ __forceinline__ int rows(bool of_high) const {
    const MoeMatrix& matrix = of_high ? *high : *low;
    return max(0, min(8, matrix.rows - (of_high ? high_row : low_row)));
  }
  // Eight rows lie in memory as they do in a stage: one after the other.
  __device__ __forceinline__ const uint8_t* data(bool of_high) const {
    const MoeMatrix& matrix = of_high ? *high : *low;
    return matrix.data + expert * matrix.data_stride +
           (of_high ? high_row : low_row) * matrix.row_bytes;
  }
  __device__ __forceinline__ const uint8_t* scales(bool of_high) const {
    return moe_row(of_high ? *high : *low, expert, of_high ? high_row : low_row).scale;
  }
};

struct Ring {
  uint8_t* memory;
  uint64_t *full, *empty;
  int stages, stage_bytes;
};

// A place in the ring and how often it went round.
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

#if FRT_ARCH_CLUSTERS

// c += 64 bytes of each of the unit's rows, from `at` on, times x. `data`, `scales`: of the unit in
// shared memory; `x`: row lane / 4 of x there, NULL: there is none.
template <MoeFormat kFormat>
__device__ __forceinline__ void multiply_piece(const Unit& unit, const uint8_t* data,
                                               const uint32_t* scales, int scale_blocks, int at,
                                               const uint32_t* x, float (&c)[4]) {
  using Stream = Stream16<kFormat>;
  constexpr int kEights = StreamShape<kFormat>::kEights;
  const int lane = threadIdx.x % 32, byte = at + lane % 4 * 16;
  const bool inside = byte < unit.row_bytes;
  uint4 low = make_uint4(0, 0, 0, 0), high = low;
  if (inside) {
    data += lane / 4 * unit.row_bytes + byte;
    low = *reinterpret_cast<const uint4*>(data);
    high = *reinterpret_cast<const uint4*>(data + 8 * unit.row_bytes);
  }
  float part[4] = {};
  float(&sums)[4] = kFormat == MoeFormat::kFp8 ? part : c;
#pragma unroll
  for (int e = 0; e < kEights; ++e) {
    uint4 b = make_uint4(0, 0, 0, 0);
    if (x && inside) b = reinterpret_cast<const uint4*>(x)[byte / 16 * kEights + e];
    uint32_t l[4], h[4];
    Stream::dequantise(low, e, 1.0f, l);
    Stream::dequantise(high, e, 1.0f, h);
    mma_bf16<Order::kKept>(sums, l[0], h[0], l[1], h[1], b.x, b.y);
    mma_bf16<Order::kKept>(sums, l[2], h[2], l[3], h[3], b.z, b.w);
  }
  if constexpr (kFormat == MoeFormat::kFp8) {
    const auto scale = [&](uint32_t word) {
      if (unit.shift == 0) return 1.0f;
      if (!unit.scale_bf16) return __uint_as_float(word);
      const bool odd = (at >> unit.shift) % 2 != 0;  // rows of scales begin at words
      return __uint_as_float(odd ? word & 0xFFFF0000u : word << 16);
    };
    const float low_scale = scale(scales[at / 128]);
    const float high_scale = scale(scales[scale_blocks + at / 128]);
    c[0] = fmaf(part[0], low_scale, c[0]);
    c[1] = fmaf(part[1], low_scale, c[1]);
    c[2] = fmaf(part[2], high_scale, c[2]);
    c[3] = fmaf(part[3], high_scale, c[3]);
  }
}

#endif

// ---- cells -----------------------------------------------------------------------------------
//
// Thirty-two bits of a result and the number of the launch that found it, written and read as one:
// who reads the number it waits for has the result, too, so no barrier and no fence is needed. What
// earlier launches left has smaller numbers. The number is counted by every block for itself, in
// the first words of the exchange memory.

__device__ __forceinline__ void write_cell(uint64_t* cell, uint32_t value, uint32_t number) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(cell),
               "l"(static_cast<uint64_t>(number) << 32 | value)
               : "memory");
}
__device__ __forceinline__ void read_cells(const uint64_t* cells, uint64_t (&values)[2]) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(values[0]), "=l"(values[1])
               : "l"(cells)
               : "memory");
}

// The values of `rows` x `count` cells into `words`, whose rows are `pitch` words apart; shared by
// the multiplying warps. With more than one row, and for what is read beyond the last cell, `count`
// is even. Several loads of a thread are under way at a time.
static __device__ __noinline__ void take_cells(const uint64_t* cells, int rows, int count,
                                               int pitch, uint32_t number, uint32_t* words) {
  constexpr int kBatch = 4, kStep = kFusedMultipliers * 2;
  const int all = rows * count;
  const auto ready = [&](const uint64_t(&pair)[2], int i) {
    return static_cast<uint32_t>(pair[0] >> 32) == number &&
           (i + 1 >= all || static_cast<uint32_t>(pair[1] >> 32) == number);
  };
#pragma unroll 1
  for (int base = static_cast<int>(threadIdx.x) * 2; base < all; base += kBatch * kStep) {
    uint64_t pairs[kBatch][2];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (base + j * kStep < all) read_cells(cells + base + j * kStep, pairs[j]);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = base + j * kStep;
      if (i >= all) break;
      while (!ready(pairs[j], i)) read_cells(cells + i, pairs[j]);
      uint32_t* target = words + i / count * pitch + i % count;
      target[0] = static_cast<uint32_t>(pairs[j][0]);
      if (i + 1 < all) target[1] = static_cast<uint32_t>(pairs[j][1]);
    }
  }
}

}  // namespace frt::cuda
