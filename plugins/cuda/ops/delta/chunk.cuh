// SPDX-License-Identifier: Apache-2.0
// ops/delta/chunk.cuh - the chunked delta rule: its two passes, and the tiles they exchange.
//
// Yang et al., "Gated Delta Networks", 2024. For the rows i >= j of a chunk of 64, with k and q of
// length 1 and G = cumsum(g):
//   A_ij = beta_i exp(G_i - G_j) k_i.k_j   (i > j),   L = I + A
//   R_i  = v_i - exp(G_i) S^T k_i
//   Vn   = L^-1 (beta R) = beta R + T R      T = (L^-1 - I) diag(beta), strictly lower
//   o_i  = scale exp(G_i) S^T q_i + sum_j P_ij Vn_j      P_ij = scale exp(G_i - G_j) q_i.k_j
//   S    = exp(G_last) S + sum_j k_j (exp(G_last - G_j) Vn_j)^T
//
// The operands of products on tensor cores are f16, the sums f32: k, q, T and P are at most about
// 1, and the 11 bits of f16 keep eight times more of them than bf16 would. R, Vn and S have the
// size of v: |v| up to 65504 / 4 is safe, far beyond what a network computes after its norms;
// larger ones become infinite and are seen. The factors, the identity in L^-1 and S itself stay in
// f32. scale is 1 / sqrt(128).
//
// prepare (prepare.cu)         all chunks at once: convolution, T, P and the factors.
// scan (scan.cu, sm90/scan.cu) chunk after chunk: S, R, Vn, o.
//
// Between them lie tiles in scratch memory: 64 rows of 128 bytes (64 values). The 16-byte pieces of
// a row r are exchanged: piece p is at p ^ (r % 8). That is what the tensor cores of sm_90 call the
// 128-byte swizzle, and ldmatrix reads it without bank conflicts, so tiles are copied as they are.
#pragma once

#include "../common/mma.cuh"
#include "gated_delta.cuh"

namespace frt::cuda {

inline constexpr int kChunk = 64;
inline constexpr int kChunkDim = 128;        // of keys and values
inline constexpr int kTileBytes = 64 * 128;  // 64 rows of 64 values

// Of a key head: K, then Q, each as two tiles of 64 channels.
inline constexpr int kKeyBytes = 4 * kTileBytes;

// Factors of a chunk's rows.
struct ChunkFactors {
  float read_k[kChunk];   // exp(G)
  float beta[kChunk];     //
  float read_q[kChunk];   // scale exp(G)
  float write_k[kChunk];  // exp(G_last - G)
  float decay[4];         // exp(G_last), padded to 16 bytes
};

// Of a value head: T, P, two tiles of V, and the factors.
inline constexpr int kValueBytes = 4 * kTileBytes + static_cast<int>(sizeof(ChunkFactors));
inline constexpr int kTileT = 0;
inline constexpr int kTileV = 2 * kTileBytes;
inline constexpr int kFactors = 4 * kTileBytes;

// The records of all chunks of all sequences.
struct ChunkRecords {
  char* keys;    // (count, chunks, key_heads) of kKeyBytes
  char* values;  // (count, chunks, value_heads) of kValueBytes
  int chunks;    // per sequence, of `rows` rows

  __device__ char* key(const frt_gated_delta_args& args, int sequence, int chunk, int head) const {
    return keys +
           ((static_cast<int64_t>(sequence) * chunks + chunk) * args.key_heads + head) * kKeyBytes;
  }
  __device__ char* value(const frt_gated_delta_args& args, int sequence, int chunk,
                         int head) const {
    return values + ((static_cast<int64_t>(sequence) * chunks + chunk) * args.value_heads + head) *
                        kValueBytes;
  }
};

// `conv`: the rows are those of conv->u, and the windows are updated; NULL: they are those of c.
void launch_delta_prepare(Stream& stream, const frt_gated_delta_args& args,
                          const frt_causal_conv_args* conv, const ChunkRecords& records);
// The second pass.
struct ScanArgs {
  frt_gated_delta_args delta;
  ChunkRecords records;
};
using ScanCall = const ScanArgs;
inline constexpr int kScanStages = 3;
inline constexpr int kScanStageBytes = kKeyBytes + 3 * kTileBytes + 2048;
void launch_scan_stages(Stream& stream, ScanCall& scan);  // copies run kScanStages - 1 chunks ahead
void launch_scan(Stream& stream, ScanCall& scan);
// On wgmma (sm90/scan.cu).
inline constexpr int kWgmmaScanSharedBytes = 206848;
void launch_wgmma_scan(Stream& stream, ScanCall& scan);

// ---- device: tiles and tensor cores -----------------------------------------------------------

// Byte offset of 16-byte piece `piece` of row `row` of a tile.
__device__ __forceinline__ int tile_offset(int row, int piece) {
  return row * 128 + ((piece ^ (row & 7)) << 4);
}

// Two values as f16.
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t made;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(made) : "f"(high), "f"(low));
  return made;
}
// Of a pair of bf16.
__device__ __forceinline__ float low_half(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

// 2^x.
__device__ __forceinline__ float exp2_fast(float x) {
  float made;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(made) : "f"(x));
  return made;
}

}  // namespace frt::cuda
