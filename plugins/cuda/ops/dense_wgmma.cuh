// SPDX-License-Identifier: Apache-2.0
// dense_wgmma.cuh - y = x W^T and what follows, for hundreds of rows, on wgmma (sm_90a).
//
// The weights are the tensor cores' rows and x their columns, so tiles of x come in any multiple of
// eight rows: 544 rows are three tiles of 184, not five of 128. A tile has 128 or 256 weight rows;
// of three groups of four warps one fetches (bulk tensor copies, a ring of stages of 64 inputs),
// two multiply: 64 weight rows each, and 64 further ones 128 behind. Gated: the first are the
// gate's and the others those of up, so both sums of a value are in one thread.
//
// Blocks of a cluster share what they read: `share_outputs` of them have the same rows of x,
// `share_rows` the same weights, and each copies its turn's stages to all. L2 gives a processor
// about 32 bytes a cycle; a tile of 256 x 184 eats 40 alone, 30 with x shared by two.
//
// Where tiles are few (16384 inputs, 2048 outputs), `splits` blocks of the cluster divide the
// inputs. Sums go to shared memory, where the ring was; a block finishes its rows of them, adding
// those of the splits in the order of ranks, in whole rows of y. Gated, sums become values in
// registers, and blocks stay and take one tile after the other, the next one's first stages on
// their way while values are written.
#pragma once

#include <cuda.h>

#include <algorithm>

#include "attention_mma.cuh"
#include "attention_wgmma.cuh"
#include "cluster.cuh"
#include "convert_values.cuh"
#include "dense_multiply.cuh"
#include "launch.cuh"
#include "linear_chunk.hpp"
#include "mbarrier.cuh"
#include "row_norm.cuh"

namespace frt::cuda {

inline constexpr int kWgmmaDepth = 64;  // inputs of a stage
inline constexpr int kWgmmaThreads = 384;
inline constexpr int kWgmmaParts = FRT_DENSE_PARTS_MAX;
inline constexpr int kMostSplits = 4;

struct WgmmaMaps {
  CUtensorMap x;
  CUtensorMap weights[kWgmmaParts];  // gated: gate and up
};

struct WgmmaArgs {
  ChunkProduct product;
  ChunkPart parts[kWgmmaParts];
  int first_block[kWgmmaParts + 1];  // of outputs, rounded up to what the cluster shares
  int row_groups, tiles;             // what a cluster takes at a time: of the rows; of all
  int share_outputs, share_rows, splits;
  int steps_each;
};

template <int kBlocks, int kRows>
constexpr int kWgmmaStageBytes = (kBlocks * 128 + kRows) * kWgmmaDepth * 2;
template <int kBlocks, int kRows>
constexpr int kWgmmaStages = std::min(8, 225 * 1024 / kWgmmaStageBytes<kBlocks, kRows>);
template <int kBlocks, int kRows>
constexpr int kWgmmaSharedBytes =  // the ring begins at a multiple of 1024
    kWgmmaStages<kBlocks, kRows>* kWgmmaStageBytes<kBlocks, kRows> + 1024;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace wgmma {

// ---- clusters and copies ------------------------------------------------------------------------

// Publishes nothing that this thread wrote: a release to the cluster would wait for memory each
// time.
__device__ __forceinline__ void barrier_arrive_at(uint32_t cluster_address) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address) : "memory");
}
__device__ __forceinline__ uint32_t address_at(uint32_t address, int rank) {
  uint32_t result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
  return result;
}
// cluster_barrier() without what was written: who is there, who is done. A microsecond less.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}

// A box of `map` whose corner is (column, row), to the same place in every block of `ranks`.
__device__ __forceinline__ void copy_box(uint32_t target, const CUtensorMap& map, int column,
                                         int row, uint64_t* barrier, bool shared, uint16_t ranks) {
  if (shared) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(target),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(ranks)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(target),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
        : "memory");
  }
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

// What a block is in its cluster, and what is its share of the inputs.
struct Role {
  int output, row, split, group;  // group: the first rank of those with the same inputs
  int first, steps;

