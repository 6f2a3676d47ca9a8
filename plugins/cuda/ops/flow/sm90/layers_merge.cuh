// SPDX-License-Identifier: Apache-2.0
// layers_merge.cuh - how the blocks of a cluster, each of which looked at other keys, put
// together what the attention of an expert's layers yields (sm_90a).
//
// Nobody reads another block's memory: maxima and totals, then sums are stored asynchronously into
// the memory of the block that merges them, and complete a barrier there. What a block sends costs
// more than anything else (16 bytes a cycle), so sums travel in bf16, 16 bytes at a time. (By way
// of this block's memory and bulk copies they took longer.)
//
// A warp's sums are those of a product of columns x queries: lane 4 g + t has queries
// 8 i + 2 t and + 1 of columns g and g + 8. So rank 4 p + t merges the four queries
// 8 i + 2 t and + 1, i = 2 p and 2 p + 1.
#pragma once

#include "../../common/arch.cuh"
#include "../../common/convert_values.cuh"
#include "../../common/mma.cuh"
#include "layers_parts.cuh"
#include "layers_tiles.cuh"

namespace frt::cuda {

#if FRT_ARCH_WGMMA_OR_HOST

template <int kDim>
struct FlowMerge {
  static constexpr int kTiles = kDim / 128;        // of 64 columns, of a warpgroup
  static constexpr int kPairs = kFlowQueries / 8;  // pairs of queries of a lane
  static constexpr int kOwn = 4;                   // queries that a block merges
  static_assert(kOwn * kFlowCluster == kFlowQueries);
  // Shared memory: from each rank, of each warp, its sums; from each rank a maximum and a total of
  // each query.
  static constexpr uint32_t kWarpBytes = kDim;
  static constexpr uint32_t kRankBytes = 8 * kWarpBytes;
  static constexpr uint32_t kSumBytes = kFlowCluster * kRankBytes;
  static constexpr uint32_t kShareBytes = kFlowCluster * kOwn * 8;

  // A tile begins: one thread.
  static __device__ __forceinline__ void expect(uint64_t* barriers) {
    barrier_expect(barriers + 1, kShareBytes);
    barrier_expect(barriers + 2, kSumBytes);
  }

  // A warp's lanes have what reduce_lanes() left them, of a query each.
  static __device__ __forceinline__ void send_shares(const FlowPlace& place, uint32_t shares,
                                                     uint64_t* barriers, float largest,
                                                     float total) {
    const int lane = place.tid % 32, rank = lane / 16 * 4 + lane % 4;
    const int own = lane / 8 % 2 * 2 + lane / 4 % 2;
    send(address_of(shares + (place.rank * kOwn + own) * 8, rank), __float_as_uint(largest),
         __float_as_uint(total), address_of(shared_address(barriers + 1), rank));
  }

  // A lane's sums of tile d.
  static __device__ __forceinline__ void send_sums(const FlowPlace& place, uint32_t sums,
                                                   uint64_t* barriers, int d,
                                                   const float (&o)[kPairs][4]) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    const uint32_t to =
        sums + place.rank * kRankBytes + warp * kWarpBytes + d * 128 + lane / 4 * 16;
#pragma unroll
    for (int p = 0; p < kPairs / 2; ++p) {
      const float(&low)[4] = o[2 * p], (&high)[4] = o[2 * p + 1];
      const uint32_t words[4] = {pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]),
                                 pack_bf16(high[0], high[1]), pack_bf16(high[2], high[3])};
      const int rank = p * 4 + lane % 4;
      send_four(address_of(to, rank), words, address_of(shared_address(barriers + 2), rank));
    }
  }

  // What this block merges of a tile, once it is there.
  static __device__ __forceinline__ void merge(const FlowAttention& a,
                                               const FlowAttentionTile& tile,
                                               const FlowPlace& place, uint32_t sums,
                                               uint32_t shares, uint64_t* barriers,
                                               uint32_t parity) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    // Where this lane's results go once matrices are turned round: query lane / 4 % 4 of four, two
    // columns of tile lane / 16.
    const int heads = a.heads / a.kv_heads;
    const int query =
        tile.first + place.rank / 4 * 16 + lane / 8 % 2 * 8 + place.rank % 4 * 2 + lane / 4 % 2;
    const bool there = query < tile.last && lane / 16 < kTiles;
    const int64_t to = (static_cast<int64_t>(tile.sequence) * a.rows + query / heads) * a.y_stride +
                       static_cast<int64_t>(tile.head * heads + query % heads) * kDim +
                       (warp / 4 * kTiles + lane / 16) * 64 + warp % 4 * 16 + lane % 4 * 2;
    // Lanes read tile t / 2, t = lane % 4, so that a matrix has both tiles.
    const uint32_t from = sums + warp * kWarpBytes + (kTiles == 1 ? 0 : lane % 4 / 2 * 128) +
                          (lane / 4 * 2 + lane % 2) * 8;
    barrier_wait(barriers + 1, parity);
    float factors[kFlowCluster][2];  // of the two queries of this lane's sums
    factors_of(factors, shares + lane % 2 * 16, a.y_scale);
    float low[2] = {}, high[2] = {};
    barrier_wait(barriers + 2, parity);
