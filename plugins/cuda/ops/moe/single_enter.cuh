// SPDX-License-Identifier: Apache-2.0
// single_enter.cuh - of the decode kernel for one row (single_kernel.cu): what lies in
// front of the experts. A thread has four columns of x and of every weight row of its block.
#pragma once

#include "../common/arch.cuh"
#include "../common/async_copy.cuh"
#include "single.cuh"

namespace frt::cuda {

template <MoeFormat kFormat>
struct Shape : Single {
  static constexpr bool kFp8 = kFormat == MoeFormat::kFp8;
  static constexpr int kBytes = kFp8 ? 1 : 2;  // of a weight
  static constexpr int kPiece = 128 / kBytes;  // columns of 128 bytes
  static constexpr int kSteps = kInputs / kParts / kPiece;
  static constexpr int kWindow = 4;                  // steps of gate and up under way
  static constexpr int kPieces = kWidth / kPiece;    // of a row of `down`
  static constexpr int kSharers = kWarps / kPieces;  // warps with the same columns of `down`
  static constexpr int kItems = (kTopK + kSharers) / kSharers;  // of a warp, the shared one last
  static_assert(kSteps >= kWindow && kTopK % kSharers == 0 && kItems <= kWindow + 1);
  static constexpr int kXWords = kInputs / 2, kHiddenWords = kItems * kPiece / 2;
};

template <MoeFormat kFormat>
struct Memory {
  using S = Shape<kFormat>;
  alignas(16) uint8_t down[S::kWarps][S::kItems][2048];
  alignas(16) uint32_t x[S::kXWords];
  alignas(16) uint32_t hidden[S::kWarps][S::kHiddenWords];
  float squares[S::kWarps];
  unsigned peaks[S::kWarps];
  float router_sums[S::kWarps * 2], shared_sums[S::kWarps * 8];
  float parts[S::kWarps / S::kParts][S::kParts][16];
  float results[S::kWarps][S::kColumns + 1];
  float weights[S::kWarps][S::kTopK];
  Choice choice;
};

#if FRT_ARCH_CLUSTERS

static_assert(sizeof(Memory<MoeFormat::kBf16>) <= Single::kSharedBytes);

// ---- before the kernel in front has ended -------------------------------------------------------

template <MoeFormat kFormat>
struct Lines {
  uint2 router[2], shared[8];  // shared: four rows of gate, four of up
  float norm[4], scales[2];

  __device__ __forceinline__ explicit Lines(const SingleArgs& args) {
    using S = Shape<kFormat>;
    const int block = static_cast<int>(blockIdx.x), column = static_cast<int>(threadIdx.x) * 4;
    const bool last = block == S::kBlocks;  // it has the shared expert's scale instead
    const uint8_t* rows =
        (last ? args.shared_scale : args.router + block * 2 * S::kInputs * 2) + column * 2;
    router[0] = router[1] = make_uint2(0u, 0u);
    if (last || block * 2 < args.experts) router[0] = *reinterpret_cast<const uint2*>(rows);
    if (block * 2 < args.experts)
      router[1] = *reinterpret_cast<const uint2*>(rows + S::kInputs * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) norm[i] = 1.0f;
    if (args.norm.residual) {
      const float4 four = *reinterpret_cast<const float4*>(args.norm.weight + column);
      norm[0] = four.x;
      norm[1] = four.y;
      norm[2] = four.z;
      norm[3] = four.w;
    }
    if (last) return;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const SingleMatrix& matrix = m == 0 ? args.shared_gate : args.shared_up;
      const uint8_t* data = matrix.data + (block * 4 * S::kInputs + column) * S::kBytes;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint8_t* own = data + i * S::kInputs * S::kBytes;
        shared[m * 4 + i] = S::kFp8 ? make_uint2(*reinterpret_cast<const uint32_t*>(own), 0u)
                                    : *reinterpret_cast<const uint2*>(own);
      }
      scales[m] = S::kFp8 ? load_scale(matrix.scale, args.shared_scale_bf16,
                                       block / 32 * (S::kInputs / 128) + column / 128)
                          : 1.0f;
    }
  }
};

// A piece of `down`: sixteen rows of an expert. `data`: where this lane's begins in row 0.
template <MoeFormat kFormat>
__device__ __forceinline__ void fetch_down(Memory<kFormat>& memory, int item, const uint8_t* data) {
  using S = Shape<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t target = shared_address(memory.down[warp][item]) + lane * 16;
#pragma unroll
  for (int j = 0; j < 4; ++j) copy_async(target + j * 512, data + j * 4 * S::kWidth * S::kBytes);
}

// ---- norm, router, shared expert ---------------------------------------------------------------

