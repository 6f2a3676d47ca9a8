// SPDX-License-Identifier: Apache-2.0
// Resident products of one row: a block has all its weights in shared memory before x is there.
//
// Floor: the bytes of the weights / 4.65 TB/s on an H200, 1.8 us for 8 MB (Qwen3.6 35B-A3B, the
// product behind a layer's delta step or attention, FP8). So short a product is its edges. Weights
// are asked for when the block starts, as many as do not keep x waiting, which at 64 registers a
// thread and some shared memory it does beside the blocks of the small kernel in front; what is
// left behind the wait is x, asked for ahead of the rest of the weights, one pass of all warps over
// all tiles, a chunk of columns each, and the sums of their results.
//
// Bits: those of the streaming kernel. In FP8 its sums of a chunk are independent of each other;
// they are left in shared memory, and who finishes a row adds them in its order: by warp of a group
// of four, then over the four, then over the halves of the columns. In bf16 chunks are one chain of
// products in the tensor cores, so as many warps share a tile as there, the others rest: a matter
// of few tiles.
#include "../common/arch.cuh"
#include "../common/mma.cuh"
#include "resident.hpp"

#include "../common/launch.cuh"
#include "gemv_x.cuh"

namespace frt::cuda {
namespace {

#if FRT_ARCH_CLUSTERS

using namespace gemv;

constexpr int kSharers = kGemvGroup;  // warps of the streaming kernel that share a tile

__device__ __forceinline__ bool sums_chunks(const GemvPart& part) {
  return part.kind != GemvKind::kBf16;
}
__device__ __forceinline__ int pitch_of(const GemvPart& part) {
  return part.row_bytes + kResidentGap;
}
__device__ __forceinline__ int first_tile(const ResidentArgs& a, int part) {
  return part > 0 ? a.tile_ends[part - 1] : 0;
}
__device__ __forceinline__ int part_of(const ResidentArgs& a, int tile) {
  int part = 0;
  while (tile >= a.tile_ends[part]) ++part;
  return part;
}

// The chunks of part `rank` of the columns.
__device__ __forceinline__ int2 chunks_of(const ResidentArgs& a, const GemvPart& part, int rank) {
  const int own = a.part_cols >> gemv_chunk_shift(part.kind);
  return make_int2(rank * own, min(part.chunks, (rank + 1) * own));
}

// ---- weights ------------------------------------------------------------------------------------

// Tiles `from` to `count` of the block: warp r copies row r of each. A bulk copy is an instruction
// of one thread, and takes its time.
__device__ __forceinline__ void ask_tiles(const ResidentArgs& a, uint8_t* shared,
                                          uint64_t* barriers, int first, int from, int count) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  static_assert(kResidentWarps == kResidentRows);
  if (threadIdx.x % 32 != 0) return;
  uint32_t target = shared_address(shared);
#pragma unroll 1
  for (int j = 0, index = part_of(a, first); j < count; ++index) {
    const GemvPart& part = a.parts[index];
    const int begin = first_tile(a, index), end = min(count, a.tile_ends[index] - first);
    const uint8_t* const data = part.low.data;
    const int bytes = part.row_bytes, rows = part.rows;
#pragma unroll 1
    for (; j < end; ++j, target += kResidentRows * (bytes + kResidentGap)) {
      if (j < from) continue;
      // Rows beyond the last are read as the last one, and not stored.
      const int row = min((first + j - begin) * kResidentRows + warp, rows - 1);
      barrier_expect(barriers + j, bytes);
      copy_bulk(target + warp * (bytes + kResidentGap), data + int64_t{row} * bytes, bytes,
                barriers + j);
    }
  }
}

// Parameters come from memory line by line, and what is found in one says where to look in the
// next: a warp asks for one each, so that all come at once.
__device__ __forceinline__ void warm_parameters(const ResidentArgs& a) {
  constexpr unsigned kLine = 64;
  const unsigned at = (threadIdx.x / 32 * 2 + threadIdx.x % 2) * kLine;
  static_assert(sizeof(ResidentArgs) <= kResidentWarps * 2 * kLine);
  if (threadIdx.x % 32 >= 2 || at >= sizeof(ResidentArgs)) return;
  const uint32_t word = *reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(&a) + at);
  asm volatile("" ::"r"(word));
}

// A scale as it is stored; nobody waits for it before it is used.
struct Scale {
  uint32_t bits = 0x3F800000u;
  bool is_bf16 = false;

