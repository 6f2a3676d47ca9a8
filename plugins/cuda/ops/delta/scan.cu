// SPDX-License-Identifier: Apache-2.0
// The second pass of the chunked delta rule (chunk.cuh): the chunks of a head in order, with
// mma.sync, for every architecture.
//
// A block has half of the values of one head, a warp 16 of them. It computes with transposed
// matrices: S^T is (16 values, 128 keys) in registers, as accumulators of the update; rounded to
// f16 the same registers are the left operand of S^T K^T and S^T Q^T, and the results of those are
// the left operands of what follows. Nothing passes between warps; K, Q, T and P, the right
// operands, come from shared memory, where they are copied ahead of their use.
#include "../common/mma.cuh"
#include "chunk.cuh"

namespace frt::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kSlice = kWarps * 16;  // values of a block

// What a chunk needs: K, Q | T, P | V of the slice | factors.
constexpr int kStageT = kKeyBytes;
constexpr int kStageP = kStageT + kTileBytes;
constexpr int kStageV = kStageP + kTileBytes;
constexpr int kStageFactors = kStageV + kTileBytes;
constexpr int kStageBytes = kStageFactors + 2048;
static_assert(sizeof(ChunkFactors) <= 2048 && kStageBytes == kScanStageBytes);

template <int kBytes>
__device__ __forceinline__ void copy_ahead_block(uint32_t to, const char* from) {
#pragma unroll
  for (int at = 0; at < kBytes / 16; at += kThreads) {
    const int piece = at + threadIdx.x;
    if (kBytes / 16 % kThreads == 0 || piece < kBytes / 16) {
      copy_async(to + piece * 16, from + piece * 16);
    }
  }
}

using Tile = float[8][4];  // (16 values, 64 rows): 8 blocks of 8 rows

// The left operand of the next product: step s has rows 16 s .. 16 s + 15.
template <int kBlocks>
__device__ __forceinline__ void to_operand(const float (&from)[kBlocks][4],
                                           uint32_t (&to)[kBlocks / 2][4]) {
#pragma unroll
  for (int s = 0; s < kBlocks / 2; ++s) {
    to[s][0] = pack(from[2 * s][0], from[2 * s][1]);
    to[s][1] = pack(from[2 * s][2], from[2 * s][3]);
    to[s][2] = pack(from[2 * s + 1][0], from[2 * s + 1][1]);
    to[s][3] = pack(from[2 * s + 1][2], from[2 * s + 1][3]);
  }
}

// to += S^T X^T, X being K or Q: two tiles of 64 channels.
__device__ __forceinline__ void read_state(Tile& to, const uint32_t (&state)[8][4], uint32_t x,
                                           int lane) {
#pragma unroll
  for (int step = 0; step < 8; ++step) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      uint32_t b[4];
      load_matrices(
          b, x + step / 4 * kTileBytes +
                 tile_offset(n * 16 + lane / 16 * 8 + lane % 8, step % 4 * 2 + lane / 8 % 2));
      mma_f16(to[2 * n], state[step], b[0], b[1]);
      mma_f16(to[2 * n + 1], state[step], b[2], b[3]);
    }
  }
}

// to += X^T L^T for a lower triangular tile L.
__device__ __forceinline__ void multiply_lower(Tile& to, const uint32_t (&x)[4][4], uint32_t tile,
                                               int lane) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int step = 0; step <= n; ++step) {
      uint32_t b[4];
      load_matrices(b,
                    tile + tile_offset(n * 16 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
      mma_f16(to[2 * n], x[step], b[0], b[1]);
      mma_f16(to[2 * n + 1], x[step], b[2], b[3]);
    }
  }
}