// x, in shared memory as the experts take it and in this thread's registers; returns the inverse of
// the power of two in shared memory.
template <MoeFormat kFormat>
__device__ __forceinline__ float norm_row(const SingleArgs& args, const Lines<kFormat>& lines,
                                          Memory<kFormat>& memory, const float (&values)[4],
                                          float (&x)[4], uint2& packed) {
  using S = Shape<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float squares = 0.0f, peak = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    squares = fmaf(values[i], values[i], squares);
    peak = fmaxf(peak, fabsf(values[i] * lines.norm[i]));
  }
  squares = warp_sum(squares);
  if (lane == 0) memory.squares[warp] = squares;
  if constexpr (S::kFp8) {
    const unsigned most = __reduce_max_sync(~0u, __float_as_uint(peak));
    if (lane == 0) memory.peaks[warp] = most;
  }
  __syncthreads();
  float factor = 1.0f;
  if (args.norm.residual) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < S::kWarps; ++w) sum += memory.squares[w];
    factor = rsqrtf(sum / static_cast<float>(S::kInputs) + args.norm.epsilon);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = values[i] * factor * lines.norm[i];
  packed = pack_four(x);
  dequantise_four(packed, x);
  uint2 words = packed;
  float inverse = 1.0f;
  if constexpr (S::kFp8) {
    const unsigned most = __reduce_max_sync(~0u, memory.peaks[lane % S::kWarps]);
    const unsigned exponent = __float_as_uint(__uint_as_float(most) * factor) >> 23;
    const float unit = unit_of(exponent);
    inverse = inverse_unit_of(exponent);
    words = make_uint2(pack_f16(x[0] * unit, x[1] * unit), pack_f16(x[2] * unit, x[3] * unit));
  }
  *reinterpret_cast<uint2*>(memory.x + threadIdx.x * 2) = words;
  return inverse;
}

// Two logits, or the shared expert's scale, to the others.
template <MoeFormat kFormat>
__device__ __forceinline__ void tell_logits(const SingleArgs& args, const Lines<kFormat>& lines,
                                            Memory<kFormat>& memory, const float (&x)[4],
                                            uint32_t number) {
  float products[2] = {dot_four<MoeFormat::kBf16>(lines.router[0], x),
                       dot_four<MoeFormat::kBf16>(lines.router[1], x)};
  tell_warp_sums(products, memory.router_sums);
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const float sum = sum_warps<2>(memory.router_sums);
  if (threadIdx.x % 16 != 0) return;
  const int block = static_cast<int>(blockIdx.x), line = threadIdx.x / 16;
  if (block * 2 < args.experts) {
    write_cell(args.cells + block * 2 + line, __float_as_uint(sum), number);
    args.logits[block * 2 + line] = sum;
  } else if (block == Single::kBlocks && line == 0) {
    write_cell(args.cells + Single::kScaleCell, __float_as_uint(sum), number);
  }
}

// Four hidden values of the shared expert: the warps' sums ...
template <MoeFormat kFormat>
__device__ __forceinline__ void sum_shared(const Lines<kFormat>& lines, Memory<kFormat>& memory,
                                           const float (&x)[4]) {
  using S = Shape<kFormat>;
  float products[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    products[i] = dot_four<kFormat>(lines.shared[i], x);
    if (S::kFp8) products[i] *= lines.scales[i / 4];
  }
  tell_warp_sums(products, memory.shared_sums);
}

// ... and, behind a barrier, the results to the others, by one warp.
template <MoeFormat kFormat>
__device__ __forceinline__ void tell_shared(const SingleArgs& args, const Memory<kFormat>& memory,
                                            uint32_t number) {
  using S = Shape<kFormat>;
  const float sum = sum_warps<8>(memory.shared_sums);
  const float hidden = gated_bf16(sum, __shfl_down_sync(~0u, sum, 16));
  const float next = __shfl_down_sync(~0u, hidden, 4);
  const int lane = threadIdx.x % 32;
  if (lane != 0 && lane != 8) return;
  const __nv_bfloat162 pair = __floats2bfloat162_rn(hidden, next);
  write_cell(args.cells + S::kHiddenCells + S::kTopK * S::kItemCells + blockIdx.x * 2 + lane / 8,
             *reinterpret_cast<const uint32_t*>(&pair), number);
}

__device__ __forceinline__ uint64_t read_cell(const uint64_t* cell) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(cell) : "memory");
  return value;
}
__device__ __forceinline__ bool late(const uint64_t (&pair)[2], uint32_t number) {
  return static_cast<uint32_t>(pair[0] >> 32) != number ||
         static_cast<uint32_t>(pair[1] >> 32) != number;
}

// When the logits of all blocks are there, for which the first warps wait.
__device__ __forceinline__ void select(const SingleArgs& args, Choice& choice, uint32_t number) {
  const int expert = static_cast<int>(threadIdx.x);
  const bool inside = expert < args.experts;
  uint64_t cell = static_cast<uint64_t>(number) << 32;
  do {
    if (inside) cell = read_cell(args.cells + expert);
  } while (!__all_sync(~0u, static_cast<uint32_t>(cell >> 32) == number));
  choice.select(inside ? __uint_as_float(static_cast<uint32_t>(cell)) : -INFINITY, inside);
}

// x and the residual, by the last block when all others have published that they read their own.
__device__ __forceinline__ void leave_row(const SingleArgs& args, const float (&values)[4],
                                          uint2 packed, uint32_t number) {
  if (!args.norm.residual) return;
  const int own = static_cast<int>(threadIdx.x);
  if (own < Single::kItemCells / 2) {
    const uint64_t* cells =
        args.cells + Single::kHiddenCells + Single::kTopK * Single::kItemCells + own * 2;
    uint64_t pair[2];
    do {
      read_cells(cells, pair);
    } while (late(pair, number));
  }
  __syncthreads();
  *reinterpret_cast<uint2*>(args.x + own * 4) = packed;
  if (args.norm.delta) store_residual_four(args.norm, own * 4, values);
}

#endif

}  // namespace frt::cuda