  __device__ __forceinline__ void load(const GemvPart& part, int index) {
    is_bf16 = part.scale_bf16;
    bits = is_bf16 ? static_cast<const uint16_t*>(part.low.scale)[index]
                   : static_cast<const uint32_t*>(part.low.scale)[index];
  }
  __device__ __forceinline__ float value() const {
    return __uint_as_float(is_bf16 ? bits << 16 : bits);
  }
};

// This lane's scale of the warp: of tile lane / 2 / chunks_warp, half lane % 2.
__device__ __forceinline__ Scale load_scale(const ResidentArgs& a, int first, int count,
                                            int chunks_warp) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int j = lane / 2 / chunks_warp, chunk = warp + lane / 2 % chunks_warp * kResidentWarps;
  Scale scale;
  if (j >= count) return scale;
  const int index = part_of(a, first + j);
  const GemvPart& part = a.parts[index];
  if (part.kind != GemvKind::kFp8Block || chunk >= part.chunks) return scale;
  const int local = first + j - first_tile(a, index);
  const int row = min(local * kResidentRows + lane % 2 * 8, part.rows - 1);
  scale.load(part,
             (row >> part.block_row_shift) * part.scale_stride + (chunk >> part.block_chunk_shift));
  return scale;
}

// ---- x ------------------------------------------------------------------------------------------

// Eight columns of x, piece `unit` * 32 + lane, in the forms that are needed; a whole warp.
__device__ __forceinline__ void put_x(const ResidentArgs& a, uint8_t* shared, int unit,
                                      const uint4& v) {
  const int lane = static_cast<int>(threadIdx.x % 32), q = unit * 32 + lane;
  if (a.x_offset[kXBf16] >= 0) {
    *reinterpret_cast<uint4*>(shared + a.x_offset[kXBf16] + x_place(kXBf16, q)) = v;
  }
  if (a.x_offset[kXF16] < 0) return;
  const uint32_t pair = __vmaxu2(__vmaxu2(v.x & 0x7FFF7FFFu, v.y & 0x7FFF7FFFu),
                                 __vmaxu2(v.z & 0x7FFF7FFFu, v.w & 0x7FFF7FFFu));
  const uint32_t largest = __reduce_max_sync(~0u, max(pair & 0xFFFFu, pair >> 16));
  const float factor = x_factor(largest);
  *reinterpret_cast<uint4*>(shared + a.x_offset[kXF16] + x_place(kXF16, q)) = make_uint4(
      to_f16(v.x, factor), to_f16(v.y, factor), to_f16(v.z, factor), to_f16(v.w, factor));
  if (lane == 0) {
    reinterpret_cast<float*>(shared + a.x_inverse_offset)[unit] = x_inverse(largest);
  }
}

// ---- products -----------------------------------------------------------------------------------

// `low`: this lane's first 16 bytes of a chunk in its lower row, `high` in its upper one; `x`: its
// part of the same columns. As chunk_fp8 and chunk_bf16 of gemv_stream.cuh.
__device__ __forceinline__ void multiply_fp8(const uint8_t* low, const uint8_t* high,
                                             const uint4 (&x)[2][2], float (&even)[4],
                                             float (&odd)[4]) {
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    const uint4 lower = load_shared(low + piece * 64), upper = load_shared(high + piece * 64);
    const uint32_t l[4] = {lower.x, lower.y, lower.z, lower.w};
    const uint32_t u[4] = {upper.x, upper.y, upper.z, upper.w};
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      uint32_t a0, a1, a2, a3, c0, c1, c2, c3;
      dequantise_fp8(l[i], a0, a2);
      dequantise_fp8(u[i], a1, a3);
      dequantise_fp8(l[i + 1], c0, c2);
      dequantise_fp8(u[i + 1], c1, c3);
      const uint4& b = x[piece][i / 2];
      mma_f16(even, a0, a1, a2, a3, b.x, b.y);
      mma_f16(odd, c0, c1, c2, c3, b.z, b.w);
    }
  }
}
__device__ __forceinline__ void multiply_chunk_bf16(const uint8_t* low, const uint8_t* high,
                                                    const uint8_t* x, float (&even)[4],
                                                    float (&odd)[4]) {
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    const uint4 l = load_shared(low + piece * 64), u = load_shared(high + piece * 64);
    const uint4 b = load_shared(x + piece * 64);
    mma_bf16(even, l.x, u.x, l.y, u.y, b.x, b.y);
    mma_bf16(odd, l.z, u.z, l.w, u.w, b.z, b.w);
  }
}

