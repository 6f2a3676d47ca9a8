// SPDX-License-Identifier: Apache-2.0
// gemv_stream.cuh - the streaming kernel: products of up to 16 rows of x (bf16) with
// quantised weights, at the speed of memory.
//
// Floor: the bytes of the weights / 4.65 TB/s on an H200 (x and y are nothing).
//
// One block per SM; its warps form groups of four, and a group walks over tiles of 16
// weight rows (all parts of a launch in one list). The four share a tile's columns, chunk by chunk;
// the groups are independent, so that one's barrier and epilogue hide behind the others. Groups are
// of three where two blocks share so few tiles that one group in four would have a second one
// (choose_group()). A warp owns a ring of slots in shared memory, nearly all there is: 16 rows of
// one chunk each, filled by asynchronous 16-byte copies. A lane reads what it copied itself, so the
// ring needs no barrier. That keeps ~150 KB per SM in flight, far more than latency
// times bandwidth (35 KB); the surplus pays at the edges: weights are constants, so the ring is
// filled before pdl_wait(), as soon as a block of the kernel ahead leaves its SM, while
// that kernel's slower blocks, its write-back and whatever small kernels come between still run.
// (Of quantised weights only a part of the ring: plan_gemv() says why.)
//
// What passes between the last bytes of one product and the first of the next is lost each time, 2
// us or so: few steps to the first copy (no division, parameters in the order of their use) and few
// after the last product count.
//
// Multiprocessors do not get equal shares of the bandwidth, so where there are many tiles the last
// of them are scheduled dynamically (plan_gemv()). Which group computes a tile changes nothing
// about its sums.
//
// Where tiles are few, two blocks of a cluster share each, one half of the columns each. The second
// stores its sums into the first one's shared memory, where a barrier counts the bytes: neither
// waits for the other to get that far.
//
// Everything goes through the tensor cores (m16n8k16, weights as A, eight rows of x as B): one row
// costs what eight cost, and a row's bits do not depend on the other rows or on their number. Since
// the order of columns inside a product is free as long as A and B agree, a lane's 16 bytes are its
// fragments: lane 4 g + t holds weight rows g and g + 8, and of each 64 bytes the 16-byte piece t.
//   bf16   the bits as they are
//   e4m3   the hardware's conversion to f16, two values each
//   e2m1   bits moved to their places in f16, times the group's scale: exact in f16; sm_90 has no
//          conversion of its own
// f16 has less range than bf16: 256 columns of a row of x at a time are scaled by the power of two
// that brings the largest value to [2^13, 2^14); what is 2^31 below that is lost, f32 sums would
// lose it as well. The inverse multiplies the sums of each chunk. So a warp converts what it loaded
// at once, and nothing waits for the largest value of a whole row.
//
// A group's sums of a tile meet in shared memory, added in the order of warps: deterministic.
#pragma once

#include <type_traits>

#include "../common/mma.cuh"
#include "gemv_weights.cuh"

namespace frt::cuda::gemv {

// ---- products of one chunk ----------------------------------------------------------------------

// What a warp holds of one tile while it goes through its chunks.
template <int kHalves>
struct TileSums {
  float even[kHalves][4] = {}, odd[kHalves][4] = {};  // two chains of products, half as long
};

// This lane's part of a ring.
struct RingPlace {
  const uint8_t* begin;  // slot 0
  uint32_t address;      // of the same
  int offset, slot_bytes, bytes;

  __device__ __forceinline__ void advance() {
    offset += slot_bytes;
    if (offset == bytes) offset = 0;
  }
};

// `x`: this lane's first piece of its row of x in the kind's copy, per half.
template <int kHalves>
__device__ __forceinline__ void chunk_bf16(const uint8_t* slot, const uint8_t* const (&x)[kHalves],
                                           TileSums<kHalves>& sums) {
  const uint4 v[4] = {load_shared(slot), load_shared(slot + 512), load_shared(slot + 1024),
                      load_shared(slot + 1536)};
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const uint4 b0 = load_shared(x[h]), b1 = load_shared(x[h] + 64);
    mma_bf16(sums.even[h], v[0].x, v[2].x, v[0].y, v[2].y, b0.x, b0.y);
    mma_bf16(sums.odd[h], v[0].z, v[2].z, v[0].w, v[2].w, b0.z, b0.w);
    mma_bf16(sums.even[h], v[1].x, v[3].x, v[1].y, v[3].y, b1.x, b1.y);
    mma_bf16(sums.odd[h], v[1].z, v[3].z, v[1].w, v[3].w, b1.z, b1.w);
  }
}

