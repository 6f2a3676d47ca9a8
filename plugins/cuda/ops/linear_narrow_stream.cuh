// SPDX-License-Identifier: Apache-2.0
// linear_narrow_stream.cuh - the streaming kernel: products of up to 16 rows of x (bf16) with
// packed weights, at the speed of memory.
//
// Floor: the bytes of the weights / 4.65 TB/s on an H200 (x and y are nothing).
//
// One block per multiprocessor walks over tiles of 16 weight rows (all parts of a group in one
// list); its warps share a tile's columns, chunk by chunk. A warp owns a ring of slots in shared
// memory, nearly all there is: 16 rows of one chunk each, filled by asynchronous 16-byte copies.
// Every lane reads only what it copied itself, so the ring needs no barrier. That keeps ~200 KB per
// multiprocessor in flight, far more than latency times bandwidth (35 KB); the surplus pays at the
// edges: weights are constants, so the ring is filled before pdl_wait(), as soon as a block of the
// kernel ahead leaves its multiprocessor, while that kernel's slower blocks, its write-back and
// whatever small kernels come between still run.
//
// Everything goes through the tensor cores (m16n8k16, weights as A, eight rows of x as B): one row
// costs what eight cost, and a row's bits do not depend on the other rows or on their number. Since
// the order of columns inside a product is free as long as A and B agree, a lane's 16 bytes are its
// fragments: lane 4 g + t holds weight rows g and g + 8, and column 16-byte piece t of each 64.
//   bf16   the bits as they are
//   e4m3   one conversion per two values, to f16
//   e2m1   moved into the bits of e4m3, converted, times the group's scale: exact in f16
// f16 has less range than bf16: x is scaled by a power of two per row that brings its largest
// value to [2^13, 2^14); what is 2^31 below that is lost, f32 sums would lose it as well.
//
// The warps' sums of a tile meet in shared memory, added in the order of warps: deterministic.
#pragma once

#include "launch.cuh"
#include "linear_narrow_plan.hpp"
#include "numbers.cuh"

namespace frt::cuda {
namespace narrow {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes to shared memory, or zeros.
__device__ __forceinline__ void copy16(uint32_t target, const uint8_t* source, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy8(uint32_t target, const uint8_t* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(target), "l"(source) : "memory");
}
__device__ __forceinline__ void commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_pending() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// Waits until at most stages - 1 copies of this lane are under way.
__device__ __forceinline__ void wait_oldest(int stages) {
  switch (stages) {
#define FRT_NARROW_WAIT(n) \
  case n:                  \
    wait_pending<(n)-1>(); \
    break;
    FRT_NARROW_WAIT(3)
    FRT_NARROW_WAIT(4)
    FRT_NARROW_WAIT(5)
    FRT_NARROW_WAIT(6)
    FRT_NARROW_WAIT(7)
    FRT_NARROW_WAIT(8)
    FRT_NARROW_WAIT(9)
    FRT_NARROW_WAIT(10)
    FRT_NARROW_WAIT(11)
    FRT_NARROW_WAIT(12)
    FRT_NARROW_WAIT(16)
    FRT_NARROW_WAIT(20)
    FRT_NARROW_WAIT(24)
#undef FRT_NARROW_WAIT
    default:
      wait_pending<1>();
  }
}

// acc += A (16 rows, 16 columns) B (16 columns, 8 rows of x).
__device__ __forceinline__ void multiply_bf16(float (&acc)[4], uint32_t a0, uint32_t a1,
                                              uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_f16(float (&acc)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Two e4m3 values to f16: the low or the high half of `packed`.
__device__ __forceinline__ uint32_t widen_low(uint32_t packed) {
  uint32_t pair;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.rn.f16x2.e4m3x2 %0, l;}"
      : "=r"(pair)
      : "r"(packed));
  return pair;
}
__device__ __forceinline__ uint32_t widen_high(uint32_t packed) {
  uint32_t pair;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.rn.f16x2.e4m3x2 %0, h;}"
      : "=r"(pair)
      : "r"(packed));
  return pair;
}
__device__ __forceinline__ uint32_t scale_pair(uint32_t pair, uint32_t scale) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(scale));
  return product;
}

