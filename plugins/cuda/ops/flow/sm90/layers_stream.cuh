// SPDX-License-Identifier: Apache-2.0
// layers_stream.cuh - the residual stream in the kernel of an expert's layers: a block owns
// some rows of its cluster's tiles in f32, adds to them what the blocks of its cluster send, and
// publishes what the next products need.
//
// A warp owns a row, or two eight rows apart; eighteen of its lanes have four columns each.
#pragma once

#include "../../common/arch.cuh"
#include "layers_products.cuh"

namespace frt::cuda {

#if FRT_ARCH_WGMMA

namespace flow {

template <int kRows, bool kFp8>
struct Residual : Products<kRows, kFp8> {
  using Base = Products<kRows, kFp8>;
  using Shared = FlowShared<kRows>;
  using Base::area;
  using Base::args;
  using Base::clean_rows;
  using Base::group;
  using Base::kHalves;
  using Base::lane;
  using Base::shape;
  using Base::shared;
  using Base::sync;
  using Base::tid;
  using Base::warp;
  static constexpr int kLanes = kFlowOutputs / 4;  // that own columns

  uint32_t received_parity = 0;

  bool own_clean[kHalves];  // the rows that this warp owns

  __device__ __forceinline__ Residual(const FlowArgs& args, Shared& shared, uint32_t ring,
                                      uint32_t area, const FlowSync& sync)
      : Base(args, shared, ring, area, sync) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) own_clean[h] = this->is_clean(own_row(h));
  }

  // Of the block's rows this warp's, and the row it is in x.
  __device__ __forceinline__ int place_of_row(int half) const {
    return half * 8 + tid / 32;
  }
  __device__ __forceinline__ int own_row(int half) const {
    return shape.rank() * Shared::kOwned + place_of_row(half);
  }
  __device__ __forceinline__ const float* vectors(const FlowModulation& modulation,
                                                  int half) const {
    return own_clean[half] ? modulation.clean : modulation.rows;
  }
  __device__ __forceinline__ int column_of(int tile) const {
    return tile * kFlowOutputs + lane * 4;
  }
  __device__ __forceinline__ bool has_columns(int tile) const {
    return lane < kLanes && column_of(tile) < args.width;
  }
  __device__ __forceinline__ float4& piece_of(int i, int half) {
    return shared.pieces[(i * Shared::kOwned + place_of_row(half)) * kLanes + lane];
  }

