// SPDX-License-Identifier: Apache-2.0
// layers_products.cuh - the products of the kernel of an expert's layers: what its threads
// that compute have in common, and how a tile is multiplied and finished.
//
// Rows of x are the first factor of the tensor cores, 64 at a time, outputs the second: a thread
// has pairs of neighbouring outputs of row g and of row g + 8 of its warp's sixteen, so that a
// row's norm is a number in a register, and results are stored without being turned round.
//
// Up to 64 rows each group of four warps multiplies them all by its half of the inputs; then
// partners give each other the rows that the other one finishes. More are divided by rows.
#pragma once

#include "../../attention/sm90/wgmma.cuh"
#include "../../common/arch.cuh"
#include "../../dense/sm90/multiply.cuh"
#include "layers_copies.cuh"
#include "layers_fused.cuh"
#include "layers_parts.cuh"

namespace frt::cuda {

#if FRT_ARCH_WGMMA

namespace flow {

__device__ __forceinline__ float4 load_four(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}

template <int kRows, bool kFp8>
struct Products {
  using Shared = FlowShared<kRows>;
  static constexpr int kHalves = Shared::kHalves;  // rows of a thread
  // Where sums change hands: in units of x that nobody needs any more; in FP8, where further tiles
  // need them, behind those there can be.
  static constexpr int kExchange = kFp8 ? Shared::kSlots / 2 * Shared::kXUnit : 0;

  const FlowArgs& args;
  Shared& shared;
  const uint32_t ring, area;
  FlowSync sync;
  const Shape shape;
  int tid, lane, warp, group;  // warp: of the group
  int clean_rows;
  bool clean[kHalves];  // this thread's rows
  Place place;
  uint32_t x_parity = 0;

  __device__ __forceinline__ Products(const FlowArgs& args, Shared& shared, uint32_t ring,
                                      uint32_t area, const FlowSync& sync)
      : args(args), shared(shared), ring(ring), area(area), sync(sync), shape{args.tiles} {
    begin();
    clean_rows = args.clean_rows ? *args.clean_rows : 0;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) clean[h] = is_clean(row_of(h));
  }

