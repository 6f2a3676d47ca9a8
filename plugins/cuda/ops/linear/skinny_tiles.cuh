// SPDX-License-Identifier: Apache-2.0
// skinny_tiles.cuh - what products of a chunk of rows have in common, whatever the type of their
// values (skinny_gemm.cu, dense/skinny_fp8.cu): a tile's weights and rows of x on their way to
// shared memory, sums that two halves of the warps and the blocks of a cluster add up, and how many
// blocks share a tile.
//
// A step is 256 bytes of each row, in 16-byte units: unit u of row r lies at u ^ r % 8, so that
// ldmatrix has no bank conflicts. First the weights of a tile, then the rows of x.
#pragma once

#include "../common/cluster.cuh"
#include "../common/launch.cuh"
#include "../common/mma.cuh"

namespace frt::cuda::skinny {

inline constexpr int kThreads = 256;
inline constexpr int kOutputs = 64;    // of a tile
inline constexpr int kRowBytes = 256;  // of a step
inline constexpr int kUnits = kRowBytes / 16;
inline constexpr int kWeightBytes = kOutputs * kRowBytes;
inline constexpr int kSumStride = kOutputs + 4;  // floats
inline constexpr int kMostSplits = 8;
template <class T>
inline constexpr int kInputs = kRowBytes / static_cast<int>(sizeof(T));  // of a step
template <int kTiles>
inline constexpr int kStageBytes = kWeightBytes + kTiles * 8 * kRowBytes;

__device__ __forceinline__ uint32_t place(int row, int unit) {
  return static_cast<uint32_t>(row * kRowBytes + ((unit ^ (row & 7)) << 4));
}

// The rows of weights of a tile.
template <class T>
struct Tile {
  const T* weight;
  const T* up;  // of the second half of the tile, or NULL
  int first, outputs;

  __device__ __forceinline__ const T* row(int n, int64_t inputs, bool& there) const {
    const T* matrix = weight;
    int output = first + n;
    if (up && n >= kOutputs / 2) {
      matrix = up;
      output -= kOutputs / 2;
    }
    there = output < outputs && (!up || output < first + kOutputs / 2);
    return matrix + (there ? output : 0) * inputs;
  }
};

template <class T>
__device__ __forceinline__ void load_weights(uint32_t to, const Tile<T>& tile, int step,
                                             int inputs) {
  const int unit = static_cast<int>(threadIdx.x) % kUnits;
  const int column = step * kInputs<T> + unit * (kInputs<T> / kUnits);
#pragma unroll
  for (int i = 0; i < kOutputs * kUnits / kThreads; ++i) {
    const int n = i * (kThreads / kUnits) + static_cast<int>(threadIdx.x) / kUnits;
    bool there;
    const T* row = tile.row(n, inputs, there);
    there = there && column < inputs;
    copy_async_or_zero(to + place(n, unit), row + (there ? column : 0), there);
  }
}

// `Input`: x, x_stride, rows, inputs. kAsync: copies of the current group; otherwise at once,
// through registers.
template <class T, int kTiles, bool kAsync, class Input>
__device__ __forceinline__ void load_x(uint32_t to, const Input& in, int step) {
  const int unit = static_cast<int>(threadIdx.x) % kUnits;
  const int column = step * kInputs<T> + unit * (kInputs<T> / kUnits);
#pragma unroll
  for (int i = 0; i < kTiles * 8 * kUnits / kThreads; ++i) {
    const int n = i * (kThreads / kUnits) + static_cast<int>(threadIdx.x) / kUnits;
    const bool there = n < in.rows && column < in.inputs;
    const T* from = static_cast<const T*>(in.x) + (there ? n * in.x_stride + column : 0);
    if constexpr (kAsync) {
      copy_async_or_zero(to + place(n, unit), from, there);
    } else {
      uint4 value = make_uint4(0, 0, 0, 0);
      if (there) value = *reinterpret_cast<const uint4*>(from);
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + place(n, unit)),
                   "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
                   : "memory");
    }
  }
}

// Four warps have the 64 outputs for one half of a step's inputs, four others for the other half:
// `c` of all to (rows, kSumStride) floats. Ends with a barrier.
template <int kTiles>
__device__ __forceinline__ void add_halves(float* sums, const float (&c)[kTiles][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (warp / 4 == half) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float& sum = sums[(i * 8 + 2 * (lane % 4) + j % 2) * kSumStride + warp % 4 * 16 +
                            lane / 4 + j / 2 * 8];
          sum = half == 0 ? c[i][j] : sum + c[i][j];
        }
      }
    }
    __syncthreads();
  }
}

// Two of a row's sums, of all blocks of the cluster in the order of ranks.
__device__ __forceinline__ float2 add_splits(const float2* at, int splits) {
  float2 z = *at;
  if (splits > 1) {
    z = make_float2(0, 0);
    for (int r = 0; r < splits; ++r) {
      const float2 share = read_rank(at, r);
      z.x += share.x;
      z.y += share.y;
    }
  }
  return z;
}

// The number of blocks that share a tile, where an SM has room for `blocks_each`: fewest
// steps until the last block has ended, a block's own beginning and end counted as three.
inline int splits_for(const Device& device, int64_t tiles, int steps, int blocks_each) {
  if (!device.has(feature::kClusters)) return 1;
  const int64_t places = int64_t{device.properties().multiprocessors} * blocks_each;
  int best = 1;
  int64_t least = INT64_MAX;
  for (int splits = 1; splits <= kMostSplits; splits *= 2) {
    const int64_t each = ceil_div(steps, splits);
    const int64_t cost = ceil_div(tiles * splits, places) * (each + 3);
    if (cost >= least) continue;
    least = cost;
    best = splits;
  }
  return best;
}

}  // namespace frt::cuda::skinny