#pragma unroll
    for (int r = 0; r < kFlowCluster; ++r) {
      const uint2 part = load_pair(from + r * kRankBytes);
      low[0] += factors[r][0] * __uint_as_float(part.x << 16);
      low[1] += factors[r][1] * __uint_as_float(part.x & 0xFFFF0000u);
      high[0] += factors[r][0] * __uint_as_float(part.y << 16);
      high[1] += factors[r][1] * __uint_as_float(part.y & 0xFFFF0000u);
    }
    if (a.y_scale > 0) {
      const uint32_t codes =
          transpose_8x8(uint32_t{e4m3_bits(low[0])} | uint32_t{e4m3_bits(high[0])} << 8 |
                        uint32_t{e4m3_bits(low[1])} << 16 | uint32_t{e4m3_bits(high[1])} << 24);
      if (!there) return;
      auto* bytes = static_cast<uint8_t*>(a.y) + to;
      *reinterpret_cast<uint16_t*>(bytes) = static_cast<uint16_t>(__byte_perm(codes, 0, 0x20));
      *reinterpret_cast<uint16_t*>(bytes + 8) = static_cast<uint16_t>(__byte_perm(codes, 0, 0x31));
    } else {
      const uint32_t lower = transpose_8x8(pack_bf16(low[0], low[1]));
      const uint32_t upper = transpose_8x8(pack_bf16(high[0], high[1]));
      if (!there) return;
      auto* values = static_cast<bf16*>(a.y) + to;
      *reinterpret_cast<uint32_t*>(values) = lower;
      *reinterpret_cast<uint32_t*>(values + 8) = upper;
    }
  }

 private:
  // What the sums of each rank count for in the results of two queries.
  static __device__ __forceinline__ void factors_of(float (&factors)[kFlowCluster][2],
                                                    uint32_t shares, float y_scale) {
    float4 each[kFlowCluster];
    float most[2] = {-INFINITY, -INFINITY}, total[2] = {};
#pragma unroll
    for (int r = 0; r < kFlowCluster; ++r) {
      each[r] = load_floats(shares + r * (kOwn * 8));
      most[0] = fmaxf(most[0], each[r].x);
      most[1] = fmaxf(most[1], each[r].z);
    }
#pragma unroll
    for (int r = 0; r < kFlowCluster; ++r) {
      factors[r][0] = exp2_fast(each[r].x - most[0]);
      factors[r][1] = exp2_fast(each[r].z - most[1]);
      total[0] += factors[r][0] * each[r].y;
      total[1] += factors[r][1] * each[r].w;
    }
    const float inverse = y_scale > 0 ? 1.0f / y_scale : 1.0f;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float share = inverse / total[e];
#pragma unroll
      for (int r = 0; r < kFlowCluster; ++r) factors[r][e] *= share;
    }
  }
};

#endif

}  // namespace frt::cuda
