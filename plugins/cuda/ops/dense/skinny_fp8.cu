// SPDX-License-Identifier: Apache-2.0
// FP8 products of a chunk of rows, up to 64: weights stream once, tensor cores multiply e4m3 by
// e4m3, sums in f32.
//
// Floor: bytes of the weights over the read bandwidth. 50 rows of an action expert's layer read 17
// MB, 3.7 us at 4.65 TB/s.
//
// The shape of linear/skinny_gemm.cu with half the bytes: a block has 64 outputs (or 32 pairs of
// gate and up) and a part of the inputs, in steps of 256, which are rows of 256 bytes, swizzled
// (16-byte unit u of row r at u ^ r % 8). The weights are the tensor cores' rows, x their columns.
// Fragments of m16n8k32 lie in memory as those of m16n8k16 of 16-bit values do, so ldmatrix loads
// them. Four warps take 16 outputs each and one half of the step's inputs, four others the other
// half.
//
// Rotated, a tile has 32 outputs of the first half of a head and their partners of the second, as a
// gated one has pairs of gate and up.
//
// An SM has room for two blocks, also where there is one for each: so the next kernel's begin
// to fetch their weights while this one adds up.
//
// Where outputs alone do not fill the SMs evenly, the inputs are divided among the blocks of
// a cluster; each block then finishes a part of the rows, adding the blocks' sums in the order of
// ranks. Below sm_90 there are no clusters, and nothing is divided.
#include <algorithm>

#include "../common/mma.cuh"
#include "../linear/skinny_tiles.cuh"
#include "fp8.cuh"

namespace frt::cuda {
namespace {

using namespace skinny;
using Weights = Tile<uint8_t>;

constexpr int kParts = FRT_DENSE_PARTS_MAX;

enum class Kind { kPlain, kGated, kRotated };

struct Args {
  Fp8Input input;
  Fp8Part parts[kParts];
  Fp8Factors factors[kParts];
  int first_tile[kParts + 1];
  const void* up;  // gate and up: the weights of up
  Fp8Factors up_factors;
  frt_rope_args rope;  // rotated
  int rope_part;       // of keys and values
  int splits, steps_each;
};

template <int kTiles>
constexpr int kStages = kTiles == 8 ? 3 : 4;

// The angles of row `row`: cosines, then sines. NULL: it stays as it is.
__device__ __forceinline__ const float* angles_of(const frt_rope_args& rope, int row) {
  const int sequence = row / rope.rows;
  const int base = rope.base ? rope.base[sequence / rope.sequences_per_base] : 0;
  const int position = base + row % rope.rows;
  if (position < 0 || position >= rope.positions) return nullptr;
  return rope.table + static_cast<int64_t>(position) * rope.head_dim;
}

// Grid: tiles of all parts, times splits; clusters of `splits`. kTiles * 8 rows at most.
template <int kTiles, Kind kKind>
__global__ void __launch_bounds__(kThreads, 2) chunk_kernel(const __grid_constant__ Args args) {
  extern __shared__ float4 shared[];
  constexpr int kRing = kStages<kTiles>;
  pdl_trigger();
  const Fp8Input& in = args.input;
  const int rank = static_cast<int>(blockIdx.x) % args.splits;
  const int number = static_cast<int>(blockIdx.x) / args.splits;
  int index = 0;
  if constexpr (kKind != Kind::kGated) {
    while (number >= args.first_tile[index + 1]) ++index;
  }
  const Fp8Part& part = args.parts[index];
  const int local = number - args.first_tile[index];
  Weights tile{};
  tile.weight = static_cast<const uint8_t*>(part.weight.data);
  tile.first = local * (kKind == Kind::kPlain ? kOutputs : kOutputs / 2);
  tile.outputs = part.weight.rows;
  if constexpr (kKind == Kind::kGated) tile.up = static_cast<const uint8_t*>(args.up);
  int column = 0;  // of the tile, in its half of a head
  if constexpr (kKind == Kind::kRotated) {
    const int half = args.rope.head_dim / 2, tiles = half / (kOutputs / 2);
    column = local % tiles * (kOutputs / 2);
    tile.first = local / tiles * args.rope.head_dim + column;
    tile.up = tile.weight + static_cast<int64_t>(half) * in.inputs;
  }
  const int all = (in.inputs + kInputs<uint8_t> - 1) / kInputs<uint8_t>;
  const int first = min(rank * args.steps_each, all);
  const int steps = min(args.steps_each, all - first);
  const uint32_t ring = shared_address(shared);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own_outputs = warp % 4 * 16, own_units = warp / 4 * (kUnits / 2);

#pragma unroll
  for (int s = 0; s < kRing - 1; ++s) {
    if (s < steps) load_weights(ring + s * kStageBytes<kTiles>, tile, first + s, in.inputs);
    copies_commit();
  }
  pdl_wait();
#pragma unroll
  for (int s = 0; s < kRing - 1; ++s) {
    if (s < steps) {
      load_x<uint8_t, kTiles, false>(ring + s * kStageBytes<kTiles> + kWeightBytes, in, first + s);
    }
  }

  float c[kTiles][4] = {};
  for (int step = 0; step < steps; ++step) {
    copies_wait<kRing - 2>();
    __syncthreads();  // this step is there, and nobody needs the one before
    const int next = step + kRing - 1;
    if (next < steps) {
      const uint32_t to = ring + next % kRing * kStageBytes<kTiles>;
      load_weights(to, tile, first + next, in.inputs);
      load_x<uint8_t, kTiles, true>(to + kWeightBytes, in, first + next);
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
        mma_e4m3(c[2 * i], a, b[0], b[1]);
        mma_e4m3(c[2 * i + 1], a, b[2], b[3]);
      }
    }
  }
  copies_wait<0>();
  __syncthreads();  // the ring is free: sums of (rows, outputs)