// Grid: (slices of values, value heads, sequences).
template <int kStages>
__global__ void __launch_bounds__(kThreads)
    scan_kernel(const __grid_constant__ frt_gated_delta_args args, const ChunkRecords records) {
  extern __shared__ __align__(128) char stages[];
  pdl_trigger();
  pdl_wait();
  const int slice = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z;
  const int length = active_length(args.sequences, sequence);
  if (length == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int key_head = head / (args.value_heads / args.key_heads);
  const int chunks = (length + kChunk - 1) / kChunk;
  const uint32_t shared = shared_address(stages);

  const auto ask = [&](int chunk) {
    const uint32_t stage = shared + chunk % kStages * kStageBytes;
    const char* key = records.key(args, sequence, chunk, key_head);
    const char* value = records.value(args, sequence, chunk, head);
    copy_ahead_block<kKeyBytes>(stage, key);
    copy_ahead_block<2 * kTileBytes>(stage + kStageT, value + kTileT);
    copy_ahead_block<kTileBytes>(stage + kStageV, value + kTileV + slice * kTileBytes);
    copy_ahead_block<static_cast<int>(sizeof(ChunkFactors))>(stage + kStageFactors,
                                                             value + kFactors);
  };
  for (int chunk = 0; chunk < kStages - 1; ++chunk) {
    if (chunk < chunks) ask(chunk);
    copies_commit();
  }

  // S^T: block n has keys 8 n + lane % 4 * 2 + {0, 1} of the values lane / 4 + {0, 8}.
  float* saved = delta_state(args, sequence, head) + slice * kSlice + warp * 16 + lane / 4;
  float state[16][4];
#pragma unroll
  for (int n = 0; n < 16; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      state[n][i] = saved[(n * 8 + lane % 4 * 2 + i % 2) * kChunkDim + i / 2 * 8];
    }
  }

  for (int chunk = 0; chunk < chunks; ++chunk) {
    if constexpr (kStages == 1) {
      ask(chunk);
      copies_commit();
      copies_wait<0>();
      __syncthreads();
    } else {
      copies_wait<kStages - 2>();
      __syncthreads();  // also: the stage of the chunk before is free
      if (chunk + kStages - 1 < chunks) ask(chunk + kStages - 1);
      copies_commit();
    }
    const int stage_at = chunk % kStages * kStageBytes;
    const uint32_t stage = shared + stage_at;
    const ChunkFactors& factors =
        *reinterpret_cast<const ChunkFactors*>(stages + stage_at + kStageFactors);
    // Rows of block n: n * 8 + pair + {0, 1}.
    const int pair = lane % 4 * 2;

    uint32_t state_operand[8][4];
    to_operand(state, state_operand);
    Tile seen{};
    read_state(seen, state_operand, stage, lane);

    // R = V - factor * seen, and Vn = beta R + T R.
    uint32_t operand[4][4];
    Tile fresh;
    {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t v[4];
        load_matrices_transposed(
            v, stage + kStageV +
                   tile_offset(n * 16 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float(&r)[4] = seen[2 * n + half];
          const float2 factor =
              *reinterpret_cast<const float2*>(&factors.read_k[(2 * n + half) * 8 + pair]);
          r[0] = low_half(v[2 * half]) - factor.x * r[0];
          r[1] = high_half(v[2 * half]) - factor.y * r[1];
          r[2] = low_half(v[2 * half + 1]) - factor.x * r[2];
          r[3] = high_half(v[2 * half + 1]) - factor.y * r[3];
        }
      }
      to_operand(seen, operand);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 beta = *reinterpret_cast<const float2*>(&factors.beta[n * 8 + pair]);
#pragma unroll
        for (int i = 0; i < 4; ++i) fresh[n][i] = (i % 2 ? beta.y : beta.x) * seen[n][i];
      }
      multiply_lower(fresh, operand, stage + kStageT, lane);
    }

    // o = factor * S^T q + P Vn.
    Tile out{};
    read_state(out, state_operand, stage + 2 * kTileBytes, lane);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(&factors.read_q[n * 8 + pair]);
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] *= i % 2 ? factor.y : factor.x;
    }
    to_operand(fresh, operand);
    multiply_lower(out, operand, stage + kStageP, lane);

    // S = decay S + K^T (factor * Vn).
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(&factors.write_k[n * 8 + pair]);
#pragma unroll
      for (int i = 0; i < 4; ++i) fresh[n][i] *= i % 2 ? factor.y : factor.x;
    }
    to_operand(fresh, operand);
    const float decay = factors.decay[0];
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state[n][i] *= decay;
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        uint32_t b[4];
        load_matrices_transposed(b, stage + n / 4 * kTileBytes +
                                        tile_offset(step * 16 + lane % 16, n % 4 * 2 + lane / 16));
        mma_f16(state[2 * n], operand[step], b[0], b[1]);
        mma_f16(state[2 * n + 1], operand[step], b[2], b[3]);
      }
    }

    // o takes the place of V, from which it goes out by rows: a warp has columns of its own.
    __syncwarp();
    char* tile = stages + stage_at + kStageV;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t values = transpose_8x8(pack_bf16(out[n][2 * half], out[n][2 * half + 1]));
        *reinterpret_cast<uint32_t*>(tile + tile_offset(n * 8 + lane / 4, warp * 2 + half) +
                                     lane % 4 * 4) = values;
      }
    }
    __syncthreads();
    const int64_t row0 = static_cast<int64_t>(sequence) * args.sequences.rows + chunk * kChunk;
    bf16* o =
        static_cast<bf16*>(args.o) + (row0 * args.value_heads + head) * kChunkDim + slice * kSlice;
    for (int at = threadIdx.x; at < kTileBytes / 16; at += kThreads) {
      const int row = at / 8;
      if (chunk * kChunk + row >= length) break;
      *reinterpret_cast<uint4*>(o + static_cast<int64_t>(row) * args.value_heads * kChunkDim +
                                at % 8 * 8) =
          *reinterpret_cast<const uint4*>(tile + tile_offset(row, at % 8));
    }
    if constexpr (kStages == 1) __syncthreads();
  }

#pragma unroll
  for (int n = 0; n < 16; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      saved[(n * 8 + lane % 4 * 2 + i % 2) * kChunkDim + i / 2 * 8] = state[n][i];
    }
  }
}

template <int kStages>
void launch_stages(Stream& stream, ScanCall& scan) {
  const Grid grid{dim3(kChunkDim / kSlice, static_cast<unsigned>(scan.delta.value_heads),
                       static_cast<unsigned>(scan.delta.sequences.count)),
                  dim3(kThreads), kStages * kStageBytes};
  launch(stream, grid, scan_kernel<kStages>, scan.delta, scan.records);
}

}  // namespace

void launch_scan_stages(Stream& stream, ScanCall& scan) {
  launch_stages<kScanStages>(stream, scan);
}

void launch_scan(Stream& stream, ScanCall& scan) {
  launch_stages<1>(stream, scan);
}

}  // namespace frt::cuda