  __device__ __forceinline__ explicit Role(const WgmmaArgs& args) {
    const int shared = args.share_outputs * args.share_rows;
    const int rank = static_cast<int>(blockIdx.x) % (shared * args.splits);
    split = rank / shared;
    group = split * shared;
    row = rank % shared / args.share_outputs;
    output = rank % args.share_outputs;
    const int all = (args.product.inputs + kWgmmaDepth - 1) / kWgmmaDepth;
    first = min(split * args.steps_each, all);
    steps = min(args.steps_each, all - first);
  }
  // Others' ranks: those with the same weights, those with the same x.
  __device__ __forceinline__ int of_row(const WgmmaArgs& args, int i) const {
    return group + i * args.share_outputs + output;
  }
  __device__ __forceinline__ int of_output(const WgmmaArgs& args, int i) const {
    return group + row * args.share_outputs + i;
  }
};

struct Tile {
  int part, output, row;  // the first ones
};

__device__ __forceinline__ Tile tile_at(const WgmmaArgs& args, const Role& role, int number,
                                        int outputs_each, int rows_each) {
  Tile tile;
  const int block = number / args.row_groups * args.share_outputs + role.output;
  tile.part = 0;
  while (block >= args.first_block[tile.part + 1]) ++tile.part;
  tile.output = (block - args.first_block[tile.part]) * outputs_each;
  tile.row = (number % args.row_groups * args.share_rows + role.row) * rows_each;
  return tile;
}

// ---- fetching ----------------------------------------------------------------------------------

template <int kBlocks, int kRows, bool kGated>
__device__ void fetch(const WgmmaMaps& maps, const WgmmaArgs& args, uint32_t ring, uint64_t* full,
                      uint64_t* empty) {
  constexpr int kStages = kWgmmaStages<kBlocks, kRows>;
  constexpr int kStageBytes = kWgmmaStageBytes<kBlocks, kRows>;
  constexpr int kOutputs = kBlocks * 128;
  const Role role(args);
  const int cluster = args.share_outputs * args.share_rows * args.splits;
  const int clusters = static_cast<int>(gridDim.x) / cluster;
  uint16_t weight_ranks = 0, x_ranks = 0;
  for (int i = 0; i < args.share_rows; ++i) {
    weight_ranks |= static_cast<uint16_t>(1 << role.of_row(args, i));
  }
  for (int i = 0; i < args.share_outputs; ++i) {
    x_ranks |= static_cast<uint16_t>(1 << role.of_output(args, i));
  }
  int turn = 0;  // counts stages, the same in the whole cluster
  const auto copy_weights = [&](const Tile& tile, int stage, int step) {
    if (turn % args.share_rows != role.row) return;
    const int column = (role.first + step) * kWgmmaDepth;
    const uint32_t to = ring + stage * kStageBytes;
    const bool shared = args.share_rows > 1;
    if constexpr (kGated) {
      copy_box(to, maps.weights[0], column, tile.output, full + stage, shared, weight_ranks);
      copy_box(to + kOutputs / 2 * 128, maps.weights[1], column, tile.output, full + stage, shared,
               weight_ranks);
    } else {
      copy_box(to, maps.weights[tile.part], column, tile.output, full + stage, shared,
               weight_ranks);
    }
  };
  const auto copy_x = [&](const Tile& tile, int stage, int step) {
    if (turn % args.share_outputs != role.output) return;
    copy_box(ring + stage * kStageBytes + kOutputs * 128, maps.x, (role.first + step) * kWgmmaDepth,
             tile.row, full + stage, args.share_outputs > 1, x_ranks);
  };

  // Weights depend on no kernel: the first stages' are asked for before the one ahead has ended.
  int number = static_cast<int>(blockIdx.x) / cluster;
  Tile tile = tile_at(args, role, number, kGated ? kOutputs / 2 : kOutputs, kRows);
  const int ahead = min(kStages, role.steps);
  for (turn = 0; turn < ahead; ++turn) {
    barrier_expect(full + turn, kStageBytes);
    copy_weights(tile, turn, turn);
  }
  pdl_wait();
  for (turn = 0; turn < ahead; ++turn) copy_x(tile, turn, turn);
  Place<kStages> place{ahead % kStages, ahead == kStages ? 1u : 0u};
  int step = ahead;
  for (; number < args.tiles; number += clusters, step = 0) {
    tile = tile_at(args, role, number, kGated ? kOutputs / 2 : kOutputs, kRows);
    for (; step < role.steps; ++step, ++turn) {
      barrier_wait(empty + place.stage, place.parity ^ 1);
      barrier_expect(full + place.stage, kStageBytes);
      copy_weights(tile, place.stage, step);
      copy_x(tile, place.stage, step);
      place.advance();
    }
  }
}