  float* sums = reinterpret_cast<float*>(shared);
  add_halves(sums, c);
  if (args.splits > 1) cluster_barrier();
  const int rows = active_rows(in.rows, in.row_count);
  for (int row = rank * (kThreads / 32) + warp; row < rows; row += args.splits * (kThreads / 32)) {
    const float2 z = add_splits(reinterpret_cast<const float2*>(sums + row * kSumStride + 2 * lane),
                                args.splits);
    if constexpr (kKind == Kind::kRotated) {
      // Lanes 0 to 15 have two of the first half of a head, lanes 16 to 31 their partners.
      const int half = args.rope.head_dim / 2;
      const float highs[2] = {__shfl_down_sync(~0u, z.x, 16), __shfl_down_sync(~0u, z.y, 16)};
      const float lows[2] = {z.x, z.y};
      if (lane >= 16) continue;
      // The last part holds keys, then values, which are not rotated.
      const bool values = index == args.rope_part && tile.first >= args.rope.kv_heads * 2 * half;
      const float* angles = values ? nullptr : angles_of(args.rope, row);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int output = tile.first + 2 * lane + i;
        const auto factor = [&](int at) {
          const Fp8Factors& f = args.factors[index];
          if (!f.outputs) return f.all;
          float own[1];
          load_values(f.dtype, f.outputs, at, own);
          return f.all * own[0];
        };
        const float low = lows[i] * factor(output), high = highs[i] * factor(output + half);
        float first_half[1] = {low}, second_half[1] = {high};
        if (angles) {
          const float cosine = angles[column + 2 * lane + i];
          const float sine = angles[half + column + 2 * lane + i];
          first_half[0] = low * cosine - high * sine;
          second_half[0] = high * cosine + low * sine;
        }
        const int64_t y = row * part.y_stride + output;
        fp8_store(part, y, first_half);
        fp8_store(part, y + half, second_half);
      }
    } else if constexpr (kKind == Kind::kGated) {
      // Lanes 0 to 15 have two gates each, lanes 16 to 31 the same pairs' ups.
      const float ups[2] = {__shfl_down_sync(~0u, z.x, 16), __shfl_down_sync(~0u, z.y, 16)};
      const float gates[2] = {z.x, z.y};
      if (lane >= 16) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int output = tile.first + 2 * lane + i;
        if (output >= tile.outputs) continue;
        const auto factor = [output](const Fp8Factors& f) {
          if (!f.outputs) return f.all;
          float own[1];
          load_values(f.dtype, f.outputs, output, own);
          return f.all * own[0];
        };
        float value[1] = {gelu(gates[i] * factor(args.factors[0])) *
                          (ups[i] * factor(args.up_factors))};
        fp8_store(part, row * part.y_stride + output, value);
      }
    } else {
      const int output = tile.first + 2 * lane;
      float low[1] = {z.x}, high[1] = {z.y};
      if (output < tile.outputs) fp8_finish(part, args.factors[index], row, output, low);
      if (output + 1 < tile.outputs) fp8_finish(part, args.factors[index], row, output + 1, high);
    }
  }
  if (args.splits > 1) cluster_barrier();  // nobody leaves while others read its memory
}

