// SPDX-License-Identifier: Apache-2.0
// Products of a chunk of rows, y = x W^T: weights stream once, tensor cores multiply.
//
// Floor: bytes of the weights over the read bandwidth. Few rows per weight: 32 rows of a 27B step
// read 48.7 GB, 10.5 ms at 4.65 TB/s; 50 rows of an action expert's layer 35 MB, 7.5 us.
//
// A block has 64 outputs (or 32 pairs of gate and up) and a part of the inputs, in steps of 128.
// The weights are the tensor cores' rows, x their columns, so 8 rows of x are the smallest unit.
// Weights and x arrive through a ring in shared memory, asynchronously, rows of 256 bytes swizzled
// (16-byte unit u of row r at u ^ r % 8) so that ldmatrix has no bank conflicts. The ring's first
// weights are asked for before the kernel ahead has ended. Four warps take 16 outputs each and one
// half of the step's inputs, four others the other half.
//
// Where outputs alone do not fill the SMs evenly, the inputs are divided among the blocks of
// a cluster; each block then finishes a part of the rows, adding the blocks' sums in the order of
// ranks. How many share a tile depends on the shapes alone, so results do not vary. Below sm_90
// there are no clusters, and nothing is divided.
#include "../common/mma.cuh"
#include "skinny_gemm.hpp"

#include <algorithm>

#include "../common/convert_values.cuh"
#include "../common/row_norm.cuh"
#include "skinny_tiles.cuh"

