// SPDX-License-Identifier: Apache-2.0
// flow_layers_kernel.cuh - the layers of an action expert in one launch (sm_90a).
//
// Ten to a hundred rows pass through weights of 35 MB a layer (1024 wide, 2048 and 4096 within):
// 7.4 us to read, 3.7 in FP8. As operators of their own each product starts its weights from zero
// and waits for the one before. Here clusters of eight blocks, one block for each processor that
// clusters reach, go through five phases a layer, with a barrier of the grid between them:
//
//   project    q, k, v   tiles of 64 outputs, both halves of a rotated pair in one thread
//   attend               tiles of queries, a cluster divides the keys (flow_layers_attention.cuh)
//   add        x += ...  tiles of 64 outputs, a cluster divides the inputs
//   activate   h         tiles of 32 outputs of gate and of up
//   add        x += ...
//
// One thread fetches weights through a ring of units of 16 KB, as far ahead as there is room,
// through phases and layers: what a block multiplies is known beforehand, so weights wait for no
// barrier. Another one fetches x behind the barriers; what all blocks of a cluster multiply comes
// to all of them by one copy of each.
//
// The stream x stays in f32 where it is added to: each block owns eighths of the rows of its
// cluster's tiles. Norms: the owner publishes x (1 + scale) in bf16 and sums of its squares; the
// next product multiplies that, and the vector of shifts as a further row, and scales its results
// by what the squares sum up to:  norm(x) W^T = r ((x (1 + scale)) W^T) + shift W^T.
// In FP8 x is published as it is, and each block makes the normed codes of 128 columns for all
// blocks of its cluster.
//
// All sums in f32, in a fixed order.
#pragma once

#include "attention_wgmma.cuh"
#include "dense_multiply.cuh"
#include "flow_layers_attention.cuh"
#include "flow_layers_copies.cuh"
#include "flow_layers_fused.cuh"
#include "launch.cuh"

namespace frt::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace flow {

// ---- the threads that compute -------------------------------------------------------------------

__device__ __forceinline__ float4 load_four(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}

// condition ? a : b, never as an index into an array.
__device__ __forceinline__ float select(bool condition, float a, float b) {
  float result;
  asm("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\nselp.f32 %0, %1, %2, p;\n}\n"
      : "=f"(result)
      : "f"(a), "f"(b), "r"(static_cast<int>(condition)));
  return result;
}

// The first value in the lowest byte.
__device__ __forceinline__ uint32_t e4m3_codes(float a, float b, float c, float d) {
  uint32_t codes;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}\n"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return codes;
}

template <int kRows, int kDim, bool kFp8>
struct Worker {
  using Shared = FlowShared<kRows>;
  static constexpr int kSums = kRows / 2;  // of a thread

  const FlowArgs& args;
  Shared& shared;
  const uint32_t ring, area;
  FlowSync sync;
  const Shape shape;
  const int tid, warp, lane;
  int clean_rows;
  Place place;
  uint32_t x_parity = 0, passed_parity = 0, received_parity = 0, attention_parity = 0;

  __device__ __forceinline__ Worker(const FlowArgs& args, Shared& shared, uint32_t ring,
                                    uint32_t area, const FlowSync& sync)
      : args(args),
        shared(shared),
        ring(ring),
        area(area),
        sync(sync),
        shape(args, kFp8),
        tid(static_cast<int>(threadIdx.x)),
        warp(tid / 32),
        lane(tid % 32) {
    clean_rows = args.clean_rows ? *args.clean_rows : 0;
    if (tid == 0) {
      FlowAttentionPhase<kDim>::start(attention_of(args.layers[0]), place_of(), shared.attention);
    }
  }

  __device__ __forceinline__ bool is_clean(int row) const { return row % args.period < clean_rows; }
  __device__ __forceinline__ const float* vectors(const FlowModulation& modulation, int row) const {
    return is_clean(row) ? modulation.clean : modulation.rows;
  }

