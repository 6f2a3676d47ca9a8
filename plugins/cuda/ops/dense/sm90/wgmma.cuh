// SPDX-License-Identifier: Apache-2.0
// wgmma.cuh - y = x W^T and what follows, for hundreds of rows, on wgmma (sm_90a).
//
// The weights are the tensor cores' rows and x their columns, so tiles of x come in any multiple of
// eight rows: 544 rows are three tiles of 184, not five of 128. A tile has 128 or 256 weight rows;
// of three groups of four warps one fetches (bulk tensor copies, a ring of stages of 64 inputs),
// two multiply: 64 weight rows each, and 64 further ones 128 behind. Gated: the first are the
// gate's and the others those of up, so both sums of a value are in one thread.
//
// In bf16 or in e4m3, which differ in the instruction and in what follows: 128 bytes are 64 or 128
// inputs of a row. The tensor cores keep sums of e4m3 to about 13 bits and cut off the rest at each
// of their steps of 32 inputs.
//
// Where tiles are few (16384 inputs, 2048 outputs), the `splits` blocks of a cluster divide the
// inputs, or two such clusters. Sums go to shared memory, where the ring was, and become rows of y
// (wgmma_finish.cuh). Gated, sums become values in registers, and blocks stay and take one
// tile after the other, the next one's first stages on their way while values are written.
#pragma once

#include "../../attention/sm90/wgmma.cuh"
#include "../../common/arch.cuh"
#include "../../common/mbarrier.cuh"
#include "multiply.cuh"
#include "wgmma_finish.cuh"
#include "wgmma_tiles.cuh"

namespace frt::cuda {

#if FRT_ARCH_WGMMA

namespace wgmma {

// ---- fetching ----------------------------------------------------------------------------------

// A box of `map` whose corner is (column, row).
__device__ __forceinline__ void copy_box(uint32_t target, const CUtensorMap& map, int column,
                                         int row, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(target),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

// The same, to be evicted first from the second-level cache: weights pass through it once, what
// kernels hand to each other, and their code, should stay.
__device__ __forceinline__ void copy_passing_box(uint32_t target, const CUtensorMap& map,
                                                 int column, int row, uint64_t* barrier) {
  constexpr uint64_t kEvictFirst = 0x12F0000000000000;  // what createpolicy makes of it
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(target),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "l"(kEvictFirst)
      : "memory");
}

// A place in the ring and how often it went round.
template <int kStages>
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <int kBlocks, int kRows, bool kGated, bool kFp8>
struct Fetch {
  static constexpr int kStages = kWgmmaStages<kBlocks, kRows>;
  static constexpr int kStageBytes = kWgmmaStageBytes<kBlocks, kRows>;
  static constexpr int kWeightBytes = kBlocks * 128 * 128;

  const WgmmaMaps& maps;
  const WgmmaArgs& args;
  uint32_t ring;
  uint64_t* full;
  uint64_t* empty;

  __device__ __forceinline__ void copy_weights(const Share& share, const Tile& tile, int stage,
                                               int step) const {
    const int column = (share.first + step) * kWgmmaDepth<kFp8>;
    const uint32_t to = ring + stage * kStageBytes;
    barrier_expect(full + stage, kStageBytes);
    if constexpr (kGated) {
      copy_passing_box(to, maps.weights[0], column, tile.output, full + stage);
      copy_passing_box(to + kWeightBytes / 2, maps.weights[1], column, tile.output, full + stage);
    } else {
      copy_passing_box(to, maps.weights[tile.part], column, tile.output, full + stage);
    }
  }
  __device__ __forceinline__ void copy_x(const Share& share, const Tile& tile, int stage,
                                         int step) const {
    copy_box(ring + stage * kStageBytes + kWeightBytes, maps.x,
             (share.first + step) * kWgmmaDepth<kFp8>, tile.row, full + stage);
  }

  // Weights depend on no kernel: the first stages' are asked for before anything else.
  __device__ __forceinline__ void begin() const {
    const Share share(args);
    const Tile tile = Tiles<kBlocks, kRows, kGated>().tile(args);
    const int ahead = min(kStages, share.steps);
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) copy_weights(share, tile, i, i);
  }

  // Everything else.
  __device__ __forceinline__ void go_on() const {
    const Share share(args);
    Tiles<kBlocks, kRows, kGated> tiles;
    Tile tile = tiles.tile(args);
    const int ahead = min(kStages, share.steps);
    pdl_wait();
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) copy_x(share, tile, i, i);
    Place<kStages> place{ahead % kStages, ahead == kStages ? 1u : 0u};
    int step = ahead;
    for (; tiles.left(args); tiles.advance(), step = 0) {
      tile = tiles.tile(args);
      for (; step < share.steps; ++step) {
        barrier_wait(empty + place.stage, place.parity ^ 1);
        copy_weights(share, tile, place.stage, step);
        copy_x(share, tile, place.stage, step);
        place.advance();
      }
    }
  }
};

// ---- multiplying -------------------------------------------------------------------------------

