// SPDX-License-Identifier: Apache-2.0
// Products of up to sixteen rows of x with FP8 or NVFP4 weights, where the rows do not fit into
// shared memory beside a ring of weights (devices with 99 KB, long rows). The bits are those of the
// streaming kernel (gemv_stream.cuh), which would read the weights once for each few rows.
//
// Floor: the bytes of the weights / memory bandwidth. x comes from L2 once per pass: for eight rows
// half as many bytes as NVFP4 weights, a quarter of FP8.
//
// A block has eight warps. A warp takes a tile of 16 weight rows a pass and owns a ring of slots
// for it, as in the streaming kernel. All warps of a block go through the columns together, in
// steps of 256. The block converts the next step of x to f16 in one of two buffers while it
// multiplies the current one; one barrier a step separates the two.
//
// Why the bits are the same: the streaming kernel divides a tile's chunks among kGroup warps, chunk
// c to warp c % kGroup, and adds the warps' sums in order. Here one warp keeps kGroup sums apart
// and adds them in that order. Blocks of a cluster divide the columns in the same way
// (plan_gemv()).
#include "../common/async_copy.cuh"
#include "../common/cluster.cuh"
#include "gemv.hpp"
#include "gemv_stream.cuh"

namespace frt::cuda {
namespace {

using namespace gemv;

constexpr int kThreads = kStreamedXWarps * 32;

// What the kernel holds of its weights' format.
template <bool kFp4>
struct Format {
  using Known =
      std::conditional_t<kFp4, Parts<kind_bit(GemvKind::kNvfp4), true>,
                         Parts<kind_bit(GemvKind::kFp8) | kind_bit(GemvKind::kFp8Block), true>>;
  static constexpr GemvKind kKind = kFp4 ? GemvKind::kNvfp4 : GemvKind::kFp8;
  static constexpr GemvX kX = gemv_x(kKind);
  static constexpr int kChunkCols = gemv_chunk_cols(kKind);
  static constexpr int kChunks = kGemvXUnit / kChunkCols;  // of a step
  static constexpr int kSlotBytes = gemv_slot_bytes(kKind);
  static constexpr int kStages = streamed_x_stages(kFp4);
};

// This warp's rows of one step of x, on their way from L2 to a buffer.
template <bool kFp4, int kHalves>
struct XStep {
  uint4 rows[kHalves];  // row warp + 8 i, this lane's eight columns

  __device__ __forceinline__ void load(const GemvArgs& a, int first_col) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int col = first_col + static_cast<int>(threadIdx.x) % 32 * 8;
#pragma unroll
    for (int i = 0; i < kHalves; ++i) {
      const int row = warp + i * 8;
      rows[i] = make_uint4(0, 0, 0, 0);
      if (row < a.rows && col < a.cols) {
        rows[i] = __ldcg(
            reinterpret_cast<const uint4*>(static_cast<const bf16*>(a.x) + row * a.x_stride + col));
      }
    }
  }

  // `buffer`: (rows, kStreamedXPitch) bytes; `inverses`: f32 (8 kHalves).
  __device__ __forceinline__ void store(const GemvArgs& a, uint8_t* buffer, float* inverses) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kHalves; ++i) {
      const int row = warp + i * 8;
      if (row >= a.rows) break;
      const uint32_t largest = largest_magnitude(rows[i]);
      const uint4 half = scaled_f16(rows[i], x_factor(largest));
      *reinterpret_cast<uint4*>(buffer + row * kStreamedXPitch + x_place(Format<kFp4>::kX, lane)) =
          kFp4 ? order_fp4(half) : half;
      // Rows beyond the last are the last one.
      if (lane < kHalves * 8 && min(lane, a.rows - 1) == row) inverses[lane] = x_inverse(largest);
    }
  }
};

