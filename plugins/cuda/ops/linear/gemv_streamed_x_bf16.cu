// SPDX-License-Identifier: Apache-2.0
// GEMVs of nine to sixteen rows with BF16 weights: the same bits as the streaming kernel
// (gemv_stream.cuh), whose ring has no room left where x is long.
//
// Floor: the bytes of the weights / 4.65 TB/s on an H200. x comes from L2 again and again, a
// quarter of what the weights are.
//
// A cluster (of one block, or of the two that share columns) has neighbouring tiles of 16 weight
// rows and takes up to four of them at a time, a pass, in steps of 128 columns. Weights and x
// arrive through a ring in shared memory, asynchronously; it goes on through the passes, and its
// first weights are asked for before pdl_wait(). Two blocks fit on an SM.
//
// What makes the bits the same: the streaming kernel's four warps take chunks of 64 columns in
// turn, each with two chains of products, and their sums are added in the order of warps. Here a
// warp has a tile and one half of each step: chunks 0, 2, 4 ... or 1, 3, 5 ...; it keeps the chains
// of two of those four warps apart. Fragments hold the same columns, and the columns are divided
// among blocks as there (plan_gemv()).
#include "../common/cluster.cuh"
#include "../common/mma.cuh"
#include "gemv.hpp"
#include "gemv_stream.cuh"

namespace frt::cuda {
namespace {

using namespace gemv;

constexpr int kThreads = 256;
constexpr int kPassTiles = 4;
constexpr int kTileRows = 16;  // of weights; and rows of x
constexpr int kStages = 4;
constexpr int kStepBytes = 256;              // of a row
constexpr int kStepUnits = kStepBytes / 16;  // of 16 bytes
constexpr int kStepCols = kStepBytes / 2;
constexpr int kTileBytes = kTileRows * kStepBytes;
constexpr int kWeightBytes = kPassTiles * kTileBytes;
constexpr int kStageBytes = kWeightBytes + kTileBytes;
constexpr int kLaneSums = 8;  // of a tile
constexpr int kTileSums = kLaneSums * 32;
constexpr int kOtherBytes = kPassTiles * 2 * kTileSums * 4;  // sums of the warps with odd chunks
static_assert(kThreads == kTileRows * kStepUnits && kThreads == kPassTiles * 2 * 32);

// Two rows side by side share no bank where a quarter of a warp reads four units of each.
__device__ __forceinline__ int place(int row, int unit) {
  return row * kStepBytes + ((unit ^ (row & 1) << 2) << 4);
}

// The tiles of a cluster, and how they are cut into passes.
struct Passes {
  int first, tiles, count;

  __device__ Passes(const GemvArgs& a, int cluster) {
    const auto begin = [&](int index) {
      return static_cast<int>(static_cast<int64_t>(a.tiles) * index / a.clusters);
    };
    first = begin(cluster);
    tiles = begin(cluster + 1) - first;
    count = (tiles + kPassTiles - 1) / kPassTiles;
  }
  __device__ int begin(int pass) const { return first + tiles * pass / count; }
};

// What a thread copies of each step: the unit threadIdx.x % 16 of weight row threadIdx.x / 16 of
// each tile of the pass. Runs ahead of the products by the length of the ring.
struct WeightCopies {
  const uint8_t* rows[kPassTiles];  // NULL: no such tile
  int pass = -1, step = 0;

  __device__ __forceinline__ void open(const GemvArgs& a, const Passes& passes, int first_byte) {
    const int row = static_cast<int>(threadIdx.x) / kStepUnits;
    const int begin = passes.begin(pass), end = passes.begin(pass + 1);
#pragma unroll
    for (int i = 0; i < kPassTiles; ++i) {
      rows[i] = nullptr;
      if (begin + i >= end) continue;
      int local;
      const GemvPart& part = a.parts[part_of(a, begin + i, local)];
      const GemvMatrix& matrix = row < 8 ? part.low : part.high;
      // Rows beyond the last are read as the last one, and not stored.
      const int index =
          min(row < 8 ? low_row(a, local) + row : high_row(a, local) + row - 8, part.rows - 1);
      rows[i] = matrix.data + static_cast<int64_t>(index) * part.row_bytes + first_byte;
    }
  }