template <int kTiles, Kind kKind>
void launch_tiles(Stream& stream, Args& args, int64_t tiles) {
  const int steps = static_cast<int>(ceil_div(args.input.inputs, kInputs<uint8_t>));
  args.splits = splits_for(stream.device(), tiles, steps, 2);
  args.steps_each = static_cast<int>(ceil_div(steps, args.splits));
  const Grid grid{dim3(static_cast<unsigned>(tiles * args.splits)), dim3(kThreads),
                  std::size_t{kStages<kTiles>} * kStageBytes<kTiles>,
                  static_cast<unsigned>(args.splits)};
  launch(stream, grid, chunk_kernel<kTiles, kKind>, args);
}

template <Kind kKind>
void launch_rows(Stream& stream, Args& args, int64_t tiles) {
  if (args.input.rows <= 32) return launch_tiles<4, kKind>(stream, args, tiles);
  launch_tiles<8, kKind>(stream, args, tiles);
}

// Parts with so many outputs to a tile; returns the number of tiles.
int64_t fill_parts(Args& args, const Fp8Input& input, std::span<const Fp8Part> parts, int each) {
  args.input = input;
  int64_t tiles = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    args.parts[i] = parts[i];
    args.factors[i] = fp8_factors(input, parts[i].weight);
    args.first_tile[i] = static_cast<int>(tiles);
    tiles += ceil_div(parts[i].weight.rows, each);
  }
  for (std::size_t i = parts.size(); i <= kParts; ++i) {
    args.first_tile[i] = static_cast<int>(tiles);
  }
  return tiles;
}

}  // namespace

bool skinny_fp8_supports(const Fp8Input& input, const Weight& weight) {
  return input.rows <= kSkinnyFp8Rows && input.inputs % 16 == 0 &&
         reinterpret_cast<uintptr_t>(input.x) % 16 == 0 && input.x_stride % 16 == 0 &&
         reinterpret_cast<uintptr_t>(weight.data) % 16 == 0;
}

void skinny_fp8_products(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts) {
  Args args{};
  const int64_t tiles = fill_parts(args, input, parts, kOutputs);
  launch_rows<Kind::kPlain>(stream, args, tiles);
}

bool skinny_fp8_supports_qkv(const Fp8Input& input, std::span<const Fp8Part> parts,
                             const frt_rope_args& rope) {
  const Fp8Part& kv = parts.back();
  const bool plain = std::all_of(parts.begin(), parts.end(), [&](const Fp8Part& part) {
    return skinny_fp8_supports(input, part.weight) && !part.bias &&
           part.activation == FRT_ACTIVATION_NONE && part.y_dtype == rope.dtype;
  });
  if (!plain || parts.size() > 2 || rope.head_dim % kOutputs != 0 ||
      (parts.size() == 2) != (rope.q != nullptr) || kv.y != rope.k ||
      kv.weight.rows != 2 * rope.kv_heads * rope.head_dim || kv.y_stride != rope.k_stride) {
    return false;
  }
  if (rope.q) {
    const Fp8Part& q = parts.front();
    if (q.y != rope.q || q.weight.rows != rope.heads * rope.head_dim ||
        q.y_stride != rope.q_stride) {
      return false;
    }
  }
  return true;
}

void skinny_fp8_qkv(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts,
                    const frt_rope_args& rope) {
  Args args{};
  const int64_t tiles = fill_parts(args, input, parts, kOutputs);
  args.rope = rope;
  args.rope_part = static_cast<int>(parts.size()) - 1;
  launch_rows<Kind::kRotated>(stream, args, tiles);
}

void skinny_fp8_geglu(Stream& stream, const Fp8Input& input, const Fp8Part& gate,
                      const Weight& up) {
  Args args{};
  args.input = input;
  args.parts[0] = gate;
  args.factors[0] = fp8_factors(input, gate.weight);
  args.up = up.data;
  args.up_factors = fp8_factors(input, up);
  launch_rows<Kind::kGated>(stream, args, ceil_div(gate.weight.rows, kOutputs / 2));
}

}  // namespace frt::cuda
