// SPDX-License-Identifier: Apache-2.0
// sample.cuh - what the kernels of frt.sample/1 leave for each other (sample.cu tells the story).
//
// Probabilities are integers: the weight of a token, exp((logit - largest) / temperature) <= 1, in
// units of 2^-44. Sums of integers have no order, so any number of threads may add them and the
// result is the same bits. A token below 2^-45 of the largest weighs nothing: it counts for top_k,
// and is never drawn.
#pragma once

#include <frt/ops/sample.h>

#include "../../stream.hpp"
#include "keys.cuh"

namespace frt::cuda {

inline constexpr int kBins = 2048;          // of the histogram
inline constexpr float kReach = 32.0f;      // its farthest end: exp(-32) weighs nothing
inline constexpr float kUnit = 0x1p44f;     // weight 1
inline constexpr float kNever = -INFINITY;  // a logit that is not allowed

// Of one row, from the first two kernels.
struct SampleRow {
  float largest, least;  // allowed logits
  float factor;          // (largest - logit) * factor is the bin
  float log_sum;         // logarithm of the sum of exp(logit - largest)
  uint32_t draws;        // 1: a token must be drawn; 0: the row is done
};

// Working memory; `count` rows that get a token.
struct SampleWork {
  uint64_t* keys;    // (count, chunks) winners
  float* sums;       // (count, chunks) of exp(logit - the winner's)
  float* least;      // (count, chunks)
  SampleRow* rows;   // (count)
  uint64_t* masses;  // (count, kBins) weights in the bin
  uint32_t* tokens;  // (count, kBins) tokens in the bin
  float* logits;     // (count, padded) after mask, bias and penalties; kNever beyond the vocabulary
  int64_t padded;    // a multiple of 4
  int chunks;

  __device__ uint64_t* masses_of(int b) const { return masses + static_cast<int64_t>(b) * kBins; }
  __device__ uint32_t* tokens_of(int b) const { return tokens + static_cast<int64_t>(b) * kBins; }
  __device__ float* logits_of(int b) const { return logits + b * padded; }
};

// Rows of a sequence that get a token: one, or with `fed` all of them.
__host__ __device__ inline int rows_drawn(const frt_sample_args& args) {
  return args.fed ? args.sequences.rows : 1;
}

// A row that may get a token.
struct DrawnRow {
  int sequence, row;  // row: of the sequence

  __device__ DrawnRow(const frt_sample_args& args, int index)
      : sequence(index / rows_drawn(args)), row(index % rows_drawn(args)) {}
  __device__ bool active(const frt_sample_args& args) const {
    return row < active_length(args.sequences, sequence);
  }
};

// The third kernel: draws where rows[b].draws says so.  [driver]
void launch_draw(Stream& stream, const frt_sample_args& args, const SampleWork& work);

__device__ __forceinline__ bool draws(const frt_sampling_params& params) {
  return params.temperature > 0.0f;
}

// logit - largest; 0 where both are the same infinity.
__device__ __forceinline__ float below(float logit, float largest) {
  return logit == largest ? 0.0f : logit - largest;
}

// Never rises as the logit falls.
__device__ __forceinline__ int bin_of(float logit, const SampleRow& row) {
  if (logit == row.largest) return 0;
  return min(__float2int_rz((row.largest - logit) * row.factor), kBins - 1);
}

__device__ __forceinline__ float weight_of(float logit, float largest, float temperature) {
  return expf(below(logit, largest) / temperature);
}

__device__ __forceinline__ uint64_t units_of(float weight) {
  return weight > 0.0f ? __float2ull_rn(weight * kUnit) : 0;
}

// The result of row `b`, by one thread; `pending` is there only where rows are sequences.
__device__ __forceinline__ void write_token(const frt_sample_args& args, int b, int32_t id,
                                            float log_probability) {
  args.ids[b] = id;
  if (args.pending) {
    *reinterpret_cast<int32_t*>(static_cast<std::byte*>(args.pending) +
                                args.sequences.slot[b] * args.pending_stride) = id;
  }
  if (args.log_probabilities) args.log_probabilities[b] = log_probability;
}

// Counts and weights by bin, in shared memory.
struct Tallies {
  uint32_t tokens[kBins];
  uint32_t low[kBins], high[kBins];  // of the 64-bit weight

  __device__ uint64_t mass(int bin) const {
    return static_cast<uint64_t>(high[bin]) << 32 | low[bin];
  }
  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += static_cast<int>(blockDim.x)) {
      tokens[i] = low[i] = high[i] = 0;
    }
  }
  __device__ void add_to(int bin, uint32_t count, uint64_t units) {
    atomicAdd(&tokens[bin], count);
    const auto part = static_cast<uint32_t>(units);
    const uint32_t before = atomicAdd(&low[bin], part);
    const uint32_t rest = static_cast<uint32_t>(units >> 32) + (before + part < before ? 1 : 0);
    if (rest) atomicAdd(&high[bin], rest);
  }
  // One token per lane of the whole warp; bin -1: none. Lanes that share a bin with the first one
  // add together: where thousands of logits are equal, one address would take them all.
  __device__ void add(int bin, uint64_t units) {
    unsigned todo = __ballot_sync(~0u, bin >= 0);
    bool mine = bin >= 0;
#pragma unroll
    for (int round = 0; round < 2; ++round) {
      if (!todo) break;
      const int leader = __ffs(static_cast<int>(todo)) - 1;
      const unsigned same = __ballot_sync(~0u, bin == __shfl_sync(~0u, bin, leader));
      todo &= ~same;
      if (__popc(same) < 4) continue;
      if (same >> threadIdx.x % 32 & 1) {
        const uint32_t low_sum = __reduce_add_sync(same, static_cast<uint32_t>(units & 0xFFFFFFu));
        const uint32_t high_sum = __reduce_add_sync(same, static_cast<uint32_t>(units >> 24));
        if (static_cast<int>(threadIdx.x % 32) == leader) {
          add_to(bin, static_cast<uint32_t>(__popc(same)),
                 (static_cast<uint64_t>(high_sum) << 24) + low_sum);
        }
        mine = false;
      }
      __syncwarp();
    }
    if (mine) add_to(bin, 1, units);
    __syncwarp();
  }
};

}  // namespace frt::cuda