  // x as the next products need it: times 1 + scale, its squares, and the shift vectors. In FP8,
  // where the normed rows are rounded, as it is.
  __device__ __forceinline__ void publish(int tile, int row, float4 x, float4 scale,
                                          const FlowModulation& next) {
    const bool columns = has_columns(tile);
    const int64_t at = static_cast<int64_t>(row) * args.width + column_of(tile);
    if (row >= args.rows) {
      const int shift = row - args.rows;
      if (!columns || shift >= args.shifts) return;
      x = load_four((shift == 0 ? next.rows : next.clean) + args.width + column_of(tile));
    } else {
      float squares = columns ? x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w : 0.0f;
#pragma unroll
      for (int lanes = 16; lanes > 0; lanes /= 2) squares += __shfl_xor_sync(~0u, squares, lanes);
      if (lane == 0) args.squares[row * args.tiles.output_tiles + tile] = squares;
      if (!columns) return;
      if constexpr (kFp8) {
        *reinterpret_cast<float4*>(reinterpret_cast<float*>(args.y) + at) = x;
        return;
      }
      x.x *= 1 + scale.x;
      x.y *= 1 + scale.y;
      x.z *= 1 + scale.z;
      x.w *= 1 + scale.w;
    }
    *reinterpret_cast<uint2*>(args.y + at) = make_uint2(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w));
  }

  __device__ __forceinline__ void enter() {
    const FlowModulation& next = args.layers[0].attention;
    for (int t = shape.cluster(), i = 0; t < args.tiles.output_tiles; t += shape.clusters(), ++i) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const int row = own_row(h);
        float4 x = make_float4(0, 0, 0, 0), scale = x;
        if (row < args.rows && has_columns(t)) {
          const int64_t at = static_cast<int64_t>(row) * args.width + column_of(t);
          if (args.x_f32) {
            x = load_four(static_cast<const float*>(args.x) + at);
          } else {
            const uint2 two =
                *reinterpret_cast<const uint2*>(static_cast<const bf16*>(args.x) + at);
            x = make_float4(__uint_as_float(two.x << 16), __uint_as_float(two.x & 0xFFFF0000u),
                            __uint_as_float(two.y << 16), __uint_as_float(two.y & 0xFFFF0000u));
          }
          if (!kFp8) scale = load_four(vectors(next, h) + column_of(t));
          piece_of(i, h) = x;
        }
        publish(t, row, x, scale, next);
      }
    }
    sync.arrive();
  }

  // Each block gets the sums of the rows it owns.
  __device__ __forceinline__ void send_sums(const float (&v)[kHalves][kFlowOutputs / 4]) {
    const int rank = this->eight_of(0) / kHalves;
    const uint32_t barrier = rank_address(&shared.received, rank);
    const uint32_t to =
        address_at(area + Shared::kReceive + shape.rank() * Shared::kFromRank, rank) + lane * 16;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      if (this->row_of(h) >= args.rows) continue;
      uint32_t words[kFlowOutputs / 8];
#pragma unroll
      for (int j = 0; j < kFlowOutputs / 8; ++j) {
        words[j] = pack_bf16(v[h][2 * j], v[h][2 * j + 1]);
      }
      const uint32_t at = to + h * kFlowSentBytes;
      send_four(at, words, barrier);
      send_four(at + 512, words + 4, barrier);
      send_one(at + 1024 - lane * 12, words[8], barrier);
    }
  }
  static constexpr int kSentByRow = 4 * (kFlowOutputs / 8) * 4;  // bytes

  // What all ranks sent for this lane's columns of a row.
  __device__ __forceinline__ float4 received_sum(int half) const {
    // Pair 4 j + t of a row is the j-th of lane t.
    const int row = tid / 32, j = lane / 2, t = lane % 2 * 2;
    const uint32_t from =
        area + Shared::kReceive + half * kFlowSentBytes +
        (j < 8 ? j / 4 * 512 + (row * 4 + t) * 16 + j % 4 * 4 : 1024 + (row * 4 + t) * 4);
    const uint32_t next = j < 8 ? 16 : 4;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int r = 0; r < kFlowCluster; ++r) {
      const uint32_t low = load_word(from + r * Shared::kFromRank),
                     high = load_word(from + next + r * Shared::kFromRank);
      sum.x += __uint_as_float(low << 16);
      sum.y += __uint_as_float(low & 0xFFFF0000u);
      sum.z += __uint_as_float(high << 16);
      sum.w += __uint_as_float(high & 0xFFFF0000u);
    }
    return sum;
  }

  // x += gate * (product with this block's part of the inputs, summed over the cluster). `next`:
  // NULL behind the last layer, when x goes to memory. In FP8 sums are multiplied by `factor`.
  __device__ __forceinline__ void add(int units, const FlowModulation& modulation, float factor,
                                      const FlowModulation* next) {
    if (shape.cluster() >= args.tiles.output_tiles) sync.wait();
#pragma unroll 1
    for (int t = shape.cluster(), i = 0; t < args.tiles.output_tiles; t += shape.clusters(), ++i) {
      if (tid == 0) {
        const int rows = max(0, min(args.rows - shape.rank() * Shared::kOwned, Shared::kOwned));
        barrier_expect(&shared.received, kFlowCluster * rows * kSentByRow);
      }
      float4 gates[kHalves], scales[kHalves];
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        gates[h] = scales[h] = make_float4(0, 0, 0, 0);
        if (own_row(h) >= args.rows || !has_columns(t)) continue;
        gates[h] = load_four(vectors(modulation, h) + 2 * args.width + column_of(t));
        if (next && !kFp8) scales[h] = load_four(vectors(*next, h) + column_of(t));
      }
      {
        float c[kFlowOutputs / 2];
        this->template multiply<kFlowOutputs>(c, units, Shared::kSplitSlots, false);
        this->exchange(c, area, [&](const float(&v)[kHalves][kFlowOutputs / 4]) { send_sums(v); });
      }
      barrier_wait(&shared.received, received_parity);
      received_parity ^= 1;
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        float4 x = make_float4(0, 0, 0, 0);
        if (own_row(h) < args.rows && has_columns(t)) {
          const float4 sum = received_sum(h);
          if constexpr (kFp8) {
            gates[h].x *= factor;
            gates[h].y *= factor;
            gates[h].z *= factor;
            gates[h].w *= factor;
          }
          x = piece_of(i, h);
          x.x = fmaf(gates[h].x, sum.x, x.x);
          x.y = fmaf(gates[h].y, sum.y, x.y);
          x.z = fmaf(gates[h].z, sum.z, x.z);
          x.w = fmaf(gates[h].w, sum.w, x.w);
          piece_of(i, h) = x;
          if (!next) store_x(t, own_row(h), x);
        }
        if (next) publish(t, own_row(h), x, scales[h], *next);
      }
      if (t + shape.clusters() < args.tiles.output_tiles) this->release_x();
    }
    if (next) sync.arrive();
  }

  __device__ __forceinline__ void store_x(int tile, int row, float4 x) {
    const int64_t at = static_cast<int64_t>(row) * args.width + column_of(tile);
    if (args.x_f32) {
      *reinterpret_cast<float4*>(static_cast<float*>(args.x) + at) = x;
    } else {
      *reinterpret_cast<uint2*>(static_cast<bf16*>(args.x) + at) =
          make_uint2(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w));
    }
  }
};

}  // namespace flow

#endif  // FRT_ARCH_WGMMA

}  // namespace frt::cuda