// ---- what follows a product --------------------------------------------------------------------

__device__ __forceinline__ float activate(uint32_t activation, float z) {
  const float u =
      activation == FRT_ACTIVATION_GELU ? -1.5957691216f * (z + 0.044715f * z * z * z) : -z;
  return __fdividef(z, 1.0f + __expf(u));
}

// bf16 values of 16 outputs from `first_output` on and kRows rows from `first_row` on, in the
// lanes' order of sums, to y: after a transposition eight outputs of a row lie in four lanes.
template <int kRows>
__device__ __forceinline__ void store_bf16(const ChunkPart& part, int rows, int first_output,
                                           int first_row, const float (&c)[kRows / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int left = rows - first_row - g;
  const bool both = first_output + 8 < part.outputs;
  if (first_output >= part.outputs) return;
  bf16* y = static_cast<bf16*>(part.y) + (first_row + g) * part.y_stride + first_output + 2 * t;
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j, y += 8 * part.y_stride) {
    const uint32_t low = transpose_8x8(pack_bf16(c[4 * j], c[4 * j + 1]));
    const uint32_t high = transpose_8x8(pack_bf16(c[4 * j + 2], c[4 * j + 3]));
    if (8 * j < left) *reinterpret_cast<uint32_t*>(y) = low;
    if (8 * j < left && both) *reinterpret_cast<uint32_t*>(y + 8) = high;
  }
}

// Four outputs of row `row`, from `output` on, of which z are the sums, through everything that can
// follow a product.
__device__ __forceinline__ void finish_four(const ChunkPart& part, int row, int output,
                                            float (&z)[4]) {
  for (int i = 0; i < 4; ++i) {
    if (part.bias) z[i] += part.bias[output + i];
    if (part.activation != FRT_ACTIVATION_NONE) z[i] = activate(part.activation, z[i]);
    if (part.gate.rows) {
      z[i] *= modulation_of(part.gate, row)[2 * static_cast<int64_t>(part.outputs) + output + i];
    }
    if (part.addend) {
      z[i] += part.addend[static_cast<int64_t>(row % part.addend_rows) * part.outputs + output + i];
    }
  }
  const int64_t at = row * part.y_stride + output;
  if (part.accumulate) {
    float before[4];
    load_values(part.y_dtype, part.y, at, before);
    for (int i = 0; i < 4; ++i) z[i] += before[i];
  }
  store_values(part.y_dtype, part.y, at, z);
}

// Whether only bias, activation and y in bf16 follow: what layers have, and the only short code.
__device__ __forceinline__ bool is_plain(const ChunkPart& part) {
  return part.y_dtype == FRT_DTYPE_BF16 && !part.gate.rows && !part.addend;
}

template <bool kCluster>
__device__ __forceinline__ void read_sums(float (&v)[4], uint32_t address) {
  if constexpr (kCluster) {
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(address));
  } else {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(address));
  }
}