  // The next step of `steps` in each pass, to the stage at `target`.
  __device__ __forceinline__ void copy(const GemvArgs& a, const Passes& passes, int steps,
                                       int first_col, uint32_t target) {
    const int row = static_cast<int>(threadIdx.x) / kStepUnits;
    const int unit = static_cast<int>(threadIdx.x) % kStepUnits;
    if (pass < 0 || step == steps) {
      ++pass;
      step = 0;
      open(a, passes, (first_col + unit * 8) * 2);
    }
    const bool valid = first_col + step * kStepCols + unit * 8 < a.cols;
#pragma unroll
    for (int i = 0; i < kPassTiles; ++i) {
      copy16(target + static_cast<uint32_t>(i * kTileBytes + place(row, unit)),
             rows[i] + (valid ? step * kStepBytes : 0), valid, rows[i] != nullptr);
    }
    ++step;
  }
};

// Even and odd chains of one of the streaming kernel's warps, for eight rows of x each.
using Sums = TileSums<2>;

// One chunk of 64 columns; `weights`, `x`: this lane's first unit there, by row of the tile and of
// x (low, high) and by half of the chunk.
__device__ __forceinline__ void multiply_chunk(const uint8_t* stage, int tile, int half, int g,
                                               int t, Sums& sums) {
  const uint8_t* const weights = stage + tile * kTileBytes;
  const uint8_t* const x = stage + kWeightBytes;
  const int unit = half * 8 + t;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    const uint4 low = load_shared(weights + place(g, unit + piece * 4));
    const uint4 high = load_shared(weights + place(g + 8, unit + piece * 4));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4 b = load_shared(x + place(h * 8 + g, unit + piece * 4));
      mma_bf16(sums.even[h], low.x, high.x, low.y, high.y, b.x, b.y);
      mma_bf16(sums.odd[h], low.z, high.z, low.w, high.w, b.z, b.w);
    }
  }
}

__device__ __forceinline__ float chain(const Sums& sums, int i) {
  return sums.even[i / 4][i % 4] + sums.odd[i / 4][i % 4];
}

__global__ void __launch_bounds__(kThreads, 2)
    gemv_streamed_x_bf16(const __grid_constant__ GemvArgs a) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, g = lane / 4, t = lane % 4;
  const int tile = thread / 32 % kPassTiles, half = thread / 32 / kPassTiles;
  const int rank = cluster_rank(a);
  const bool split = a.split > 1;
  const Passes passes(a, cluster_index(a));
  const int first_col = rank * a.part_cols;
  const int steps = (min(a.cols - first_col, a.part_cols) + kStepCols - 1) / kStepCols;
  const int items = passes.count * steps;
  const uint32_t ring = shared_address(shared);

  WeightCopies copies;