  // What a thread is: asked for anew in every phase. The compiler would keep all that follows from
  // it, of all phases, over the layers, and registers do not suffice: what does not fit in them is
  // hundreds of cycles away, as the first cache is small here.
  static __device__ __forceinline__ int fresh_tid() {
    int tid;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid));
    return tid;
  }
  __device__ __forceinline__ void begin() {
    tid = fresh_tid();
    lane = tid % 32;
    // The same in all lanes, which the compiler must see: products depend on it.
    warp = __shfl_sync(~0u, tid / 32 % 4, 0);
    group = __shfl_sync(~0u, tid / 128, 0);
  }

  __device__ __forceinline__ bool is_clean(int row) const {
    return row % args.period < clean_rows;
  }
  // The rows that this thread finishes, in eights of a tile's rows and of all.
  __device__ __forceinline__ int eight_of(int half) const {
    return kHalves == 1 ? 2 * warp + group : 8 * group + 2 * warp + half;
  }
  __device__ __forceinline__ int row_of(int half) const {
    return eight_of(half) * 8 + lane / 4;
  }

  // ---- multiplying ------------------------------------------------------------------------------

  __device__ __forceinline__ void wait_x(int slot) {
    barrier_wait(shared.x_full + slot, x_parity >> slot & 1);
    x_parity ^= 1u << slot;
  }
  // All threads of all blocks are done with the units of x that are there, and with what else they
  // had in their place.
  __device__ __forceinline__ void release_x() {
    publish_to_products();
    sync.block();
    if (tid < kFlowCluster) {
      asm volatile(
          "mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(rank_address(&shared.x_empty, tid))
          : "memory");
    }
  }

  // A descriptor of what lies `by` sixteens of bytes further on.
  static __device__ __forceinline__ uint64_t further(uint64_t descriptor, uint32_t by) {
    return descriptor & ~0xFFFFFFFFull | (static_cast<uint32_t>(descriptor) + by);
  }

  // Of 64 rows of a unit: eights may lie further apart than where they are alone.
  static __device__ __forceinline__ uint64_t rows_descriptor(uint32_t address) {
    constexpr uint64_t kFurther = (Shared::kEight - 8 * kFlowInputs) >> 4;
    return matrix_descriptor(address, 16) + (kFurther << 32);
  }

  // c = x weights^T over `units` units, which come in rounds of `slots`; `resident`: x is there
  // from the tile before. Where both groups have all rows, they take turns with units.
  template <int kOutputs>
  __device__ __forceinline__ void multiply(float (&c)[kOutputs / 2], int units, int slots,
                                           bool resident) {
    constexpr int kOfStage = kOutputs == kFlowOutputs ? 1 : 2;  // units
    constexpr int kTurns = kHalves == 1 ? 2 : 1;
    constexpr int kWeights = kOutputs * kFlowInputs;  // bytes of half a unit
    // Arrivals of a warp, so that a stage has eight when nobody needs it any more.
    constexpr int kArrivals = kTurns / kOfStage == 2 ? 2 : 1;
    const int turn = kHalves == 1 ? group : 0;
    const int x_at = area + (kHalves == 1 ? 0 : group * (8 * Shared::kEight));
#pragma unroll
    for (int i = 0; i < kOutputs / 2; ++i) c[i] = 0;
#pragma unroll 1
    for (int begin = 0; begin < units; begin += slots) {
      const int count = min(slots, units - begin);
      Place now = place;
      if (kOfStage == 1 && turn == 1) now.advance(args.stages);
      uint64_t* previous = nullptr;
#pragma unroll 1
      for (int slot = turn; slot < count; slot += kTurns) {
        barrier_wait(shared.full + now.stage, now.parity);
        if (!resident) barrier_wait(shared.x_full + slot, x_parity >> slot & 1);
        const uint64_t a = rows_descriptor(x_at + slot * Shared::kXUnit);
        const uint64_t b = matrix_descriptor(
            ring + now.stage * kFlowUnitBytes + slot % kOfStage * 2 * kWeights, 16);
        products_fence();
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const uint64_t from_a = further(a, k / 4 * (Shared::kHalf / 16) + k % 4 * 2);
          const uint64_t from_b = further(b, k / 4 * (kWeights / 16) + k % 4 * 2);
          if constexpr (kFp8) {
            multiply_64_fp8<kOutputs>(c, from_a, from_b);
          } else {
            multiply_64<kOutputs>(c, from_a, from_b);
          }
        }
        products_commit();
        products_wait<1>();
        if (previous && lane < kArrivals) barrier_arrive(previous);
        const bool whole = kTurns == 2 || slot % kOfStage == kOfStage - 1 || slot + 1 == count;
        previous = whole ? shared.empty + now.stage : nullptr;
        if (whole) now.advance(args.stages, kTurns / kOfStage == 2 ? 2 : 1);
      }
      products_wait<0>();
      if (previous && lane < kArrivals) barrier_arrive(previous);
      // A stage with one unit, which is the other group's.
      if (kTurns == kOfStage && turn == 1 && count % 2 == 1) {
        barrier_wait(shared.full + now.stage, now.parity);
        if (lane == 0) barrier_arrive(shared.empty + now.stage);
      }
      place.advance(args.stages, (count + kOfStage - 1) / kOfStage);
      if (!resident) x_parity ^= (1u << count) - 1;
      if (begin + count < units) release_x();
    }
#pragma unroll
    for (int i = 0; i < kOutputs / 2; ++i) asm volatile("" : "+f"(c[i])::"memory");
  }

  // x comes to this block for others, too.
  __device__ __forceinline__ void take_x(int units, int slots) {
    for (int begin = 0; begin < units; begin += slots) {
      const int count = min(slots, units - begin);
      for (int slot = 0; slot < count; ++slot) wait_x(slot);
      if (begin + count < units) release_x();
    }
  }

  // ---- finishing --------------------------------------------------------------------------------

  // 1 / root mean square of a row, by the four lanes whose number % 4 is t: first all squares are
  // asked for, of up to 16 tiles, and waited for only where the factor is made.
  struct Squares {
    float some[4];
  };
  __device__ __forceinline__ Squares squares_of(int row, int t) const {
    Squares squares = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row < args.rows && t + 4 * i < args.tiles.output_tiles) {
        squares.some[i] = __ldcg(args.squares + row * args.tiles.output_tiles + t + 4 * i);
      }
    }
    return squares;
  }
  __device__ __forceinline__ float factor_of(const Squares& squares, int row, int t) const {
    float sum = (squares.some[0] + squares.some[1]) + (squares.some[2] + squares.some[3]);
#pragma unroll 1
    for (int i = t + 16; i < args.tiles.output_tiles; i += 4) {
      if (row < args.rows) sum += __ldcg(args.squares + row * args.tiles.output_tiles + i);
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    return rsqrtf(fmaf(sum, args.each_column, args.epsilon));
  }

  // What the shift vectors, rows behind those of x, yield: of this group's part of the inputs.
  template <int kSums>
  __device__ __forceinline__ void note_shifts(const float (&c)[kSums]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int first = (kHalves == 1 ? warp : group * 4 + warp) * 16 + i * 8;
      const int s = first + lane / 4 - args.rows;
      if (first + 8 <= args.rows || s < 0 || s >= args.shifts) continue;
      float* to = shared.shifts[kHalves == 1 ? group : 0][s][lane % 4];
#pragma unroll
      for (int j = 0; j < kSums / 4; j += 2) {
        const float* from = c + 4 * j + 2 * i;
        if (j + 1 < kSums / 4) {
          *reinterpret_cast<float4*>(to + 2 * j) = make_float4(from[0], from[1], from[4], from[5]);
        } else {
          *reinterpret_cast<float2*>(to + 2 * j) = make_float2(from[0], from[1]);
        }
      }
    }
  }

  // The i-th sixteen bytes of this lane among those that this warp of group `of` gives away. They
  // lie where only it has read rows of x.
  __device__ __forceinline__ uint32_t exchange_at(uint32_t from, int of, int i) const {
    return from + (of + i / 4 * 2) * Shared::kXUnit + warp * (2 * Shared::kEight) +
           i / 2 % 2 * Shared::kHalf + i % 2 * 512 + lane * 16;
  }
  // Group kKept gives the rows away that the other one finishes; then(v), with the sums of both of
  // its own.
  template <int kKept, int kSums, class Then>
  __device__ __forceinline__ void give_and_take(float (&c)[kSums], uint32_t from,
                                                const Then& then) {
    constexpr int kGiven = 2 - 2 * kKept;
#pragma unroll
    for (int j = 0; j < kSums / 4; j += 2) {
      const uint32_t to = exchange_at(from, kKept, j / 2);
      if (j + 1 < kSums / 4) {
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(c[4 * j + kGiven]),
                     "f"(c[4 * j + kGiven + 1]), "f"(c[4 * j + 4 + kGiven]),
                     "f"(c[4 * j + 4 + kGiven + 1])
                     : "memory");
      } else {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(c[4 * j + kGiven]),
                     "f"(c[4 * j + kGiven + 1])
                     : "memory");
      }
    }
    sync.block();
    float v[1][kSums / 2];