template <int kHalves>
__device__ __forceinline__ void chunk_fp8(const uint8_t* slot, const uint8_t* const (&x)[kHalves],
                                          TileSums<kHalves>& sums) {
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    const uint4 low = load_shared(slot + piece * 512),
                high = load_shared(slot + 1024 + piece * 512);
    const uint32_t l[4] = {low.x, low.y, low.z, low.w}, r[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      uint32_t a0, a1, a2, a3, c0, c1, c2, c3;
      dequantise_fp8(l[i], a0, a2);
      dequantise_fp8(r[i], a1, a3);
      dequantise_fp8(l[i + 1], c0, c2);
      dequantise_fp8(r[i + 1], c1, c3);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const uint4 b = load_shared(x[h] + piece * 128 + i * 32);
        mma_f16(sums.even[h], a0, a1, a2, a3, b.x, b.y);
        mma_f16(sums.odd[h], c0, c1, c2, c3, b.z, b.w);
      }
    }
  }
}

// `scales`: of this lane's low row, from its first two on.
template <int kHalves>
__device__ __forceinline__ void chunk_fp4(const uint8_t* slot, const uint8_t* scales,
                                          const uint8_t* const (&x)[kHalves],
                                          TileSums<kHalves>& sums) {
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    const uint4 low = load_shared(slot + piece * 512);
    const uint4 high = load_shared(slot + 1024 + piece * 512);
    const __half2 low_pair = dequantise_scales(load_pair(scales + piece * 8));
    const __half2 high_pair = dequantise_scales(load_pair(scales + piece * 8 + 128));
    const uint32_t l[4] = {low.x, low.y, low.z, low.w}, r[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t a[4], b[4];
      dequantise_fp4(l[i], i < 2 ? __low2half2(low_pair) : __high2half2(low_pair), a);
      dequantise_fp4(r[i], i < 2 ? __low2half2(high_pair) : __high2half2(high_pair), b);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const uint4 c = load_shared(x[h] + piece * 256 + i * 64);
        mma_f16(sums.even[h], a[0], b[0], a[1], b[1], c.x, c.y);
        mma_f16(sums.odd[h], a[2], b[2], a[3], b[3], c.z, c.w);
      }
    }
  }
}

// sums += inverse * scale * (sums of a chunk). `inverses`: of this lane's first two rows of x;
// `scales`: of its two rows of weights.
template <int kHalves>
__device__ __forceinline__ void add_chunk(TileSums<kHalves>& sums, const TileSums<kHalves>& chunk,
                                          const float* inverses, float2 scales) {
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const float2 inverse = *reinterpret_cast<const float2*>(inverses + h * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float value = (chunk.even[h][i] + chunk.odd[h][i]) * (i < 2 ? scales.x : scales.y);
      sums.even[h][i] += (i % 2 == 0 ? inverse.x : inverse.y) * value;
    }
  }
}