// The sums that kSplits blocks have left in shared memory, with bias and activation, to y in bf16.
// Each block takes every kSplits-th round of rows, a warp kTogether at a time. Two warps of a
// scheduler hide little, so every instruction counts: rows behind the last are the last once more.
template <int kBlocks, int kRows, int kSplits, bool kActivate>
__device__ __forceinline__ void add_sums(const WgmmaArgs& args, const Role& role, const Tile& tile,
                                         int rows, uint32_t sums) {
  constexpr int kStride = kBlocks * 128 + 4;
  constexpr int kTogether = kSplits == 1 ? 8 : kSplits == 2 ? 4 : 2;
  const ChunkPart& part = args.parts[tile.part];
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int shared = args.share_outputs * args.share_rows;
  const int own = role.row * args.share_outputs + role.output;
  const int stride = static_cast<int>(part.y_stride);
  const int last = min(kRows, rows - tile.row) - 1;
#pragma unroll 1
  for (int b = 0; b < kBlocks; ++b) {
    const int column = b * 128 + 4 * lane, output = tile.output + column;
    if (output >= part.outputs) continue;
    float bias[4] = {};
    if (part.bias) load_values(FRT_DTYPE_F32, part.bias, output, bias);
    bf16* y = static_cast<bf16*>(part.y) + tile.row * part.y_stride + output;
    uint32_t from[kSplits];
#pragma unroll
    for (int s = 0; s < kSplits; ++s) {
      from[s] = kSplits == 1 ? sums + column * 4 : address_at(sums + column * 4, s * shared + own);
    }
#pragma unroll 1
    for (int n = (role.split * 8 + warp) * kTogether; n <= last; n += kSplits * 8 * kTogether) {
      float v[kTogether][kSplits][4];
      uint2 before[kTogether] = {};
      if (part.accumulate) {
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          before[k] = *reinterpret_cast<const uint2*>(y + min(n + k, last) * stride);
        }
      }
#pragma unroll
      for (int s = 0; s < kSplits; ++s) {
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          read_sums<(kSplits > 1)>(v[k][s], from[s] + min(n + k, last) * (kStride * 4));
        }
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        float z[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          z[i] = v[k][0][i];
#pragma unroll
          for (int s = 1; s < kSplits; ++s) z[i] += v[k][s][i];
          z[i] += bias[i];
          if constexpr (kActivate) z[i] = activate(part.activation, z[i]);
        }
        z[0] += __uint_as_float(before[k].x << 16);
        z[1] += __uint_as_float(before[k].x & 0xFFFF0000u);
        z[2] += __uint_as_float(before[k].y << 16);
        z[3] += __uint_as_float(before[k].y & 0xFFFF0000u);
        *reinterpret_cast<uint2*>(y + min(n + k, last) * stride) =
            make_uint2(pack_bf16(z[0], z[1]), pack_bf16(z[2], z[3]));
      }
    }
  }
}

// The same for everything else that can follow, a row after the other.
template <int kBlocks, int kRows>
__device__ __forceinline__ void add_any(const WgmmaArgs& args, const Role& role, const Tile& tile,
                                        int rows, uint32_t sums) {
  constexpr int kStride = kBlocks * 128 + 4;
  const ChunkPart& part = args.parts[tile.part];
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int shared = args.share_outputs * args.share_rows;
  const int own = role.row * args.share_outputs + role.output;
  const int last = min(kRows, rows - tile.row) - 1;
  for (int column = 4 * lane; column < kBlocks * 128; column += 128) {
    if (tile.output + column >= part.outputs) break;
#pragma unroll 1
    for (int n = role.split * 8 + warp; n <= last; n += args.splits * 8) {
      float z[4] = {};
#pragma unroll 1
      for (int s = 0; s < args.splits; ++s) {
        float v[4];
        read_sums<true>(v, address_at(sums + (n * kStride + column) * 4, s * shared + own));
#pragma unroll
        for (int i = 0; i < 4; ++i) z[i] += v[i];
      }
      finish_four(part, tile.row + n, tile.output + column, z);
    }
  }
}

template <int kBlocks, int kRows, bool kActivate>
__device__ __forceinline__ void add_splits(const WgmmaArgs& args, const Role& role,
                                           const Tile& tile, int rows, uint32_t sums) {
  switch (args.splits) {
    case 1:
      return add_sums<kBlocks, kRows, 1, kActivate>(args, role, tile, rows, sums);
    case 2:
      return add_sums<kBlocks, kRows, 2, kActivate>(args, role, tile, rows, sums);
    case 3:
      return add_sums<kBlocks, kRows, 3, kActivate>(args, role, tile, rows, sums);
    default:
      return add_sums<kBlocks, kRows, 4, kActivate>(args, role, tile, rows, sums);
  }
}

// ---- multiplying -------------------------------------------------------------------------------