#pragma unroll
    for (int j = 0; j < kSums / 4; j += 2) {
      const float4 other = load_floats(exchange_at(from, 1 - kKept, j / 2));
      v[0][2 * j] = c[4 * j + 2 * kKept] + other.x;
      v[0][2 * j + 1] = c[4 * j + 2 * kKept + 1] + other.y;
      if (j + 1 < kSums / 4) {
        v[0][2 * j + 2] = c[4 * j + 4 + 2 * kKept] + other.z;
        v[0][2 * j + 3] = c[4 * j + 4 + 2 * kKept + 1] + other.w;
      }
    }
    then(v);
  }

  // then(v): of this thread's rows, if there are any, the sums of the two groups. `from`: where
  // they change hands. All threads that compute, together: what they wrote to shared memory before
  // is there behind it. What follows is there once for each group, as the rows are in other
  // registers.
  template <int kSums, class Then>
  __device__ __forceinline__ void exchange(float (&c)[kSums], uint32_t from, const Then& then) {
    if constexpr (kHalves == 1) {
      if (warp * 16 >= kRows) {
        sync.block();
      } else if (group == 0) {
        give_and_take<0>(c, from, then);
      } else {
        give_and_take<1>(c, from, then);
      }
    } else {
      if (!kFp8) sync.block();
      float v[kHalves][kSums / 2];
#pragma unroll
      for (int i = 0; i < kSums; ++i) v[i / 2 % 2][i / 4 * 2 + i % 2] = c[i];
      then(v);
    }
  }

  // The same for normed rows, from their squares.
  template <int kSums, class Then>
  __device__ __forceinline__ void finish(float (&c)[kSums], const Squares (&squares)[kHalves],
                                         const Then& then) {
    if constexpr (kFp8) {
      exchange(c, area + kExchange, then);
    } else {
      note_shifts(c);
      exchange(c, area + kExchange, [&](float(&v)[kHalves][kSums / 2]) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          const float factor = factor_of(squares[h], row_of(h), lane % 4);
          const float* shifts = shared.shifts[0][clean[h] ? 1 : 0][lane % 4];
#pragma unroll
          for (int j = 0; j < kSums / 2; j += 4) {
            float4 four = load_four(shifts + j);
            if constexpr (kHalves == 1) {
              const float4 other = load_four(shifts + sizeof(shared.shifts[0]) / sizeof(float) + j);
              four.x += other.x;
              four.y += other.y;
              four.z += other.z;
              four.w += other.w;
            }
            v[h][j] = fmaf(factor, v[h][j], four.x);
            v[h][j + 1] = fmaf(factor, v[h][j + 1], four.y);
            if (j + 2 < kSums / 2) {
              v[h][j + 2] = fmaf(factor, v[h][j + 2], four.z);
              v[h][j + 3] = fmaf(factor, v[h][j + 3], four.w);
            }
          }
        }
        then(v);
      });
    }
  }
};

}  // namespace flow

#endif  // FRT_ARCH_WGMMA

}  // namespace frt::cuda