// `count` chunks of one tile, `kTogether` in one piece of code, while as many are copied
// (`copying`) into the slots that get free.
template <GemvKind kKind, int kHalves, int kStages, int kGroup, int kTogether>
__device__ __forceinline__ void multiply_chunks(RingPlace& ring, Copies<kGroup>& copies,
                                                bool copying, const uint8_t* (&x)[kHalves],
                                                const float*& inverses, int first, int count,
                                                float2 scales, TileSums<kHalves>& sums) {
  constexpr int kCols = kGroup * gemv_chunk_cols(kKind);  // from chunk to chunk
  constexpr int kXStep = kCols * 2, kInverseStep = kCols / kGemvXUnit * kHalves * 8;
  constexpr bool kWholeUnits = kCols % kGemvXUnit == 0;
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll kTogether
  for (int chunk = first; chunk < first + count; ++chunk) {
    copies_wait<kStages - 1>();
    const uint8_t* const slot = ring.begin + ring.offset;
    if constexpr (kKind == GemvKind::kBf16) {
      chunk_bf16<kHalves>(slot, x, sums);
    } else {
      TileSums<kHalves> one;
      float2 factors = make_float2(1, 1);
      if constexpr (kKind == GemvKind::kNvfp4) {
        __syncwarp();  // the scales were copied by other lanes
        chunk_fp4<kHalves>(slot, slot - lane * 16 + 2048 + lane / 4 * 16 + lane % 4 * 2, x, one);
        __syncwarp();
      } else {
        chunk_fp8<kHalves>(slot, x, one);
      }
      if constexpr (kKind == GemvKind::kFp8Block) {
        factors.x = __shfl_sync(~0u, scales.x, chunk % 32);
        factors.y = __shfl_sync(~0u, scales.y, chunk % 32);
      }
      if constexpr (kWholeUnits) {
        add_chunk<kHalves>(sums, one, inverses, factors);
        inverses += kInverseStep;
      } else {
        const int warp = static_cast<int>(threadIdx.x / 32 % kGroup);
        const int unit = (chunk * kGroup + warp) * gemv_chunk_cols(kKind) / kGemvXUnit;
        add_chunk<kHalves>(sums, one, inverses + unit * kHalves * 8, factors);
      }
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) x[h] += kXStep;
    constexpr bool kFp4 = kKind == GemvKind::kNvfp4;
    copies.template copy<kFp4, kFp4>(ring.address + static_cast<uint32_t>(ring.offset), copying);
    copies_commit();
    ring.advance();
  }
}

// ---- y ----------------------------------------------------------------------------------------

// Output `row` of row n of x.
__device__ __forceinline__ void store_y(const GemvPart& part, int n, int row, float value) {
  const int64_t place = n * part.y_stride + row;
  if (part.y_float) {
    float* const y = static_cast<float*>(part.y) + place;
    *y = part.accumulate ? *y + value : value;
  } else {
    bf16* const y = static_cast<bf16*>(part.y) + place;
    *y = from_float<bf16>(part.accumulate ? to_float(*y) + value : value);
  }
}

// As the composition: both are rounded before.
__device__ __forceinline__ float rounded_sum(const GemvPart& part, float value) {
  return part.y_float ? value : to_float(from_float<bf16>(value));
}
__device__ __forceinline__ float gated_value(const GemvPart& part, float gate, float up) {
  return silu(rounded_sum(part, gate)) * rounded_sum(part, up);
}

// The finished sum of row m of a tile and row n of x; all lanes of a warp together.
__device__ __forceinline__ void finish(const GemvArgs& a, const GemvPart& part, int local, int n,
                                       int m, int active, float value) {
  int row = local * 16 + m;
  bool store = n < active && row < part.rows;
  if (a.gated) {
    value = gated_value(part, value, __shfl_down_sync(~0u, value, 8));
    row = local * 8 + m;
    store = n < active && m < 8 && row < part.rows;
  }
  if (store) store_y(part, n, row, value);
}

// A lane's finished sums of a tile, for kernels in which one lane has them all: of four, 0 and 1
// are of weight row g and rows 2 t and 2 t + 1 of x, 2 and 3 of weight row g + 8; the next four are
// of rows of x eight further.
template <int kHalves>
__device__ __forceinline__ void store_tile(const GemvArgs& a, int tile, int active, int g, int t,
                                           const float (&sums)[kHalves * 4]) {
  int local;
  const GemvPart& part = a.parts[part_of(a, tile, local)];
#pragma unroll
  for (int i = 0; i < kHalves * 4; i += 4) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const int n = i * 2 + 2 * t + odd;
      const float low = sums[i + odd], high = sums[i + odd + 2];
      if (n >= active) continue;
      if (a.gated) {
        const int row = local * 8 + g;
        if (row < part.rows) store_y(part, n, row, gated_value(part, low, high));
      } else {
        const int row = local * 16 + g;
        if (row < part.rows) store_y(part, n, row, low);
        if (row + 8 < part.rows) store_y(part, n, row + 8, high);
      }
    }
  }
}

// ---- the kernel -------------------------------------------------------------------------------

// All threads of a group of warps.
template <int kGroup>
__device__ __forceinline__ void group_barrier(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroup * 32) : "memory");
}