namespace frt::cuda {
namespace {

using namespace skinny;
using Weights = Tile<bf16>;

struct Args {
  SkinnyProduct product;
  SkinnyPart parts[kSkinnyParts];
  int first_tile[kSkinnyParts + 1];
  const void* up;  // gate and up: the weights of up
  int splits, steps_each;
};

template <int kTiles>
constexpr int kStages = kTiles == 16  ? 4
                        : kTiles == 8 ? 3
                                      : 4;

__device__ __forceinline__ float activate(uint32_t activation, float z) {
  return activation == FRT_ACTIVATION_GELU   ? gelu(z)
         : activation == FRT_ACTIVATION_SILU ? silu(z)
                                             : z;
}

__device__ __forceinline__ float read_y(const SkinnyPart& part, int64_t at) {
  return part.y_dtype == FRT_DTYPE_F32 ? static_cast<const float*>(part.y)[at]
                                       : to_float(static_cast<const bf16*>(part.y)[at]);
}
__device__ __forceinline__ void write_y(const SkinnyPart& part, int64_t at, float z) {
  if (part.y_dtype == FRT_DTYPE_F32) {
    static_cast<float*>(part.y)[at] = z;
  } else {
    static_cast<bf16*>(part.y)[at] = from_float<bf16>(z);
  }
}

__device__ __forceinline__ void finish(const SkinnyPart& part, int row, int output, float z) {
  if (output >= part.outputs) return;
  if (part.bias) z += part.bias[output];
  z = activate(part.activation, z);
  if (part.gate.rows) {
    z *= modulation_of(part.gate, row)[2 * static_cast<int64_t>(part.outputs) + output];
  }
  if (part.addend) {
    z += part.addend[static_cast<int64_t>(row % part.addend_rows) * part.outputs + output];
  }
  const int64_t at = row * part.y_stride + output;
  if (part.accumulate) z += read_y(part, at);
  write_y(part, at, z);
}

// Grid: tiles of all parts, times splits; clusters of `splits`. kTiles * 8 rows at most.
template <int kTiles, bool kGated>
__global__ void __launch_bounds__(kThreads, kTiles == 16 ? 1 : 2)
    chunk_kernel(const __grid_constant__ Args args) {
  extern __shared__ float4 shared[];
  constexpr int kRing = kStages<kTiles>;
  pdl_trigger();
  const SkinnyProduct& p = args.product;
  const int rank = static_cast<int>(blockIdx.x) % args.splits;
  const int number = static_cast<int>(blockIdx.x) / args.splits;
  int part_index = 0;
  if constexpr (!kGated) {
    while (number >= args.first_tile[part_index + 1]) ++part_index;
  }
  const SkinnyPart& part = args.parts[part_index];
  Weights tile{};
  tile.weight = static_cast<const bf16*>(part.weight);
  tile.up = kGated ? static_cast<const bf16*>(args.up) : nullptr;
  tile.first = (number - args.first_tile[part_index]) * (kGated ? kOutputs / 2 : kOutputs);
  tile.outputs = part.outputs;
  const int all = (p.inputs + kInputs<bf16> - 1) / kInputs<bf16>;
  const int first = min(rank * args.steps_each, all);
  const int steps = min(args.steps_each, all - first);
  const uint32_t ring = shared_address(shared);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own_outputs = warp % 4 * 16, own_units = warp / 4 * (kUnits / 2);

#pragma unroll
  for (int s = 0; s < kRing - 1; ++s) {
    if (s < steps) load_weights(ring + s * kStageBytes<kTiles>, tile, first + s, p.inputs);
    copies_commit();
  }
  pdl_wait();
#pragma unroll
  for (int s = 0; s < kRing - 1; ++s) {
    if (s < steps) {
      load_x<bf16, kTiles, false>(ring + s * kStageBytes<kTiles> + kWeightBytes, p, first + s);
    }
  }

  float c[kTiles][4] = {};
  for (int step = 0; step < steps; ++step) {
    copies_wait<kRing - 2>();
    __syncthreads();  // this step is there, and nobody needs the one before
    const int next = step + kRing - 1;
    if (next < steps) {
      const uint32_t to = ring + next % kRing * kStageBytes<kTiles>;
      load_weights(to, tile, first + next, p.inputs);
      load_x<bf16, kTiles, true>(to + kWeightBytes, p, first + next);
    }
    copies_commit();
    const uint32_t weights = ring + step % kRing * kStageBytes<kTiles>;
    const uint32_t x = weights + kWeightBytes;
#pragma unroll
    for (int j = 0; j < kUnits / 4; ++j) {
      uint32_t a[4];
      load_matrices(a, weights + place(own_outputs + lane % 16, own_units + 2 * j + lane / 16));
#pragma unroll
      for (int i = 0; i < kTiles / 2; ++i) {
        uint32_t b[4];
        load_matrices(
            b, x + place(i * 16 + lane % 8 + lane / 16 * 8, own_units + 2 * j + lane / 8 % 2));
        mma_bf16(c[2 * i], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_bf16(c[2 * i + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
  }
  copies_wait<0>();
  __syncthreads();  // the ring is free: sums of (rows, outputs)

  float* sums = reinterpret_cast<float*>(shared);
  add_halves(sums, c);
  if (args.splits > 1) cluster_barrier();
  const int rows = active_rows(p.rows, p.row_count);
  for (int row = rank * (kThreads / 32) + warp; row < rows; row += args.splits * (kThreads / 32)) {
    const float2 z = add_splits(reinterpret_cast<const float2*>(sums + row * kSumStride + 2 * lane),
                                args.splits);
    if constexpr (kGated) {
      // Lanes 0 to 15 have two gates each, lanes 16 to 31 the same pairs' ups.
      const float up_x = __shfl_down_sync(~0u, z.x, 16), up_y = __shfl_down_sync(~0u, z.y, 16);
      const int output = tile.first + 2 * lane;
      const int64_t y = row * part.y_stride + output;
      if (lane < 16 && output < part.outputs) {
        write_y(part, y, activate(part.activation, z.x) * up_x);
      }
      if (lane < 16 && output + 1 < part.outputs) {
        write_y(part, y + 1, activate(part.activation, z.y) * up_y);
      }
    } else {
      finish(part, row, tile.first + 2 * lane, z.x);
      finish(part, row, tile.first + 2 * lane + 1, z.y);
    }
  }
  if (args.splits > 1) cluster_barrier();  // nobody leaves while others read its memory
}

static_assert(kStages<16> * kStageBytes<16> == kSkinnyMostBytes);

template <int kTiles>
void launch_chunk(Stream& stream, Args& args, int64_t tiles, bool gated) {
  const int steps = static_cast<int>(ceil_div(args.product.inputs, kInputs<bf16>));
  args.splits = splits_for(stream.device(), tiles, steps, kTiles == 16 ? 1 : 2);
  args.steps_each = static_cast<int>(ceil_div(steps, args.splits));
  const Grid grid{dim3(static_cast<unsigned>(tiles * args.splits)), dim3(kThreads),
                  std::size_t{kStages<kTiles>} * kStageBytes<kTiles>,
                  static_cast<unsigned>(args.splits)};
  launch(stream, grid, gated ? chunk_kernel<kTiles, true> : chunk_kernel<kTiles, false>, args);
}

void launch_rows(Stream& stream, Args& args, int64_t tiles, bool gated) {
  if (args.product.rows <= 32) return launch_chunk<4>(stream, args, tiles, gated);
  if (args.product.rows <= 64) return launch_chunk<8>(stream, args, tiles, gated);
  launch_chunk<16>(stream, args, tiles, gated);
}

}  // namespace

bool skinny_gemm_supports(const SkinnyProduct& product, const void* weight, int32_t most) {
  return product.rows <= most && product.inputs % 8 == 0 &&
         vector_rows(product.x, product.x_stride) && reinterpret_cast<uintptr_t>(weight) % 16 == 0;
}

void skinny_gemm_products(Stream& stream, const SkinnyProduct& product,
                          std::span<const SkinnyPart> parts) {
  Args args{};
  args.product = product;
  int64_t tiles = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    args.parts[i] = parts[i];
    args.first_tile[i] = static_cast<int>(tiles);
    tiles += ceil_div(parts[i].outputs, kOutputs);
  }
  for (std::size_t i = parts.size(); i <= kSkinnyParts; ++i) {
    args.first_tile[i] = static_cast<int>(tiles);
  }
  launch_rows(stream, args, tiles, false);
}

void skinny_gemm_gate_up(Stream& stream, const SkinnyProduct& product, const SkinnyPart& gate,
                         const void* up) {
  Args args{};
  args.product = product;
  args.parts[0] = gate;
  args.up = up;
  launch_rows(stream, args, ceil_div(gate.outputs, kOutputs / 2), true);
}

}  // namespace frt::cuda