template <int kBlocks, int kRows, bool kGated, bool kFp8>
__device__ void multiply(const WgmmaArgs& args, uint32_t ring, uint64_t* full, uint64_t* empty,
                         float* biases) {
  constexpr int kStages = kWgmmaStages<kBlocks, kRows>;
  constexpr int kStageBytes = kWgmmaStageBytes<kBlocks, kRows>;
  constexpr int kOutputs = kBlocks * 128;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Share share(args);
  const auto release = [&](int stage) {
    if (lane == 0) barrier_arrive(empty + stage);
  };
  Tiles<kBlocks, kRows, kGated> tiles;
  if constexpr (!kGated) load_biases<kOutputs>(args, tiles.tile(args), biases);
  pdl_wait();
  const int rows = active_rows(args.product.rows, args.product.row_count);

  Place<kStages> place;
  for (; tiles.left(args); tiles.advance()) {
    const Tile tile = tiles.tile(args);
    [[maybe_unused]] Before<kBlocks, kRows> before;
    if constexpr (!kGated) before.load_early(args, share, tile);
    float c[kBlocks][kRows / 2];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) c[b][i] = 0;
    }
    int previous = -1;
#pragma unroll 1
    for (int step = 0; step < share.steps; ++step) {
      barrier_wait(full + place.stage, place.parity);
      const uint32_t weights = ring + place.stage * kStageBytes;
      const uint64_t a = matrix_descriptor(weights + group * 64 * 128, 16);
      const uint64_t b = matrix_descriptor(weights + kOutputs * 128, 16);
      products_fence();
#pragma unroll
      for (int k = 0; k < kWgmmaDepthBytes / 32; ++k) {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
          const uint64_t weight_rows = a + k * 2 + i * (128 * 128 / 16);
          if constexpr (kFp8) {
            multiply_64_fp8<kRows>(c[i], weight_rows, b + k * 2);
          } else {
            multiply_64<kRows>(c[i], weight_rows, b + k * 2);
          }
        }
      }
      products_commit();
      products_wait<1>();
      if (previous >= 0) release(previous);
      previous = place.stage;
      place.advance();
    }
    products_wait<0>();
    if (previous >= 0) release(previous);

    const int first = group * 64 + warp * 16;  // of the tile's weight rows
    if constexpr (kGated) {
      const SkinnyPart& part = args.parts[0];
      const Activation activation(part.activation, kFp8 ? args.factors[0] : 1.0f);
      const bool e4m3 = kFp8 && part.y_dtype == FRT_DTYPE_F8_E4M3;
      const float factor = args.factors[0] * args.up_factor * (e4m3 ? args.y_factors[0] : 1.0f);
      const auto value = [&](int j, int i) {
        const float z = activation(c[0][4 * j + i]);
        return kFp8 ? z * (c[1][4 * j + i] * factor) : z * c[1][4 * j + i];
      };
      if (e4m3) {
        if constexpr (kFp8) {
          store_values_of<kRows, true>(part, rows, tile.output + first, tile.row, value);
        }
      } else {
        store_values_of<kRows, false>(part, rows, tile.output + first, tile.row, value);
      }
    } else {
      // The ring is free: every stage of this one tile has been multiplied.
      asm volatile("bar.sync 1, 256;" ::: "memory");
      constexpr int kStride = kOutputs + 4;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) {
          const int n = i / 4 * 8 + 2 * (lane % 4) + i % 2;
          const int column = b * 128 + first + lane / 4 + i % 4 / 2 * 8;
          asm volatile("st.shared.f32 [%0], %1;" ::"r"(ring + (n * kStride + column) * 4),
                       "f"(c[b][i])
                       : "memory");
        }
      }
      const int last = min(kRows, rows - tile.row) - 1;
      switch (args.splits) {
        case 1:
          finish_tile<kFp8, kBlocks, kRows, 1>(args, share, tile, last, ring, biases, before);
          break;
        case 2:
          finish_tile<kFp8, kBlocks, kRows, 2>(args, share, tile, last, ring, biases, before);
          break;
        case 3:
          finish_tile<kFp8, kBlocks, kRows, 3>(args, share, tile, last, ring, biases, before);
          break;
        default:
          finish_tile<kFp8, kBlocks, kRows, 4>(args, share, tile, last, ring, biases, before);
      }
    }
  }
}

}  // namespace wgmma

#endif  // FRT_ARCH_WGMMA

// Grid: (splits, tiles of rows, blocks of outputs), clusters along the first; with `sharing`, two
// of them for every tile of rows. Gated: (1, blocks that take tiles in turns).
template <int kBlocks, int kRows, bool kGated, bool kFp8>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    dense_wgmma_kernel(const __grid_constant__ WgmmaMaps maps,
                       const __grid_constant__ WgmmaArgs args) {
#if FRT_ARCH_WGMMA
  extern __shared__ uint8_t dynamic[];
  constexpr int kStages = kWgmmaStages<kBlocks, kRows>;
  __shared__ uint64_t full[kStages], empty[kStages];
  __shared__ __align__(16) float biases[kGated ? 4 : kBlocks * 128];
  const uint32_t ring = (shared_address(dynamic) + 1023) / 1024 * 1024;
  const wgmma::Fetch<kBlocks, kRows, kGated, kFp8> fetch{maps, args, ring, full, empty};
  pdl_trigger();
  if (threadIdx.x == kWgmmaMultiplying) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(full + i, 1);
      // Every multiplying warp: none may fall a round behind.
      barrier_init(empty + i, 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fetch.begin();
    asm volatile("prefetch.tensormap [%0];" ::"l"(&maps.x) : "memory");
  }
  __syncthreads();
  if (threadIdx.x >= kWgmmaMultiplying) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == kWgmmaMultiplying) fetch.go_on();
    if (args.splits > 1) cluster_barrier();  // the others' before they add
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wgmma::multiply<kBlocks, kRows, kGated, kFp8>(args, ring, full, empty, biases);
  }
  // Nobody leaves while others read its memory.
  if (args.splits > 1) wgmma::cluster_meet();
#endif
}

}  // namespace frt::cuda