// A lane's part of x in a chunk, for all tiles.
struct ChunkX {
  uint4 pieces[2][2];

  __device__ __forceinline__ explicit ChunkX(const uint8_t* x) {
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
#pragma unroll
      for (int i = 0; i < 2; ++i) pieces[piece][i] = load_shared(x + piece * 128 + i * 64);
    }
  }
};

// This warp's part of the tiles, into sums[tile][chunk or chain][row].
__device__ __forceinline__ void multiply_tiles(const ResidentArgs& a, const uint8_t* shared,
                                               uint64_t* barriers, float* sums, int first,
                                               int count, float scale, int chunks_warp) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int g = lane / 4, t = lane % 4;
  const uint8_t* tiles = shared + t * 16;
  int begin = 0;
#pragma unroll 1
  for (int index = part_of(a, first); begin < count; ++index) {
    const GemvPart& part = a.parts[index];
    const int end = min(count, a.tile_ends[index] - first), pitch = pitch_of(part);
    if (sums_chunks(part)) {
      int chunk = warp;
#pragma unroll 1
      for (int k = 0; k < chunks_warp && chunk < part.chunks; ++k, chunk += kResidentWarps) {
        const ChunkX x(shared + a.x_offset[kXF16] + t * 16 + chunk * 256);
        const uint8_t* low = tiles + g * pitch + chunk * 128;
        float* own = sums + (begin * a.chunks + chunk) * kResidentRows + g;
#pragma unroll 1
        for (int j = begin; j < end; ++j) {
          barrier_wait(barriers + j, 0);
          float even[4] = {}, odd[4] = {};
          multiply_fp8(low, low + 8 * pitch, x.pieces, even, odd);
          const int of_tile = (j * chunks_warp + k) * 2;
          const float low_scale = __shfl_sync(~0u, scale, of_tile);
          const float high_scale = __shfl_sync(~0u, scale, of_tile + 1);
          if (t == 0) {
            own[0] = (even[0] + odd[0]) * low_scale;
            own[8] = (even[2] + odd[2]) * high_scale;
          }
          low += kResidentRows * pitch;
          own += a.chunks * kResidentRows;
        }
      }
    } else {
      const int chains = a.split * kSharers;
#pragma unroll 1
      for (int j = begin; j < end; ++j) {
        // Other warps' turn with each tile.
        const int chain = (warp + kResidentWarps - j * chains % kResidentWarps) % kResidentWarps;
        if (chain >= chains) continue;
        const int2 range = chunks_of(a, part, chain / kSharers);
        const uint8_t* x = shared + a.x_offset[kXBf16] + t * 16;
        const uint8_t* low = tiles + ((j - begin) * kResidentRows + g) * pitch;
        float even[4] = {}, odd[4] = {};
        barrier_wait(barriers + j, 0);
#pragma unroll 1
        for (int chunk = range.x + chain % kSharers; chunk < range.y; chunk += kSharers) {
          multiply_chunk_bf16(low + chunk * 128, low + 8 * pitch + chunk * 128, x + chunk * 128,
                              even, odd);
        }
        if (t == 0) {
          float* own = sums + (j * a.chunks + chain) * kResidentRows + g;
          own[0] = even[0] + odd[0];
          own[8] = even[2] + odd[2];
        }
      }
    }
    tiles += (end - begin) * kResidentRows * pitch;
    begin = end;
  }
}

// A thread per chain of a row: adds the chain's chunks; the first one of a row adds the chains, and
// has the result. What can be known before the sums are there.
struct Finisher {
  void* y = nullptr;  // of this thread to write
  const float* sums;  // of this chain
  int chunk, end;     // of its chunks; end 0: they are one sum
  Scale row_scale;
  float factor;
  bool is_float, accumulate;

  __device__ __forceinline__ Finisher(const ResidentArgs& a, const float* all, int first, int i) {
    const int chains = a.split * kSharers;
    const int chain = i % chains, m = i / chains % kResidentRows, j = i / chains / kResidentRows;
    const int index = part_of(a, first + j);
    const GemvPart& part = a.parts[index];
    const int row = (first + j - first_tile(a, index)) * kResidentRows + m;
    sums = all + j * a.chunks * kResidentRows + m;
    is_float = part.y_float;
    accumulate = part.accumulate;
    factor = part.low.factor;
    if (part.scale_rows) row_scale.load(part, min(row, part.rows - 1));
    if (sums_chunks(part)) {
      const int2 range = chunks_of(a, part, chain / kSharers);
      chunk = range.x + chain % kSharers;
      end = range.y;
    } else {
      chunk = chain;
      end = 0;
    }
    if (chain == 0 && row < part.rows) y = static_cast<uint8_t*>(part.y) + row * (is_float ? 4 : 2);
  }