template <int kBlocks, int kRows, bool kGated>
__device__ void multiply(const WgmmaArgs& args, uint32_t ring, uint64_t* full, uint64_t* empty) {
  constexpr int kStages = kWgmmaStages<kBlocks, kRows>;
  constexpr int kStageBytes = kWgmmaStageBytes<kBlocks, kRows>;
  constexpr int kOutputs = kBlocks * 128;
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Role role(args);
  const int cluster = args.share_outputs * args.share_rows * args.splits;
  const int clusters = static_cast<int>(gridDim.x) / cluster;
  // A stage is free for those who copy to it: all with the same weights or the same x.
  const int listeners = args.share_outputs + args.share_rows - 1;
  int listener = lane < args.share_rows ? role.of_row(args, lane) : 0;
  if (lane >= args.share_rows && lane < listeners) {
    const int i = lane - args.share_rows;
    listener = role.of_output(args, i < role.output ? i : i + 1);
  }
  const uint32_t empty_there = address_at(shared_address(empty), listener);
  const auto release = [&](int stage) {
    if (lane < listeners) barrier_arrive_at(empty_there + stage * 8);
  };
  pdl_wait();
  const int rows = active_rows(args.product.rows, args.product.row_count);

  Place<kStages> place;
  for (int number = static_cast<int>(blockIdx.x) / cluster; number < args.tiles;
       number += clusters) {
    const Tile tile = tile_at(args, role, number, kGated ? kOutputs / 2 : kOutputs, kRows);
    float c[kBlocks][kRows / 2];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) c[b][i] = 0;
    }
    int previous = -1;
#pragma unroll 1
    for (int step = 0; step < role.steps; ++step) {
      barrier_wait(full + place.stage, place.parity);
      const uint32_t weights = ring + place.stage * kStageBytes;
      const uint64_t a = matrix_descriptor(weights + group * 64 * 128, 16);
      const uint64_t b = matrix_descriptor(weights + kOutputs * 128, 16);
      products_fence();
#pragma unroll
      for (int k = 0; k < kWgmmaDepth / 16; ++k) {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
          multiply_64<kRows>(c[i], a + k * 2 + i * (128 * 128 / 16), b + k * 2);
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
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) {
        c[0][i] = activate(args.parts[0].activation, c[0][i]) * c[1][i];
      }
      store_bf16<kRows>(args.parts[0], rows, tile.output + first, tile.row, c[0]);
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
      if (args.splits > 1) {
        cluster_barrier();
      } else {
        asm volatile("bar.sync 1, 256;" ::: "memory");
      }
      const ChunkPart& part = args.parts[tile.part];
      if (!is_plain(part)) {
        add_any<kBlocks, kRows>(args, role, tile, rows, ring);
      } else if (part.activation != FRT_ACTIVATION_NONE) {
        add_splits<kBlocks, kRows, true>(args, role, tile, rows, ring);
      } else {
        add_splits<kBlocks, kRows, false>(args, role, tile, rows, ring);
      }
    }
  }
}

}  // namespace wgmma

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Grid: clusters of share_outputs * share_rows * splits, as many as there are tiles unless gated.
template <int kBlocks, int kRows, bool kGated>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    dense_wgmma_kernel(const __grid_constant__ WgmmaMaps maps,
                       const __grid_constant__ WgmmaArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t dynamic[];
  constexpr int kStages = kWgmmaStages<kBlocks, kRows>;
  __shared__ uint64_t full[kStages], empty[kStages];
  pdl_trigger();
  const int shared = args.share_outputs * args.share_rows;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(full + i, 1);
      // Every multiplying warp: none may fall a round behind.
      barrier_init(empty + i, 8 * (args.share_outputs + args.share_rows - 1));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (shared > 1) wgmma::cluster_meet();
  const uint32_t ring = (shared_address(dynamic) + 1023) / 1024 * 1024;
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) wgmma::fetch<kBlocks, kRows, kGated>(maps, args, ring, full, empty);
    if (args.splits > 1) cluster_barrier();  // the others' before they add
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wgmma::multiply<kBlocks, kRows, kGated>(args, ring, full, empty);
  }
  // Nobody leaves while others read its memory or copy to it.
  if (shared * args.splits > 1) wgmma::cluster_meet();
#endif
}

}  // namespace frt::cuda