// Eight e2m1 values times scale * 2^-6, in the order 0 2 4 6 1 3 5 7: as e4m3 with the exponent's
// low two bits and the highest of the mantissa, a value is 2^-6 of what it was as e2m1.
__device__ __forceinline__ void widen_fp4(uint32_t packed, uint32_t scale, uint32_t (&pairs)[4]) {
  const uint32_t even = packed << 4;
  const uint32_t low = (even & 0x80808080u) | ((even >> 2) & 0x1C1C1C1Cu);
  const uint32_t high = (packed & 0x80808080u) | ((packed >> 2) & 0x1C1C1C1Cu);
  pairs[0] = scale_pair(widen_low(low), scale);
  pairs[1] = scale_pair(widen_high(low), scale);
  pairs[2] = scale_pair(widen_low(high), scale);
  pairs[3] = scale_pair(widen_high(high), scale);
}

__device__ __forceinline__ uint4 load_shared(const uint8_t* pointer) {
  return *reinterpret_cast<const uint4*>(pointer);
}

// ---- x ----------------------------------------------------------------------------------------

// Where the eight columns of piece q lie in a row of a copy, bytes. The pieces that the four lanes
// of a weight row read together lie side by side.
__device__ __forceinline__ int x_place(int copy, int q) {
  if (copy == kXBf16) return q * 16;
  if (copy == kXF16) return (q & ~7) * 16 + (q & 1) * 64 + (q >> 1 & 3) * 16;
  return (q & ~15) * 16 + (q & 3) * 64 + (q >> 2 & 3) * 16;
}

// The power of two that x is multiplied by as f16, and its inverse; `largest`: bits of the largest
// |x| as bf16. Both stay normal numbers.
__device__ __forceinline__ int x_exponent(uint32_t largest) {
  const int exponent = static_cast<int>(largest >> 7);
  return exponent < 14 ? 14 : exponent;
}
__device__ __forceinline__ float x_factor(uint32_t largest) {
  return __int_as_float((267 - x_exponent(largest)) << 23);
}
__device__ __forceinline__ float x_inverse(uint32_t largest) {
  return __int_as_float((x_exponent(largest) - 13) << 23);
}

__device__ __forceinline__ uint32_t to_f16(uint32_t pair, float factor) {
  const float low = __uint_as_float(pair << 16) * factor;
  const float high = __uint_as_float(pair & 0xFFFF0000u) * factor;
  const __half2 result = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&result);
}

constexpr int kXBatch = 8;  // loads of x in flight per thread