  // All lanes of a warp together.
  __device__ __forceinline__ void finish(const float* inverses, bool halves, bool active) const {
    constexpr int kShift = 1;  // chunks of x with one power of two
    static_assert(kGemvXUnit == gemv_chunk_cols(GemvKind::kFp8) << kShift);
    float sum = 0;
    if (end == 0) {
      sum = sums[chunk * kResidentRows];
    } else {
#pragma unroll 4
      for (int c = chunk; c < end; c += kSharers) {
        sum = fmaf(inverses[c >> kShift], sums[c * kResidentRows], sum);
      }
    }
    const int lane = static_cast<int>(threadIdx.x % 32);
    float value = 0;
#pragma unroll
    for (int w = 0; w < kSharers; ++w) {
      value += __shfl_sync(~0u, sum, lane / kSharers * kSharers + w);
    }
    value *= factor * row_scale.value();
    if (halves) value = 0.0f + value + __shfl_down_sync(~0u, value, kSharers);
    if (!y || !active) return;
    if (is_float) {
      auto* target = static_cast<float*>(y);
      *target = accumulate ? *target + value : value;
    } else {
      auto* target = static_cast<bf16*>(y);
      *target = from_float<bf16>(accumulate ? to_float(*target) + value : value);
    }
  }
};

#endif

// ---- the kernel ---------------------------------------------------------------------------------

__global__ void __launch_bounds__(kResidentThreads, 2)
    resident_kernel(const __grid_constant__ ResidentArgs a) {
#if FRT_ARCH_CLUSTERS
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ uint64_t barriers[kResidentTiles];
  __shared__ bool active;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if (thread < kResidentTiles) {
    barrier_init(barriers + thread, kResidentRows);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  warm_parameters(a);
  __syncthreads();
  const int first = a.first[blockIdx.x], count = a.first[blockIdx.x + 1] - first;
  const int chunks_warp = (a.chunks + kResidentWarps - 1) / kResidentWarps;
  const int units = a.cols / kGemvXUnit, results = count * kResidentRows * a.split * kSharers;
  float* const sums = reinterpret_cast<float*>(shared + a.sums_offset);
  const int early = min(a.early, count);
  ask_tiles(a, shared, barriers, first, 0, early);
  __syncwarp();
  const Scale scale = load_scale(a, first, count, chunks_warp);
  Finisher finisher(a, sums, first, min(thread, results - 1));

  pdl_wait();
  // As the streaming kernel, behind the wait (Stream::early_reads_safe()).
  pdl_trigger();
  // x ahead of the weights that are left, behind which it would wait.
  const auto load_x = [&](int unit) {
    return __ldcg(static_cast<const uint4*>(a.x) + unit * 32 + lane);
  };
  uint4 x = {};
  if (warp < units) x = load_x(warp);
  ask_tiles(a, shared, barriers, first, early, count);
  __syncwarp();
  if (thread == kResidentThreads - 1) active = active_rows(1, a.row_count) > 0;
  for (int unit = warp; unit < units; unit += kResidentWarps) {
    put_x(a, shared, unit, unit == warp ? x : load_x(unit));
  }
  __syncthreads();
  multiply_tiles(a, shared, barriers, sums, first, count, scale.value(), chunks_warp);
  __syncthreads();
  const float* inverses = reinterpret_cast<const float*>(shared + a.x_inverse_offset);
  for (int i = thread; i < results; i += kResidentThreads) {
    if (i != thread) finisher = Finisher(a, sums, first, i);
    finisher.finish(inverses, a.split > 1, active);
  }
#endif
}

}  // namespace

void launch_resident(Stream& stream, const ResidentPlan& plan) {
  launch(stream,
         {dim3(static_cast<unsigned>(plan.blocks)), dim3(kResidentThreads), plan.shared_bytes},
         resident_kernel, plan.args);
  stream.allow_early_reads();  // it triggers after its wait
}

}  // namespace frt::cuda
