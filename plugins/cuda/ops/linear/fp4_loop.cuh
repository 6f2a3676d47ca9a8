// SPDX-License-Identifier: Apache-2.0
// fp4_loop.cuh - a block's sums of a tile of FP4 by FP4 (fp4_tile.hpp): four stages of 128 inputs
// under way by cp.async. Which rows of x and of the weights the tile has its kernel says, thread by
// thread, so dense and grouped products share the loop.
#pragma once

#include "../common/async_copy.cuh"
#include "../common/mma.cuh"
#include "../common/mma_fp4.cuh"
#include "fp4_tile.hpp"

namespace frt::cuda {

// A row as a thread brings it: its first byte in memory, or any address where there is none, which
// is zeros then.
struct Fp4Row {
  const uint8_t* at;
  bool there;
};

// A thread's rows of one side, x or weights, aligned to 16 bytes each: of values those of the
// tile's rows Fp4Loop::value_row(0) and (1), of scales that of Fp4Loop::scale_row().
struct Fp4Lines {
  Fp4Row values[2];
  Fp4Row scales;
};

class Fp4Loop {
 public:
  // `whole_scales`: rows of weight scales are aligned to 16 bytes and inputs are a multiple of 256;
  // otherwise they are aligned to four.
  __device__ __forceinline__ Fp4Loop(unsigned char* shared, int inputs, bool whole_scales)
      : shared_(shared),
        base_(shared_address(shared)),
        inputs_(inputs),
        steps_((inputs + kFp4StageInputs - 1) / kFp4StageInputs),
        whole_scales_(whole_scales) {}

  static __device__ __forceinline__ int value_row(int i) {
    return static_cast<int>(threadIdx.x) / kChunks + i * (kFp4Threads / kChunks);
  }
  // The first half of the threads brings scales of x, the second those of the weights.
  static __device__ __forceinline__ int scale_row() {
    return static_cast<int>(threadIdx.x) % kFp4TileRows;
  }

  // Asks for the first stages of the weights, before x is there.
  __device__ __forceinline__ void start_weights(const Fp4Lines& weights) const {
    for (int step = 0; step < kFp4Stages - 1 && step < steps_; ++step) load_weights(step, weights);
  }

  // The sums of this warp, after start_weights(). `blocks`: of its four times 16 rows those that
  // are computed, in pairs; the others stay 0.
  __device__ __forceinline__ void run(const Fp4Lines& x, const Fp4Lines& weights, int blocks,
                                      float (&sums)[4][4][4]) const {
    for (int step = 0; step < kFp4Stages - 1; ++step) {
      if (step < steps_) load_x(step, x);
      copies_commit();
    }
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int warp_row = fp4_warp_row(warp), warp_output = fp4_warp_output(warp);
    for (int start = 0; start < steps_; start += 2) {
      uint32_t x_scales[2][4], weight_scales[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int step = start + half;
        if (step >= steps_) break;
        copies_wait<kFp4Stages - 2>();
        __syncthreads();  // the step has arrived for all, and all are done with the one before it
        if (step + kFp4Stages - 1 < steps_) {
          load_weights(step + kFp4Stages - 1, weights);
          load_x(step + kFp4Stages - 1, x);
        }
        copies_commit();
        if (half == 0) {
          const unsigned char* scales = shared_ + (scale_stage(step) - base_);
          read_scales(x_scales[0], scales, fp4_scale_row(warp_row, lane));
          read_scales(x_scales[1], scales, fp4_scale_row(warp_row + 32, lane));
          read_scales(weight_scales, scales, kFp4TileRows + fp4_scale_row(warp_output, lane));
        }
        const uint32_t stage = value_stage(step);
#pragma unroll
        for (int k = 0; k < kFp4StageInputs / 64; ++k) {
          uint32_t b[2][4];
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            load_matrices(b[n],
                          stage + kFp4SideBytes + fp4_weight_place(warp_output + n * 16, k, lane));
          }
          const int word = half * 2 + k;
#pragma unroll
          for (int m = 0; m < 4; m += 2) {
            if (m >= blocks) break;
            uint32_t a[2][4];
            load_matrices(a[0], stage + fp4_x_place(warp_row + m * 16, k, lane));
            load_matrices(a[1], stage + fp4_x_place(warp_row + m * 16 + 16, k, lane));
            const auto multiply = [&]<int kN>() {
              const uint32_t b0 = b[kN / 2][kN % 2 * 2], b1 = b[kN / 2][kN % 2 * 2 + 1];
              mma_fp4<0, kN>(sums[m][kN], a[0], b0, b1, x_scales[m / 2][word], weight_scales[word]);
              mma_fp4<1, kN>(sums[m + 1][kN], a[1], b0, b1, x_scales[m / 2][word],
                             weight_scales[word]);
            };
            multiply.template operator()<0>();
            multiply.template operator()<1>();
            multiply.template operator()<2>();
            multiply.template operator()<3>();
          }
        }
      }
    }
  }