// Copies x into shared memory in the forms that are needed. `largest`: (rows) zeroed before.
__device__ __forceinline__ void load_x(const NarrowArgs& a, uint8_t* shared, uint32_t* largest) {
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int pieces = static_cast<int>((a.cols + 127) / 128) * 16, valid = a.cols / 8;
  const int total = pieces * a.rows;
  // The bits as they come lie where the first copy in f16 will be.
  const int half = a.x_offset[kXF16] >= 0 ? kXF16 : kXF16Fp4;
  const bool halves = a.x_offset[half] >= 0, bits = a.x_offset[kXBf16] >= 0;
  for (int base = thread; base - thread % 32 < total; base += threads * kXBatch) {
    uint4 v[kXBatch];
#pragma unroll
    for (int i = 0; i < kXBatch; ++i) {
      const int index = base + i * threads, row = index / pieces, q = index - row * pieces;
      v[i] = make_uint4(0, 0, 0, 0);
      if (index < total && q < valid) {
        v[i] = __ldcg(
            reinterpret_cast<const uint4*>(static_cast<const bf16*>(a.x) + row * a.x_stride) + q);
      }
    }
#pragma unroll
    for (int i = 0; i < kXBatch; ++i) {
      const int index = base + i * threads, row = index / pieces, q = index - row * pieces;
      if (halves) {
        const uint32_t pair = __vmaxu2(__vmaxu2(v[i].x & 0x7FFF7FFFu, v[i].y & 0x7FFF7FFFu),
                                       __vmaxu2(v[i].z & 0x7FFF7FFFu, v[i].w & 0x7FFF7FFFu));
        const uint32_t most = max(pair & 0xFFFFu, pair >> 16);
        // `pieces` is a multiple of 16: a half of a warp is of one row.
        const unsigned half_warp = 0xFFFFu << (thread & 16);
        const uint32_t agreed = __reduce_max_sync(half_warp, most);
        if (thread % 16 == 0 && index < total) atomicMax(largest + row, agreed);
      }
      if (index >= total) continue;
      if (bits) {
        uint8_t* target = shared + a.x_offset[kXBf16] + row * a.x_pitch[kXBf16];
        *reinterpret_cast<uint4*>(target + x_place(kXBf16, q)) = v[i];
      }
      if (halves) {
        uint8_t* target = shared + a.x_offset[half] + row * a.x_pitch[half];
        *reinterpret_cast<uint4*>(target + x_place(half, q)) = v[i];
      }
    }
  }
  __syncthreads();
  if (!halves) return;
  for (int index = thread; index < total; index += threads) {
    const int row = index / pieces, q = index - row * pieces;
    const float factor = x_factor(largest[row]);
    uint8_t* place = shared + a.x_offset[half] + row * a.x_pitch[half] + x_place(half, q);
    uint4 v = load_shared(place);
    v = make_uint4(to_f16(v.x, factor), to_f16(v.y, factor), to_f16(v.z, factor),
                   to_f16(v.w, factor));
    if (half == kXF16) *reinterpret_cast<uint4*>(place) = v;
    if (a.x_offset[kXF16Fp4] >= 0) {
      // Columns in the order 0 2 4 6 1 3 5 7 of widen_fp4().
      uint8_t* target = shared + a.x_offset[kXF16Fp4] + row * a.x_pitch[kXF16Fp4];
      *reinterpret_cast<uint4*>(target + x_place(kXF16Fp4, q)) =
          make_uint4(__byte_perm(v.x, v.y, 0x5410), __byte_perm(v.z, v.w, 0x5410),
                     __byte_perm(v.x, v.y, 0x7632), __byte_perm(v.z, v.w, 0x7632));
    }
  }
  __syncthreads();
}

// ---- weights ----------------------------------------------------------------------------------

// Which part a tile belongs to, and its number there.
__device__ __forceinline__ int part_of(const NarrowArgs& a, int tile, int& local) {
  int part = 0, begin = 0;
  while (tile >= a.parts[part].tile_end) begin = a.parts[part++].tile_end;
  local = tile - begin;
  return part;
}

// First row of the low and of the high half of a tile.
__device__ __forceinline__ int low_row(const NarrowArgs& a, int local) {
  return a.gated ? local * 8 : local * 16;
}
__device__ __forceinline__ int high_row(const NarrowArgs& a, int local) {
  return a.gated ? local * 8 : local * 16 + 8;
}

// What a lane copies: runs ahead of the products by the length of the ring.
struct Copies {
  const uint8_t* low;  // this lane's first piece of its two rows
  const uint8_t* high;
  const uint8_t* scales;  // kNvfp4: of lane t = 0 the low row's, t = 1 the high row's
  int tile, chunk, chunks, row_bytes;
  bool fp4;

  __device__ __forceinline__ void open(const NarrowArgs& a, int warp, int lane) {
    chunk = warp;
    int local = 0, index = 0;
    for (;; tile += static_cast<int>(gridDim.x)) {
      if (tile >= a.tiles) return;
      index = part_of(a, tile, local);
      chunks = a.parts[index].chunks;
      if (warp < chunks) break;
    }
    const NarrowPart& part = a.parts[index];
    const int g = lane / 4, t = lane % 4;
    // Rows beyond the last are read as the last one, and not stored.
    const int64_t low_index = min(low_row(a, local) + g, part.rows - 1);
    const int64_t high_index = min(high_row(a, local) + g, part.rows - 1);
    row_bytes = part.row_bytes - t * 16;
    low = part.low.data + low_index * part.row_bytes + t * 16;
    high = part.high.data + high_index * part.row_bytes + t * 16;
    fp4 = part.kind == NarrowKind::kNvfp4;
    if (fp4) {
      const auto* base = static_cast<const uint8_t*>(t == 0 ? part.low.scale : part.high.scale);
      scales = base + (t == 0 ? low_index : high_index) * part.scale_stride;
    }
  }