template <bool kFp4, int kHalves, int kGroup>
__global__ void __launch_bounds__(kThreads, 1)
    gemv_streamed_x_quantised(const __grid_constant__ GemvArgs a) {
  using F = Format<kFp4>;
  using Known = typename F::Known;
  constexpr int kLaneSums = kHalves * 4, kTileSums = kLaneSums * 32;
  constexpr int kRows = kHalves * 8;
  constexpr int kBufferBytes = kRows * kStreamedXPitch;
  constexpr int kStepBytes = F::kChunks * F::kSlotBytes;  // of a warp's ring
  // Steps after which chunks meet the same sums again.
  constexpr int kCycle = F::kChunks == 1 ? kGroup : kGroup % 2 == 0 ? kGroup / 2 : kGroup;
  static_assert(F::kChunks <= 2 && kCycle * F::kChunks % kGroup == 0);

  extern __shared__ __align__(128) uint8_t shared[];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, g = lane / 4, t = lane % 4, warp = thread / 32;
  const int rank = cluster_rank(a), cluster = cluster_index(a);
  const bool split = a.split > 1;
  const int own_tiles = (a.tiles - cluster + a.clusters - 1) / a.clusters;
  const int passes = (own_tiles + kStreamedXWarps - 1) / kStreamedXWarps;
  const GroupTiles tiles{cluster + a.clusters * warp, a.clusters * kStreamedXWarps, false, nullptr};
  const int first_col = rank * a.part_cols;
  const int steps = (min(a.cols - first_col, a.part_cols) + kGemvXUnit - 1) / kGemvXUnit;
  const int items = passes * steps;

  uint8_t* const ring = shared + warp * F::kStages * kStepBytes + lane * 16;
  uint8_t* const buffers = shared + kStreamedXWarps * F::kStages * kStepBytes;
  float* const inverses = reinterpret_cast<float*>(buffers + 2 * kBufferBytes);  // (2, kRows)
  float* const shares = inverses + 2 * kRows;  // (tile, value of a lane, lane), where split

  Copies<1> copies;
  copies.tile = copies.next = 0;
  const auto copy_step = [&](int stage) {
    if (copies.template ready<Known>(a, tiles)) {
#pragma unroll
      for (int j = 0; j < F::kChunks; ++j) {
        const bool go = copies.chunks > 0;
        copies.template copy<kFp4, kFp4>(
            shared_address(ring) + static_cast<uint32_t>(stage * kStepBytes + j * F::kSlotBytes),
            go);
        copies.chunks -= go;
      }
    }
    copies_commit();
  };
  for (int stage = 0; stage < F::kStages - 1; ++stage) copy_step(stage);
  float2 next_scales = load_scales<Known, 1>(a, tiles.first, 0);

  pdl_wait();
  pdl_trigger();  // only now, as the streaming kernel

  XStep<kFp4, kHalves> x;
  x.load(a, first_col);
  x.store(a, buffers, inverses);
  x.load(a, first_col + (1 % steps) * kGemvXUnit);
  __syncthreads();
  const int active = active_rows(a.rows, a.row_count);
  int x_row[kHalves];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) x_row[h] = min(h * 8 + g, a.rows - 1);

  for (int pass = 0, item = 0; pass < passes; ++pass) {
    const int tile = tiles.at(a, pass);
    const bool there = tile < a.tiles;
    int local = 0;
    const GemvPart& part = a.parts[there ? part_of<Known>(a, tile, local) : 0];
    const int chunks = there ? own_columns(a, part, F::kKind).chunks : 0;
    const float factors[2] = {load_factor<Known>(a, part, local, g),
                              load_factor<Known>(a, part, local, g + 8)};
    float2 scales = next_scales;
    next_scales = load_scales<Known, 1>(a, tile, 32);
    TileSums<kHalves> sums[kGroup];
    for (int base = 0; base < steps; base += kCycle) {
#pragma unroll
      for (int i = 0; i < kCycle; ++i) {
        const int step = base + i;
        if (step >= steps) break;
        const int buffer = item & 1;
        if (item + 1 < items) {
          x.store(a, buffers + (buffer ^ 1) * kBufferBytes, inverses + (buffer ^ 1) * kRows);
        }
        if (item + 2 < items) x.load(a, first_col + (step + 2) % steps * kGemvXUnit);
        copy_step((item + F::kStages - 1) % F::kStages);
        copies_wait<F::kStages - 1>();
        if (kFp4) __syncwarp();  // the scales were copied by other lanes
        const uint8_t* const slot = ring + item % F::kStages * kStepBytes;
#pragma unroll
        for (int j = 0; j < F::kChunks; ++j) {
          const int chunk = step * F::kChunks + j;
          if (chunk >= chunks) break;
          const uint8_t* rows[kHalves];
#pragma unroll
          for (int h = 0; h < kHalves; ++h) {
            rows[h] = buffers + buffer * kBufferBytes + x_row[h] * kStreamedXPitch + t * 16 +
                      j * F::kChunkCols * 2;
          }
          TileSums<kHalves> one;
          float2 chunk_scales = make_float2(1, 1);
          if constexpr (kFp4) {
            chunk_fp4<kHalves>(slot, slot - lane * 16 + 2048 + g * 16 + t * 2, rows, one);
          } else {
            chunk_fp8<kHalves>(slot + j * F::kSlotBytes, rows, one);
            if (is<Known>(part, GemvKind::kFp8Block)) {
              if (chunk > 0 && chunk % 32 == 0) {
                scales = next_scales;
                next_scales = load_scales<Known, 1>(a, tile, chunk + 32);
              }
              chunk_scales.x = __shfl_sync(~0u, scales.x, chunk % 32);
              chunk_scales.y = __shfl_sync(~0u, scales.y, chunk % 32);
            }
          }
          add_chunk<kHalves>(sums[(i * F::kChunks + j) % kGroup], one,
                             inverses + buffer * kRows + 2 * t, chunk_scales);
        }
        ++item;
        __syncthreads();  // the next step of x is there, and nobody reads this one
      }
    }
    next_scales = load_scales<Known, 1>(a, tiles.at(a, pass + 1), 0);
    if (!there) continue;
    float total[kLaneSums];
#pragma unroll
    for (int i = 0; i < kLaneSums; ++i) {
      total[i] = 0;
#pragma unroll
      for (int w = 0; w < kGroup; ++w) {
        total[i] += sums[w].even[i / 4][i % 4] + sums[w].odd[i / 4][i % 4];
      }
      total[i] *= factors[i % 4 / 2];
    }
    if (!split) {
      store_tile<kHalves>(a, tile, active, g, t, total);
      continue;
    }
    const int own = pass * kStreamedXWarps + warp;
#pragma unroll
    for (int i = 0; i < kLaneSums; ++i) shares[own * kTileSums + i * 32 + lane] = total[i];
  }
  if (!split) return;
  cluster_barrier();
  for (int own = rank + 2 * warp; own < own_tiles; own += 2 * kStreamedXWarps) {
    float total[kLaneSums];
#pragma unroll
    for (int i = 0; i < kLaneSums; ++i) {
      const float* const share = shares + own * kTileSums + i * 32 + lane;
      total[i] = 0.0f + read_rank(share, 0) + read_rank(share, 1);
    }
    store_tile<kHalves>(a, cluster + a.clusters * own, active, g, t, total);
  }
  cluster_barrier();  // nobody leaves while the other reads its memory
}

template <bool kFp4, int kHalves>
GemvKernel kernel_of(int32_t group) {
  return group == kGemvGroup ? gemv_streamed_x_quantised<kFp4, kHalves, kGemvGroup>
                             : gemv_streamed_x_quantised<kFp4, kHalves, kGemvSmallGroup>;
}

}  // namespace

void launch_gemv_streamed_x_quantised(Stream& stream, const GemvPlan& plan, const GemvArgs& args) {
  const bool fp4 = args.parts[0].kind == GemvKind::kNvfp4;
  const bool many = args.rows > 8;
  const GemvKernel kernel =
      fp4    ? many ? kernel_of<true, 2>(plan.group) : kernel_of<true, 1>(plan.group)
         : many ? kernel_of<false, 2>(plan.group)
             : kernel_of<false, 1>(plan.group);
  const Grid grid{dim3(static_cast<unsigned>(args.clusters * args.split)), dim3(kThreads),
                  static_cast<std::size_t>(streamed_x_shared_bytes(args, fp4)),
                  static_cast<unsigned>(args.split)};
  launch(stream, grid, kernel, args);
  stream.allow_early_reads();  // it triggers after its wait
}

}  // namespace frt::cuda