#pragma unroll 1
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < items) {
      copies.copy(a, passes, steps, first_col, ring + static_cast<uint32_t>(s * kStageBytes));
    }
    copies_commit();
  }
  pdl_wait();
  pdl_trigger();  // only now, as the streaming kernel

  // x: one unit of one row per thread and step; zeros beyond the last row and column.
  const int x_row = thread / kStepUnits, x_unit = thread % kStepUnits;
  const int x_col = first_col + x_unit * 8;
  const uint32_t x_place = static_cast<uint32_t>(kWeightBytes + place(x_row, x_unit));
  const uint8_t* const x =
      static_cast<const uint8_t*>(a.x) + (x_row < a.rows ? x_row * a.x_stride + x_col : 0) * 2;
  const auto x_there = [&](int step) {
    return x_row < a.rows && x_col + step * kStepCols < a.cols;
  };
  uint4 early[kStages - 1];
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    const int step = s % steps;
    early[s] = make_uint4(0, 0, 0, 0);
    if (x_there(step)) early[s] = __ldcg(reinterpret_cast<const uint4*>(x + step * kStepBytes));
  }
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    *reinterpret_cast<uint4*>(shared + s * kStageBytes + x_place) = early[s];
  }
  const int active = active_rows(a.rows, a.row_count);

  float* const other = reinterpret_cast<float*>(shared + kStages * kStageBytes);
  // (tile, value of a lane, lane): of this block's columns, where two blocks share them
  float* const shares = other + kOtherBytes / 4;
  Sums sums[2];  // of even steps, of odd ones
  int pass = 0, step = 0;
  for (int item = 0; item < items; ++item) {
    copies_wait<kStages - 2>();
    __syncthreads();  // this step is there, and nobody needs the one before
    const int ahead = item + kStages - 1;
    if (ahead < items) {
      const uint32_t stage = ring + static_cast<uint32_t>(ahead % kStages * kStageBytes);
      copies.copy(a, passes, steps, first_col, stage);
      const int x_step = ahead % steps;
      const bool there = x_there(x_step);
      copy16(stage + x_place, x + (there ? x_step * kStepBytes : 0), there, true);
    }
    copies_commit();
    const uint8_t* const stage = shared + item % kStages * kStageBytes;
    if (step % 2 == 0) {
      multiply_chunk(stage, tile, half, g, t, sums[0]);
    } else {
      multiply_chunk(stage, tile, half, g, t, sums[1]);
    }
    if (++step < steps) continue;

    const int own = passes.begin(pass) + tile;
    const bool there = own < passes.begin(pass + 1);
    float* const others = other + tile * 2 * kTileSums + lane;
    if (half == 1) {
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) {
        others[i * 32] = chain(sums[0], i);
        others[kTileSums + i * 32] = chain(sums[1], i);
      }
    }
    __syncthreads();
    if (half == 0 && there) {
      float total[kLaneSums];
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) {
        total[i] =
            chain(sums[0], i) + others[i * 32] + chain(sums[1], i) + others[kTileSums + i * 32];
      }
      if (split) {
#pragma unroll
        for (int i = 0; i < kLaneSums; ++i) {
          shares[(own - passes.first) * kTileSums + i * 32 + lane] = total[i];
        }
      } else {
        store_tile<2>(a, own, active, g, t, total);
      }
    }
    sums[0] = sums[1] = Sums{};
    step = 0;
    ++pass;
  }
  if (!split) return;
  cluster_barrier();
  for (int own = rank + 2 * (thread / 32); own < passes.tiles; own += 2 * (kThreads / 32)) {
    float total[kLaneSums];
#pragma unroll
    for (int i = 0; i < kLaneSums; ++i) {
      const float* const share = shares + own * kTileSums + i * 32 + lane;
      total[i] = read_rank(share, 0) + read_rank(share, 1);
    }
    store_tile<2>(a, passes.first + own, active, g, t, total);
  }
  cluster_barrier();  // nobody leaves while the other reads its memory
}

}  // namespace

void launch_gemv_streamed_x_bf16(Stream& stream, const GemvArgs& args) {
  GemvArgs a = args;
  a.clusters = std::min(2 * stream.device().properties().multiprocessors / a.split, a.tiles);
  const int64_t shares = a.split > 1 ? ceil_div(a.tiles, a.clusters) * kTileSums * 4 : 0;
  const Grid grid{dim3(static_cast<unsigned>(a.clusters * a.split)), dim3(kThreads),
                  static_cast<std::size_t>(kStages * kStageBytes + kOtherBytes + shares),
                  static_cast<unsigned>(a.split)};
  launch(stream, grid, gemv_streamed_x_bf16, a);
  stream.allow_early_reads();  // it triggers after its wait
}

}  // namespace frt::cuda