  // ---- products: the first four warps -----------------------------------------------------------

  __device__ __forceinline__ void release(int stage) {
    if (stage >= 0 && lane == 0) barrier_arrive(shared.empty + stage);
  }

  __device__ __forceinline__ void wait_x(int slot) {
    barrier_wait(shared.x_full + slot, x_parity >> slot & 1);
    x_parity ^= 1u << slot;
  }
  // All threads of all blocks are done with the units of x that are there.
  __device__ __forceinline__ void release_x() {
    asm volatile("bar.sync 2, 128;" ::: "memory");
    if (tid < kFlowCluster) {
      asm volatile(
          "mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(rank_address(&shared.x_empty, tid))
          : "memory");
    }
  }

  // c = weights x^T over `units` units, which come in rounds of `slots`; `resident`: x is there
  // from the tile before; `last`: nothing comes behind.
  __device__ __forceinline__ void multiply(float (&c)[kSums], int units, int slots, bool resident,
                                           bool last) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) c[i] = 0;
#pragma unroll 1
    for (int begin = 0; begin < units; begin += slots) {
      const int count = min(slots, units - begin);
      int previous = -1;
#pragma unroll 1
      for (int slot = 0; slot < count; ++slot) {
        if (!resident) wait_x(slot);
        barrier_wait(shared.full + place.stage, place.parity);
        const uint64_t a = matrix_descriptor(ring + place.stage * kFlowUnitBytes, 16);
        const uint64_t b = matrix_descriptor(area + slot * Shared::kXUnit, 16);
        products_fence();
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const uint64_t from_a = a + k / 4 * (kFlowUnitBytes / 32) + k % 4 * 2;
          const uint64_t from_b = b + k / 4 * (Shared::kXUnit / 32) + k % 4 * 2;
          if constexpr (kFp8) {
            multiply_64_fp8<kRows>(c, from_a, from_b);
          } else {
            multiply_64<kRows>(c, from_a, from_b);
          }
        }
        products_commit();
        products_wait<1>();
        release(previous);
        previous = place.stage;
        place.advance(args.stages);
      }
      products_wait<0>();
      release(previous);
      if (units > slots && !(last && begin + count == units)) release_x();
    }