// Groups of eight rows of x; slots of a warp's ring; Parts; warps that share a tile.
template <int kHalves, int kStages, class Known, int kGroup>
__global__ void __launch_bounds__(kGemvWarps / kGroup * kGroup * 32, 1)
    gemv_stream(const __grid_constant__ GemvArgs a) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ uint64_t shares_barrier;
  __shared__ int queues[kGemvWarps / kGroup][kTileQueue];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, g = lane / 4, t = lane % 4;
  const int groups = static_cast<int>(blockDim.x) / (kGroup * 32);
  const int group = thread / (kGroup * 32), warp = thread / 32 % kGroup;
  const bool split = a.split > 1;
  const int rank = cluster_rank(a), cluster = cluster_index(a);
  // A single NVFP4 part is scheduled statically (plan_gemv()).
  constexpr bool kAsks = !Known::only(GemvKind::kNvfp4);
  const GroupTiles tiles{cluster + a.clusters * group, a.clusters * groups,
                         kAsks && group < a.dynamic_groups, queues[group]};
  const int tile_values = a.rows * 16;
  constexpr int kRounds = (kHalves * 4 + kGroup - 1) / kGroup;  // of a group through 16 x 8 results
  constexpr int kTogether = Known::only(GemvKind::kNvfp4) ? 2 : 1;

  // Constants first: the ring, and the first scales.
  RingPlace ring;
  ring.begin = shared + thread / 32 * kStages * a.slot_bytes + lane * 16;
  ring.address = shared_address(ring.begin);
  ring.offset = 0;
  ring.slot_bytes = a.slot_bytes;
  ring.bytes = kStages * a.slot_bytes;
  Copies<kGroup> copies;
  copies.tile = copies.next = 0;
  const auto fill = [&](int first, int end) {
#pragma unroll 1
    for (int i = first; i < end; ++i) {
      if (copies.template ready<Known>(a, tiles)) {
        copies.template copy<false, Known::has(GemvKind::kNvfp4)>(
            ring.address + static_cast<uint32_t>(i * a.slot_bytes), true);
        --copies.chunks;
      }
      copies_commit();
    }
  };
  fill(0, a.early_stages);
  if (split) {
    const int own_tiles = (a.tiles - cluster + a.clusters - 1) / a.clusters;
    open_shares(a, &shares_barrier, own_tiles * tile_values * 4);
  }
  float2 scales = load_scales<Known, kGroup>(a, tiles.first, 0);

  pdl_wait();
  // Only now: the next kernel relies on it that whatever was written before this one is there
  // (Stream::early_reads_safe()).
  pdl_trigger();
  // One more slot while the first of x is on its way: the others would hold up what comes of it.
  const int between = min(kStages, a.early_stages + 1);
  load_x(a, shared, [&] { fill(a.early_stages, between); });
  fill(between, kStages);
  if (split) await_first();
  const int active = active_rows(a.rows, a.row_count);

  // Rows of x beyond the last are read as the last one, and not stored.
  int x_row[kHalves];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) x_row[h] = min(h * 8 + g, a.rows - 1);
  const int warp_sums = a.rows * kGemvSumStride;
  // (group, parity, warp, row of x, row of the tile)
  float* const sums =
      reinterpret_cast<float*>(shared + a.sums_offset) + group * 2 * kGroup * warp_sums;
  // (tile, rank, row of x, row of the tile), in the first block
  float* const shares = reinterpret_cast<float*>(shared + a.shares_offset);
  const int value_index = thread % (kGroup * 32), m = thread % 16;
  int parity = 0;
  for (int tile = tiles.first, n = 0; tile < a.tiles; ++n) {
    const int next_tile = tiles.at(a, n + 1);
    const bool counts =
        tiles.dynamic && tiles.counts_now(a, n, next_tile) && thread % (kGroup * 32) == 0;
    uint32_t work_counter = 0;
    if (counts) work_counter = atomicAdd(a.work_counters, 1u);
    int local;
    const GemvPart& part = a.parts[part_of<Known>(a, tile, local)];
    const float factor = load_factor<Known>(a, part, local, m);
    const float2 ahead = load_scales<Known, kGroup>(a, next_tile, 0);
    const GemvKind kind = kind_of<Known>(part);
    const int copy = kind == GemvKind::kBf16 ? kXBf16 : kind == GemvKind::kNvfp4 ? kXF16Fp4 : kXF16;
    const int chunks = (own_columns(a, part, kind).chunks - warp + kGroup - 1) / kGroup;
    const uint8_t* x[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      x[h] = shared + a.x_offset[copy] + x_row[h] * a.x_pitch[copy] + t * 16 +
             warp * gemv_chunk_cols(kind) * 2;
    }
    const float* inverses = reinterpret_cast<const float*>(shared + a.x_inverse_offset) + 2 * t +
                            (kGroup * gemv_chunk_cols(kind) % kGemvXUnit == 0
                                 ? warp * gemv_chunk_cols(kind) / kGemvXUnit * kHalves * 8
                                 : 0);
    TileSums<kHalves> acc;
    for (int first = 0; first < chunks;) {
      const bool copying = copies.template ready<Known>(a, tiles);
      int count = copying ? min(chunks - first, copies.chunks) : chunks - first;
      if (is<Known>(part, GemvKind::kFp8Block)) {
        if (first > 0 && first % 32 == 0) scales = load_scales<Known, kGroup>(a, tile, first);
        count = min(count, 32 - first % 32);
      }
      const auto multiply_as = [&](auto of) {
        if constexpr (Known::has(of())) {
          if (!is<Known>(part, of())) return;
          multiply_chunks<of(), kHalves, kStages, kGroup, kTogether>(
              ring, copies, copying, x, inverses, first, count, scales, acc);
        }
      };
      multiply_as(std::integral_constant<GemvKind, GemvKind::kBf16>{});
      multiply_as(std::integral_constant<GemvKind, GemvKind::kFp8>{});
      multiply_as(std::integral_constant<GemvKind, GemvKind::kFp8Block>{});
      multiply_as(std::integral_constant<GemvKind, GemvKind::kNvfp4>{});
      first += count;
      if (copying) copies.chunks -= count;
    }
    scales = ahead;
    if (counts) {
      const int next_tile = a.static_tiles + static_cast<int>(work_counter);
      queues[group][(n + kTilesAhead) % kTileQueue] = next_tile;
      if (next_tile == last_dynamic(a)) *a.work_counters = 0;
    }

    float* const tile_sums = sums + parity * kGroup * warp_sums;
    parity ^= 1;
    float* const own = tile_sums + warp * warp_sums + 2 * t * kGemvSumStride + g;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float* const target = own + h * 8 * kGemvSumStride;
      if (h * 8 + 2 * t < a.rows) {
        target[0] = acc.even[h][0] + acc.odd[h][0];
        target[8] = acc.even[h][2] + acc.odd[h][2];
      }
      if (h * 8 + 2 * t + 1 < a.rows) {
        target[kGemvSumStride] = acc.even[h][1] + acc.odd[h][1];
        target[kGemvSumStride + 8] = acc.even[h][3] + acc.odd[h][3];
      }
    }
    // The next tile's sums go to the other half of the memory, so one barrier is enough.
    group_barrier<kGroup>(group);
    float* const share = shares + ((group + n * groups) * a.split + rank) * tile_values;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int index = value_index + i * kGroup * 32, n = index / 16;
      // A warp has two rows, and all its lanes go on to finish().
      if (index / 32 * 2 >= a.rows) break;
      const bool inside = n < a.rows;
      float value = 0;
#pragma unroll
      for (int w = 0; w < kGroup; ++w) {
        if (inside) value += tile_sums[w * warp_sums + n * kGemvSumStride + m];
      }
      value *= factor;
      if (!split) {
        finish(a, part, local, n, m, active, value);
      } else if (inside && rank == 0) {
        share[index] = value;
      } else if (inside) {
        store_first(share + index, &shares_barrier, value);
      }
    }
    tile = next_tile;
  }
  if (split && rank == 0) {
    await_shares(&shares_barrier);
    for (int tile = tiles.first, own_tile = group; tile < a.tiles;
         tile += tiles.step, own_tile += groups) {
      int local;
      const GemvPart& part = a.parts[part_of<Known>(a, tile, local)];
      const float* const share = shares + own_tile * a.split * tile_values;
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        const int index = value_index + i * kGroup * 32;
        if (index / 32 * 2 >= a.rows) break;
        float value = 0;
        if (index < tile_values) {
          for (int r = 0; r < a.split; ++r) value += share[r * tile_values + index];
        }
        finish(a, part, local, index / 16, m, active, value);
      }
    }
  }
}

}  // namespace frt::cuda::gemv