  // Starts the copies of the next chunk into `slot`.
  __device__ __forceinline__ void next(const NarrowArgs& a, int warp, int lane, uint32_t slot) {
    if (tile < a.tiles) {
      const uint32_t target = slot + static_cast<uint32_t>(lane) * 16;
      if (fp4) {
        const int first = chunk * 64;
        copy16(target, low + first, first < row_bytes);
        copy16(target + 512, high + first, first < row_bytes);
        const int t = lane % 4;
        if (t < 2) {
          copy8(slot + 1024 + static_cast<uint32_t>(t * 64 + lane / 4 * 8), scales + chunk * 8);
        }
      } else {
        const int first = chunk * 128;
        const bool one = first < row_bytes, two = first + 64 < row_bytes;
        copy16(target, low + first, one);
        copy16(target + 512, low + first + 64, two);
        copy16(target + 1024, high + first, one);
        copy16(target + 1536, high + first + 64, two);
      }
      chunk += static_cast<int>(blockDim.x / 32);
      if (chunk >= chunks) {
        tile += static_cast<int>(gridDim.x);
        open(a, warp, lane);
      }
    }
    commit();
  }
};

// kFp8Block: the scales of a warp's chunks of one tile, one per lane.
__device__ __forceinline__ float2 load_scales(const NarrowArgs& a, int tile, int warp, int lane) {
  float2 scales = make_float2(0, 0);
  if (tile >= a.tiles) return scales;
  int local;
  const NarrowPart& part = a.parts[part_of(a, tile, local)];
  const int chunk = warp + lane * static_cast<int>(blockDim.x / 32);
  if (part.kind != NarrowKind::kFp8Block || chunk >= part.chunks) return scales;
  const int col = chunk / part.block_chunks;
  const int low = low_row(a, local) / part.block_rows * part.scale_stride + col;
  const int high =
      min(high_row(a, local), part.rows - 1) / part.block_rows * part.scale_stride + col;
  if (part.scale_bf16) {
    scales.x = to_float(static_cast<const bf16*>(part.low.scale)[low]);
    scales.y = to_float(static_cast<const bf16*>(part.high.scale)[high]);
  } else {
    scales.x = static_cast<const float*>(part.low.scale)[low];
    scales.y = static_cast<const float*>(part.high.scale)[high];
  }
  return scales;
}

// What a finished sum of row m (0..15) of a tile is multiplied by.
__device__ __forceinline__ float load_factor(const NarrowArgs& a, const NarrowPart& part, int local,
                                             int m) {
  const NarrowMatrix& matrix = m < 8 ? part.low : part.high;
  if (!part.scale_rows) return matrix.factor;
  const int row = min(m < 8 ? low_row(a, local) + m : high_row(a, local) + m - 8, part.rows - 1);
  return part.scale_bf16 ? to_float(static_cast<const bf16*>(matrix.scale)[row])
                         : static_cast<const float*>(matrix.scale)[row];
}

// ---- products of one chunk ----------------------------------------------------------------------

// `x`: this lane's first piece of its row of x in the kind's copy, per half.
template <int kHalves>
__device__ __forceinline__ void chunk_bf16(const uint4 (&v)[4], const uint8_t* (&x)[kHalves],
                                           int chunk, float (&acc)[kHalves][4]) {
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const uint4 b0 = load_shared(x[h] + chunk * 128);
    const uint4 b1 = load_shared(x[h] + chunk * 128 + 64);
    multiply_bf16(acc[h], v[0].x, v[2].x, v[0].y, v[2].y, b0.x, b0.y);
    multiply_bf16(acc[h], v[0].z, v[2].z, v[0].w, v[2].w, b0.z, b0.w);
    multiply_bf16(acc[h], v[1].x, v[3].x, v[1].y, v[3].y, b1.x, b1.y);
    multiply_bf16(acc[h], v[1].z, v[3].z, v[1].w, v[3].w, b1.z, b1.w);
  }
}