 private:
  static constexpr int kChunks = kFp4StageInputs / 32;  // of a row in a stage
  static_assert(kFp4SideBytes == 2 * 16 * kFp4Threads && kFp4Threads == 2 * kFp4TileRows);

  __device__ __forceinline__ uint32_t value_stage(int step) const {
    return base_ + step % kFp4Stages * kFp4StageBytes;
  }
  __device__ __forceinline__ uint32_t scale_stage(int step) const {
    return base_ + kFp4Stages * kFp4StageBytes + step / 2 % kFp4ScaleStages * kFp4ScaleStageBytes;
  }
  static __device__ __forceinline__ void read_scales(uint32_t (&words)[4],
                                                     const unsigned char* scales, int row) {
    const auto four = *reinterpret_cast<const uint4*>(scales + row * 16);
    words[0] = four.x;
    words[1] = four.y;
    words[2] = four.z;
    words[3] = four.w;
  }

  __device__ __forceinline__ void load_values(uint32_t side, int step,
                                              const Fp4Row (&rows)[2]) const {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const bool inside = step * kFp4StageInputs + chunk * 32 < inputs_;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool there = rows[i].there && inside;
      copy_async_or_zero(side + fp4_place(value_row(i), chunk),
                         rows[i].at + (there ? (step * kChunks + chunk) * 16 : 0), there);
    }
  }
  // A step's weights are asked for in the group of its x, or before.
  __device__ __forceinline__ void load_weights(int step, const Fp4Lines& weights) const {
    load_values(value_stage(step) + kFp4SideBytes, step, weights.values);
    if (step % 2 != 0 || threadIdx.x < kFp4TileRows) return;
    const uint32_t target = scale_stage(step) + kFp4ScaleSideBytes + scale_row() * 16;
    const Fp4Row& row = weights.scales;
    const int first = step * kFp4StageInputs / 16;
    if (whole_scales_) {
      copy_async_or_zero(target, row.at + (row.there ? first : 0), row.there);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool there = row.there && first + 4 * i < inputs_ / 16;
      copy_async_cached_or_zero<4>(target + 4 * i, row.at + (there ? first + 4 * i : 0), there);
    }
  }
  __device__ __forceinline__ void load_x(int step, const Fp4Lines& x) const {
    load_values(value_stage(step), step, x.values);
    if (step % 2 != 0 || threadIdx.x >= kFp4TileRows) return;
    const int first = step * kFp4StageInputs / 16;
    const int valid = x.scales.there ? min(16, inputs_ / 16 - first) : 0;
    copy_async_part(scale_stage(step) + scale_row() * 16, x.scales.at + (valid > 0 ? first : 0),
                    valid);
  }

  unsigned char* shared_;
  uint32_t base_;
  int inputs_, steps_;
  bool whole_scales_;
};

}  // namespace frt::cuda