#pragma unroll
    for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(c[i])::"memory");
  }

  // x comes to this block for others, too.
  __device__ __forceinline__ void take_x(int units, int slots, bool resident, bool last) {
    for (int begin = 0; begin < units; begin += slots) {
      const int count = min(slots, units - begin);
      for (int slot = 0; slot < count && !resident; ++slot) wait_x(slot);
      if (units > slots && !(last && begin + count == units)) release_x();
    }
  }

  // What shift vectors yield with this thread's two outputs.
  struct Shifts {
    float low[2], high[2];
  };
  __device__ __forceinline__ Shifts shifts_of(const float (&c)[kSums]) const {
    Shifts shifts;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int n = args.rows + min(s, args.shifts - 1);
      float low = 0, high = 0;
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j) {
        const bool here = n / 8 == j;
        low = select(here, n % 2 == 0 ? c[4 * j] : c[4 * j + 1], low);
        high = select(here, n % 2 == 0 ? c[4 * j + 2] : c[4 * j + 3], high);
      }
      shifts.low[s] = __shfl_sync(~0u, low, lane / 4 * 4 + n % 8 / 2);
      shifts.high[s] = __shfl_sync(~0u, high, lane / 4 * 4 + n % 8 / 2);
    }
    return shifts;
  }

  // finish(i, low, high): of the i-th row of this thread (row 8 (i / 2) + 2 t + i % 2) the sums of
  // its two outputs, normalised. Then they go to memory, `high` elements apart, if both do.
  template <bool kBoth, class Finish>
  __device__ __forceinline__ void store_pairs(const float (&c)[kSums], bf16* to, int64_t stride,
                                              int high, const Finish& finish) {
    Shifts shifts;
    if constexpr (!kFp8) shifts = shifts_of(c);
    to += (lane / 4) * stride + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j, to += 8 * stride) {
      float lows[2], highs[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        lows[e] = c[4 * j + e];
        highs[e] = c[4 * j + 2 + e];
        if constexpr (!kFp8) {
          const float factor = shared.factors[8 * j + lane % 4 * 2 + e];
          const bool clean = factor < 0;
          lows[e] = fmaf(fabsf(factor), lows[e], clean ? shifts.low[1] : shifts.low[0]);
          highs[e] = fmaf(fabsf(factor), highs[e], clean ? shifts.high[1] : shifts.high[0]);
        }
        finish(2 * j + e, lows[e], highs[e]);
      }
      const bool there = 8 * j + lane / 4 < args.rows;
      const uint32_t first = transpose_8x8(pack_bf16(lows[0], lows[1]));
      if (there) *reinterpret_cast<uint32_t*>(to) = first;
      if constexpr (kBoth) {
        const uint32_t second = transpose_8x8(pack_bf16(highs[0], highs[1]));
        if (there) *reinterpret_cast<uint32_t*>(to + high) = second;
      }
    }
  }

  // The same for one result of a pair, finish(low, high), in FP8: two groups of rows at a time
  // share the bytes of a matrix that is turned round.
  template <class Finish>
  __device__ __forceinline__ void store_fp8(const float (&c)[kSums], uint8_t* to, int64_t stride,
                                            const Finish& finish) {
    to += (lane / 4) * stride + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kRows / 8; j += 2, to += 16 * stride) {
      float values[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int g = j + i % 2;
        if (g < kRows / 8) values[i] = finish(c[4 * g + i / 2], c[4 * g + 2 + i / 2]);
      }
      const uint32_t codes = transpose_8x8(e4m3_codes(values[0], values[1], values[2], values[3]));
      if (8 * j + lane / 4 < args.rows) {
        *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(__byte_perm(codes, 0, 0x20));
      }
      if (8 * j + 8 + lane / 4 < args.rows) {
        *reinterpret_cast<uint16_t*>(to + 8 * stride) =
            static_cast<uint16_t>(__byte_perm(codes, 0, 0x31));
      }
    }
  }

  // 1 / root mean square of the rows: the other four warps.
  __device__ __forceinline__ void factors() {
    const int row = tid - 128;
    if (row >= kRows) return;
    float factor = 0;
    if (row < args.rows) {
      const auto* squares =
          reinterpret_cast<const float4*>(args.squares + row * shape.output_tiles);
      float sum = 0;
#pragma unroll 4
      for (int i = 0; i < shape.output_tiles / 4; ++i) {
        const float4 four = __ldcg(squares + i);
        sum += four.x;
        sum += four.y;
        sum += four.z;
        sum += four.w;
      }
      factor = rsqrtf(sum / static_cast<float>(args.width) + args.epsilon);
      if (is_clean(row)) factor = -factor;
    }
    shared.factors[row] = factor;
  }

  // The normed rows in FP8: of each 128 columns one block of the cluster makes them for all.
  __device__ __forceinline__ void convert(const FlowModulation& modulation, float to_code) {
    constexpr int kHalf = Shared::kXUnit / 2;
    const int column = shape.rank * 128 + lane * 4;
    const bool mine = shape.rank * 128 < args.width;
    float4 scale[2] = {}, shift[2] = {}, x[kRows / 8];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!mine || (i == 1 && clean_rows == 0)) continue;
      const float* vectors = i == 0 ? modulation.rows : modulation.clean;
      scale[i] = load_four(vectors + column);
      shift[i] = load_four(vectors + args.width + column);
    }
    barrier_wait(&shared.passed, passed_parity);
    passed_parity ^= 1;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      const int row = 8 * i + warp;
      x[i] = make_float4(0, 0, 0, 0);
      if (!mine || row >= args.rows) continue;
      x[i] =
          __ldcg(reinterpret_cast<const float4*>(reinterpret_cast<const float*>(args.y) +
                                                 static_cast<int64_t>(row) * args.width + column));
    }
    if (tid >= 128) factors();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scale[i] = make_float4((1 + scale[i].x) * to_code, (1 + scale[i].y) * to_code,
                             (1 + scale[i].z) * to_code, (1 + scale[i].w) * to_code);
      shift[i] = make_float4(shift[i].x * to_code, shift[i].y * to_code, shift[i].z * to_code,
                             shift[i].w * to_code);
    }
    sync.block();
    const uint32_t to = area + shape.rank * kHalf;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      const int row = 8 * i + warp;
      const float factor = shared.factors[row], f = fabsf(factor);
      const auto codes_of = [&](const float4& a, const float4& b) {
        return e4m3_codes(fmaf(x[i].x * f, a.x, b.x), fmaf(x[i].y * f, a.y, b.y),
                          fmaf(x[i].z * f, a.z, b.z), fmaf(x[i].w * f, a.w, b.w));
      };
      const uint32_t codes =
          factor < 0 ? codes_of(scale[1], shift[1]) : codes_of(scale[0], shift[0]);
      if (!mine) continue;
      asm volatile(
          "st.shared.u32 [%0], %1;" ::"r"(to + row * 128 + ((lane / 4) ^ warp) * 16 + lane % 4 * 4),
          "r"(codes)
          : "memory");
    }
    publish_to_products();
    sync.block();
    if (warp == shape.rank) {
      if (lane < shape.width_units) {
        const bool other = mine && lane == shape.rank / 2;
        barrier_expect(shared.x_full + lane, other ? kHalf : Shared::kXUnit);
      }
    } else if (mine && lane == 0) {  // a warp issues one copy faster than eight
      asm volatile(
          "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
          "[%0], [%1], %2, [%3];\n"
          "cp.async.bulk.commit_group;" ::"r"(address_at(to, warp)),
          "r"(to), "r"(kHalf), "r"(rank_address(shared.x_full + shape.rank / 2, warp))
          : "memory");
    }
  }

  // Tiles of products with the rows normed by `modulation`; to_code: as in FlowFactors.
  template <class Tile>
  __device__ __forceinline__ void shared_by_all(int tiles, const FlowModulation& modulation,
                                                float to_code, const Tile& tile) {
    if (shape.cluster * kFlowCluster >= tiles) {
      sync.wait();
      return sync.arrive();
    }
    if constexpr (kFp8) convert(modulation, to_code);
    if (tid >= 128) {
      if constexpr (!kFp8) {
        barrier_wait(&shared.passed, passed_parity);
        passed_parity ^= 1;
        factors();
        sync.block();
      }
    } else {
      const bool all_fit = shape.width_units <= Shared::kSlots;
      bool first = true;
      for (int t = shape.block; t - shape.rank < tiles; t += shape.blocks) {
        const bool resident = all_fit && !first, last = t - shape.rank + shape.blocks >= tiles;
        if (t < tiles) {
          tile(t, [&](float(&c)[kSums]) {
            multiply(c, shape.width_units, Shared::kSlots, resident, last);
            if (first && !kFp8) sync.block();
          });
        } else {
          take_x(shape.width_units, Shared::kSlots, resident, last);
          if (first && !kFp8) sync.block();
        }
        first = false;
      }
    }
    // The next phase may write to the area before the others have what is copied from it.
    if (kFp8 && lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    sync.arrive();
  }

  __device__ __forceinline__ void project(const FlowLayer& layer) {
    const int half = args.head_dim / 2, head_tiles = args.head_dim / kFlowOutputs;
    shared_by_all(
        shape.input_tiles, layer.attention, layer.factors.to_qkv, [&](int t, const auto& sum) {
          const bool query = t < shape.query_tiles;
          const int tile = query ? t : t - shape.query_tiles;
          const int head = tile / head_tiles, column = tile % head_tiles * 32 + warp * 8;
          const bool rotated = query || head < args.kv_heads;
          float cosines[kRows / 4], sines[kRows / 4];
#pragma unroll
          for (int i = 0; i < kRows / 4; ++i) {
            const int position = shared.positions[i / 2 * 8 + lane % 4 * 2 + i % 2];
            cosines[i] = 1;
            sines[i] = 0;
            if (!rotated || position < 0) continue;
            const float* angles =
                args.table + static_cast<int64_t>(position) * args.head_dim + column + lane / 4;
            cosines[i] = __ldg(angles);
            sines[i] = __ldg(angles + half);
          }
          [[maybe_unused]] const float factor =
              query ? layer.factors.query : layer.factors.key_value;
          float c[kSums];
          sum(c);
          const int64_t stride = (query ? args.heads : 2 * args.kv_heads) * args.head_dim;
          store_pairs<true>(c, (query ? args.q : args.kv) + head * args.head_dim + column, stride,
                            half, [&](int i, float& low, float& high) {
                              if constexpr (kFp8) {
                                low *= factor;
                                high *= factor;
                              }
                              const float before = low;
                              low = before * cosines[i] - high * sines[i];
                              high = high * cosines[i] + before * sines[i];
                            });
        });
  }

  __device__ __forceinline__ void activate(const FlowLayer& layer) {
    const FlowFactors& factors = layer.factors;
    shared_by_all(shape.gate_tiles, layer.hidden, factors.to_hidden, [&](int t, const auto& sum) {
      const int column = t * 32 + warp * 8;
      float c[kSums];
      sum(c);
      if constexpr (kFp8) {
        store_fp8(c, reinterpret_cast<uint8_t*>(args.h) + column, args.hidden,
                  [&](float low, float high) {
                    return gelu(low * factors.gate) * (high * factors.up) * factors.to_down;
                  });
      } else {
        store_pairs<false>(c, args.h + column, args.hidden, 0,
                           [](int, float& low, float high) { low = gelu(low) * high; });
      }
    });
  }

  // ---- the residual stream ----------------------------------------------------------------------

  // A thread owns four columns of a row, in every tile of its cluster.
  __device__ __forceinline__ int own_row() const {
    return shape.rank * Shared::kOwned + tid / 16;
  }
  __device__ __forceinline__ bool owns() const {
    return tid < Shared::kOwned * 16 && own_row() < args.rows;
  }

  // x as the next products need it: times 1 + scale, its squares, and the shift vectors. In FP8,
  // where the normed rows are rounded, as it is.
  __device__ __forceinline__ void publish(int tile, float4 x, float4 scale,
                                          const FlowModulation& next) {
    const int row = own_row(), column = tile * kFlowOutputs + tid % 16 * 4;
    float squares = x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
#pragma unroll
    for (int lanes = 8; lanes > 0; lanes /= 2) squares += __shfl_xor_sync(~0u, squares, lanes);
    if (owns() && kFp8) {
      *reinterpret_cast<float4*>(reinterpret_cast<float*>(args.y) +
                                 static_cast<int64_t>(row) * args.width + column) = x;
      if (tid % 16 == 0) args.squares[row * shape.output_tiles + tile] = squares;
      return;
    }
    if (owns()) {
      *reinterpret_cast<uint2*>(args.y + static_cast<int64_t>(row) * args.width + column) =
          make_uint2(pack_bf16(x.x * (1 + scale.x), x.y * (1 + scale.y)),
                     pack_bf16(x.z * (1 + scale.z), x.w * (1 + scale.w)));
      if (tid % 16 == 0) args.squares[row * shape.output_tiles + tile] = squares;
    }
    const int shift = tid / 16 - 14;  // the last block has the fewest rows
    if (shape.rank == kFlowCluster - 1 && shift >= 0 && shift < args.shifts) {
      const float4 v = load_four((shift == 0 ? next.rows : next.clean) + args.width + column);
      *reinterpret_cast<uint2*>(args.y + static_cast<int64_t>(args.rows + shift) * args.width +
                                column) = make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
    }
  }

  __device__ __forceinline__ void enter() {
    float4* piece = shared.pieces + tid;
    for (int t = shape.cluster; t < shape.output_tiles;
         t += shape.clusters, piece += Shared::kOwned * 16) {
      const int column = t * kFlowOutputs + tid % 16 * 4;
      const FlowModulation& next = args.layers[0].attention;
      float4 x = make_float4(0, 0, 0, 0), scale = x;
      if (owns()) {
        const int64_t at = static_cast<int64_t>(own_row()) * args.width + column;
        if (args.x_f32) {
          x = load_four(static_cast<const float*>(args.x) + at);
        } else {
          const uint2 two = *reinterpret_cast<const uint2*>(static_cast<const bf16*>(args.x) + at);
          x = make_float4(__uint_as_float(two.x << 16), __uint_as_float(two.x & 0xFFFF0000u),
                          __uint_as_float(two.y << 16), __uint_as_float(two.y & 0xFFFF0000u));
        }
        if (!kFp8) scale = load_four(vectors(next, own_row()) + column);
        *piece = x;
      }
      publish(t, x, scale, next);
    }
    sync.arrive();
  }

  // x += gate * (product with this block's part of the inputs, summed over the cluster). `next`:
  // NULL behind the last layer, when x goes to memory. In FP8 sums are multiplied by `factor`.
  __device__ __forceinline__ void add(int units, const FlowModulation& modulation, float factor,
                                      const FlowModulation* next) {
    if (shape.cluster >= shape.output_tiles) sync.wait();
    float4 gates[kFlowPieces], scales[kFlowPieces];
#pragma unroll
    for (int i = 0; i < kFlowPieces; ++i) {
      const int t = shape.cluster + i * shape.clusters;
      gates[i] = scales[i] = make_float4(0, 0, 0, 0);
      if (t >= shape.output_tiles) continue;
      if (tid == 0) barrier_expect(shared.received + i, Shared::kSums - kSentBytes);
      if (!owns()) continue;
      const int column = t * kFlowOutputs + tid % 16 * 4;
      gates[i] = load_four(vectors(modulation, own_row()) + 2 * args.width + column);
      if (next && !kFp8) scales[i] = load_four(vectors(*next, own_row()) + column);
      if constexpr (kFp8) {
        gates[i].x *= factor;
        gates[i].y *= factor;
        gates[i].z *= factor;
        gates[i].w *= factor;
      }
    }
    if (tid < 128) {
      for (int t = shape.cluster, i = 0; t < shape.output_tiles; t += shape.clusters, ++i) {
        float c[kSums];
        multiply(c, units, Shared::kSplitSlots, units <= Shared::kSplitSlots && i > 0,
                 t + shape.clusters >= shape.output_tiles);
        send(c, i);
      }
    }
#pragma unroll
    for (int i = 0; i < kFlowPieces; ++i) {
      const int t = shape.cluster + i * shape.clusters;
      if (t >= shape.output_tiles) continue;
      barrier_wait(shared.received + i, received_parity);
      float4 x = make_float4(0, 0, 0, 0);
      if (owns()) {
        float4 sum = make_float4(0, 0, 0, 0);
        const uint32_t sums =
            area + Shared::kReceive + i * Shared::kSums +
            (tid / 16 * kFlowSumStride + tid % 16 * 4) * static_cast<int>(sizeof(float));
#pragma unroll
        for (int r = 0; r < kFlowCluster; ++r) {
          float4 part;
          asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(part.x), "=f"(part.y), "=f"(part.z), "=f"(part.w)
                       : "r"(sums + r * kSentBytes)
                       : "memory");
          sum.x += part.x;
          sum.y += part.y;
          sum.z += part.z;
          sum.w += part.w;
        }
        float4& piece = shared.pieces[i * Shared::kOwned * 16 + tid];
        x = piece;
        x.x = fmaf(gates[i].x, sum.x, x.x);
        x.y = fmaf(gates[i].y, sum.y, x.y);
        x.z = fmaf(gates[i].z, sum.z, x.z);
        x.w = fmaf(gates[i].w, sum.w, x.w);
        piece = x;
      }
      if (next) {
        publish(t, x, scales[i], *next);
      } else if (owns()) {
        store_x(t, x);
      }
    }
    received_parity ^= 1;
    if (next) sync.arrive();
  }

  __device__ __forceinline__ void store_x(int tile, float4 x) {
    const int64_t at =
        static_cast<int64_t>(own_row()) * args.width + tile * kFlowOutputs + tid % 16 * 4;
    if (args.x_f32) {
      *reinterpret_cast<float4*>(static_cast<float*>(args.x) + at) = x;
    } else {
      *reinterpret_cast<uint2*>(static_cast<bf16*>(args.x) + at) =
          make_uint2(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w));
    }
  }

  // Each block gets the sums of the rows it owns, of its cluster's i-th tile.
  static constexpr int kSentBytes = Shared::kOwned * kFlowSumStride * 4;
  __device__ __forceinline__ void send(const float (&c)[kSums], int i) {
    const uint32_t sums = area + Shared::kSend;
    if (i > 0) {
      if (tid < kFlowCluster) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      asm volatile("bar.sync 2, 128;" ::: "memory");
    }
#pragma unroll
    for (int j = 0; j < kSums; ++j) {
      const int n = j / 4 * 8 + lane % 4 * 2 + j % 2;
      const int output = warp * 16 + lane / 4 + j % 4 / 2 * 8;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(sums + (n * kFlowSumStride + output) * 4),
                   "f"(c[j])
                   : "memory");
    }
    publish_to_products();
    asm volatile("bar.sync 2, 128;" ::: "memory");
    const uint32_t to = area + Shared::kReceive + i * Shared::kSums + shape.rank * kSentBytes;
    if (tid < kFlowCluster && tid != shape.rank) {
      asm volatile(
          "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
          "[%0], [%1], %2, [%3];\n"
          "cp.async.bulk.commit_group;" ::"r"(address_at(to, tid)),
          "r"(sums + tid * kSentBytes), "r"(kSentBytes), "r"(rank_address(shared.received + i, tid))
          : "memory");
    }
    const uint32_t own = sums + shape.rank * kSentBytes;
    for (int at = tid * 16; at < kSentBytes; at += 128 * 16) {
      float4 v;
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                   : "r"(own + at)
                   : "memory");
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + at), "f"(v.x), "f"(v.y),
                   "f"(v.z), "f"(v.w)
                   : "memory");
    }
    asm volatile("bar.sync 2, 128;" ::: "memory");
    if (tid == 0) barrier_arrive(shared.received + i);
  }

  // ---- all of it --------------------------------------------------------------------------------

  __device__ __forceinline__ FlowPlace place_of() const {
    return {shape.cluster, shape.clusters, shape.rank, tid};
  }
  __device__ __forceinline__ FlowAttention attention_of(const FlowLayer& layer) const {
    FlowAttention a{};
    a.scale = args.scale;
    a.count = args.count;
    a.rows = args.sequence_rows;
    a.heads = args.heads;
    a.kv_heads = args.kv_heads;
    a.context_rows = args.context_rows;
    a.sequences_per_context = args.sequences_per_context;
    a.context_length = args.context_length;
    a.q = args.q;
    a.k = args.kv;
    a.v = args.kv + args.kv_heads * args.head_dim;
    a.context_k = static_cast<const bf16*>(layer.context_k);
    a.context_v = static_cast<const bf16*>(layer.context_v);
    a.q_stride = a.y_stride = args.heads * args.head_dim;
    a.kv_stride = 2 * args.kv_heads * args.head_dim;
    a.context_stride = args.context_stride;
    a.y = args.attention;
    a.y_scale = kFp8 ? layer.factors.attention : 0;
    return a;
  }

  __device__ __forceinline__ void attend(const FlowLayer& layer) {
    const FlowPlace place = place_of();
    const FlowAttention a = attention_of(layer);
    FlowAttentionPhase<kDim> phase;
    phase.prefetch(a, place, area, shared.attention);
    sync.wait();
    phase.run(a, place, area, shared.attention, attention_parity, sync);
    sync.arrive();
  }

  __device__ __forceinline__ void run() {
    for (int n = tid; n < kRows; n += kFlowThreads) {
      int position = -1;
      if (n < args.rows) {
        const int sequence = n / args.sequence_rows;
        position = n % args.sequence_rows;
        if (args.context_rows > 0) {
          position += args.context_length[sequence / args.sequences_per_context];
        }
        if (position < 0 || position >= args.positions) position = -1;
      }
      shared.positions[n] = position;
    }
    sync.block();
    enter();
#pragma unroll 1
    for (int i = 0; i < args.layer_count; ++i) {
      const FlowLayer& layer = args.layers[i];
      project(layer);
      attend(layer);
      add(shape.attended_units, layer.attention, layer.factors.output, &layer.hidden);
      activate(layer);
      add(shape.hidden_units, layer.hidden, layer.factors.down,
          i + 1 < args.layer_count ? &args.layers[i + 1].attention : nullptr);
    }
    // Nobody waits any more: the last one leaves the word as it was.
    if (tid == 0) {
      const uint32_t all = (sync.arrived + 1) * sync.blocks;
      if (atomicAdd(args.word, 1u) + 1 == all) *args.word = 0;
    }
  }
};

}  // namespace flow

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <int kRows, int kDim, bool kFp8>
__global__ void __launch_bounds__(kFlowBlockThreads, 1)
    flow_layers_kernel(const __grid_constant__ FlowArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t dynamic[];
  using Shared = FlowShared<kRows>;
  const uint32_t ring = shared_address(dynamic);
  const uint32_t area = ring + args.stages * kFlowUnitBytes;
  Shared& shared =
      *reinterpret_cast<Shared*>(dynamic + args.stages * kFlowUnitBytes + Shared::kArea);
  pdl_trigger();
  if (threadIdx.x == 0) {
    for (int i = 0; i < args.stages; ++i) {
      barrier_init(shared.full + i, 1);
      barrier_init(shared.empty + i, 4);
    }
    for (uint64_t& barrier : shared.x_full) barrier_init(&barrier, 1);
    attention_init(shared.attention);
    barrier_init(&shared.x_empty, kFlowCluster);
    barrier_init(&shared.passed, 1);
    for (uint64_t& barrier : shared.received) barrier_init(&barrier, 2);
    barrier_init(&shared.met, kFlowCluster);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_barrier();
  FlowSync sync;
  sync.met = &shared.met;
  sync.word = args.word;
  sync.blocks = gridDim.x;
  const int tid = static_cast<int>(threadIdx.x);
  if (tid >= kFlowThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    if (tid == kFlowThreads) flow::fetch_weights<kRows, kFp8>(args, shared, ring);
    if (tid == kFlowThreads + 32) {
      pdl_wait();
      flow::fetch_x<kRows, kFp8>(args, shared, area, sync);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    pdl_wait();
    flow::Worker<kRows, kDim, kFp8>(args, shared, ring, area, sync).run();
  }
  cluster_barrier();  // nobody leaves while others write to its memory
#endif
}

// For files with the kernels of so many rows.
template <int kRows, bool kFp8>
FlowKernel flow_kernel_of() {
  constexpr int kDim = 256;
  return {kRows, flow_layers_kernel<kRows, kDim, kFp8>, FlowShared<kRows>::kArea,
          FlowShared<kRows>::bytes};
}

}  // namespace frt::cuda