// Sums of even and odd products, for shorter chains of dependent ones.
template <int kHalves>
__device__ __forceinline__ void piece_fp8(const uint4& low, const uint4& high,
                                          const uint8_t* (&x)[kHalves], int offset,
                                          float (&even)[kHalves][4], float (&odd)[kHalves][4]) {
  uint4 b[kHalves][2];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    b[h][0] = load_shared(x[h] + offset);
    b[h][1] = load_shared(x[h] + offset + 64);
  }
  const uint32_t l[4] = {low.x, low.y, low.z, low.w}, r[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t a0 = widen_low(l[i]), a1 = widen_low(r[i]);
    const uint32_t a2 = widen_high(l[i]), a3 = widen_high(r[i]);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const uint4& c = b[h][i / 2];
      if (i % 2 == 0) {
        multiply_f16(even[h], a0, a1, a2, a3, c.x, c.y);
      } else {
        multiply_f16(odd[h], a0, a1, a2, a3, c.z, c.w);
      }
    }
  }
}

template <int kHalves>
__device__ __forceinline__ void chunk_fp4(const uint4& low, const uint4& high, uint32_t low_scales,
                                          uint32_t high_scales, const uint8_t* (&x)[kHalves],
                                          int chunk, float (&even)[kHalves][4],
                                          float (&odd)[kHalves][4]) {
  const uint32_t l[4] = {low.x, low.y, low.z, low.w}, r[4] = {high.x, high.y, high.z, high.w};
  const uint32_t low_pair = widen_low(low_scales), high_pair = widen_low(high_scales);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = i < 2 ? 0x1010 : 0x3232;
    uint32_t a[4], b[4];
    widen_fp4(l[i], __byte_perm(low_pair, 0, pick), a);
    widen_fp4(r[i], __byte_perm(high_pair, 0, pick), b);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const uint4 c = load_shared(x[h] + chunk * 256 + i * 64);
      multiply_f16(even[h], a[0], b[0], a[1], b[1], c.x, c.y);
      multiply_f16(odd[h], a[2], b[2], a[3], b[3], c.z, c.w);
    }
  }
}

// ---- the kernel
// -----------------------------------------------------------------------------------

template <int kHalves>  // groups of eight rows of x
__global__ void __launch_bounds__(kNarrowMaxWarps * 32, 1)
    narrow_stream(const __grid_constant__ NarrowArgs a) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ uint32_t largest[16];
  pdl_trigger();
  const int thread = static_cast<int>(threadIdx.x);
  const int warps = static_cast<int>(blockDim.x / 32), warp = thread / 32, lane = thread % 32;
  const int g = lane / 4, t = lane % 4;

  // Constants first: the ring, and the first scales.
  uint8_t* const ring = shared + warp * a.stages * a.slot_bytes;
  const uint32_t ring_address = shared_address(ring);
  Copies copies;
  copies.tile = static_cast<int>(blockIdx.x);
  copies.open(a, warp, lane);
  for (int i = 0; i < a.stages; ++i) {
    copies.next(a, warp, lane, ring_address + static_cast<uint32_t>(i * a.slot_bytes));
  }
  float2 scales = load_scales(a, static_cast<int>(blockIdx.x), warp, lane);
  if (thread < 16) largest[thread] = 0;
  __syncthreads();

  pdl_wait();
  load_x(a, shared, largest);
  const int active = active_rows(a.first_row + a.rows, a.row_count) - a.first_row;

  // Rows of x beyond the last are read as the last one, and not stored.
  int x_row[kHalves];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) x_row[h] = min(h * 8 + g, a.rows - 1);
  float* const sums = reinterpret_cast<float*>(shared + a.sums_offset);
  int slot = 0;
  int parity = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < a.tiles;
       tile += static_cast<int>(gridDim.x)) {
    int local;
    const NarrowPart& part = a.parts[part_of(a, tile, local)];
    const float factor = load_factor(a, part, local, thread & 15);
    const float2 ahead = load_scales(a, tile + static_cast<int>(gridDim.x), warp, lane);
    const int copy = part.kind == NarrowKind::kBf16    ? kXBf16
                     : part.kind == NarrowKind::kNvfp4 ? kXF16Fp4
                                                       : kXF16;
    const uint8_t* x[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      x[h] = shared + a.x_offset[copy] + x_row[h] * a.x_pitch[copy] + t * 16;
    }
    float acc[kHalves][4] = {}, odd[kHalves][4] = {};
    const int chunks = part.chunks;
    const NarrowKind kind = part.kind;
    int step = 0;
    for (int chunk = warp; chunk < chunks; chunk += warps, ++step) {
      wait_oldest(a.stages);
      const uint8_t* const source = ring + slot * a.slot_bytes + lane * 16;
      const uint32_t target = ring_address + static_cast<uint32_t>(slot * a.slot_bytes);
      if (++slot == a.stages) slot = 0;
      if (kind == NarrowKind::kNvfp4) {
        const uint4 low = load_shared(source), high = load_shared(source + 512);
        __syncwarp();  // the scales were copied by other lanes
        const uint8_t* const packed = source + 1024 - lane * 16 + g * 8 + t * 2;
        const uint32_t low_scales = *reinterpret_cast<const uint16_t*>(packed);
        const uint32_t high_scales = *reinterpret_cast<const uint16_t*>(packed + 64);
        chunk_fp4<kHalves>(low, high, low_scales, high_scales, x, chunk, acc, odd);
        __syncwarp();
        copies.next(a, warp, lane, target);
        continue;
      }
      const uint4 v[4] = {load_shared(source), load_shared(source + 512),
                          load_shared(source + 1024), load_shared(source + 1536)};
      if (kind == NarrowKind::kBf16) {
        chunk_bf16<kHalves>(v, x, chunk, acc);
      } else if (kind == NarrowKind::kFp8) {
        piece_fp8<kHalves>(v[0], v[2], x, chunk * 256, acc, odd);
        piece_fp8<kHalves>(v[1], v[3], x, chunk * 256 + 128, acc, odd);
      } else {
        float even_sum[kHalves][4] = {}, odd_sum[kHalves][4] = {};
        piece_fp8<kHalves>(v[0], v[2], x, chunk * 256, even_sum, odd_sum);
        piece_fp8<kHalves>(v[1], v[3], x, chunk * 256 + 128, even_sum, odd_sum);
        const float low = __shfl_sync(~0u, scales.x, step), high = __shfl_sync(~0u, scales.y, step);
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          acc[h][0] += low * (even_sum[h][0] + odd_sum[h][0]);
          acc[h][1] += low * (even_sum[h][1] + odd_sum[h][1]);
          acc[h][2] += high * (even_sum[h][2] + odd_sum[h][2]);
          acc[h][3] += high * (even_sum[h][3] + odd_sum[h][3]);
        }
      }
      copies.next(a, warp, lane, target);
    }
    scales = ahead;

    // (parity, warp, row of x, row of the tile)
    constexpr int kWarpSums = kHalves * 8 * kNarrowSumStride;
    float* const tile_sums = sums + parity * warps * kWarpSums;
    parity ^= 1;
    float* const own = tile_sums + warp * kWarpSums + 2 * t * kNarrowSumStride + g;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float* const target = own + h * 8 * kNarrowSumStride;
      target[0] = acc[h][0] + odd[h][0];
      target[kNarrowSumStride] = acc[h][1] + odd[h][1];
      target[8] = acc[h][2] + odd[h][2];
      target[kNarrowSumStride + 8] = acc[h][3] + odd[h][3];
    }
    // The next tile's sums go to the other half of the memory, so one barrier is enough.
    __syncthreads();
    if (thread >= kHalves * 128) continue;
    const int n = thread / 16, m = thread % 16;
    float value = 0;
    for (int w = 0; w < warps; ++w) value += tile_sums[w * kWarpSums + n * kNarrowSumStride + m];
    value *= factor;
    if (kind != NarrowKind::kBf16) value *= x_inverse(largest[n]);
    int row = local * 16 + m;
    bool store = n < active && row < part.rows;
    if (a.gated) {
      // As the composition: both are rounded before.
      if (!part.y_float) value = to_float(from_float<bf16>(value));
      const float up = __shfl_down_sync(~0u, value, 8);
      value = silu(value) * up;
      row = local * 8 + m;
      store = n < active && m < 8 && row < part.rows;
    }
    if (!store) continue;
    const int64_t place = n * part.y_stride + row;
    if (part.y_float) {
      float* const y = static_cast<float*>(part.y) + place;
      *y = part.accumulate ? *y + value : value;
    } else {
      bf16* const y = static_cast<bf16*>(part.y) + place;
      *y = from_float<bf16>(part.accumulate ? to_float(*y) + value : value);
    }
  }
}

}  // namespace narrow
}  // namespace frt::cuda
