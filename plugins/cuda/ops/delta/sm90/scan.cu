// SPDX-License-Identifier: Apache-2.0
// The second pass of the chunked delta rule (delta/chunk.cuh) for sm_90a: delta/scan.cu with wgmma.
//
// A block has half of the values of one head: S^T (64 values, 128 keys) is the accumulator in the
// registers of a warpgroup and, rounded, the left operand; K, Q, T and P are read from shared
// memory by the tensor cores themselves.
//
// What bounds it is the chain from chunk to chunk: S^T K^T (256 cycles of the tensor cores), R, T R
// (128), Vn, the update of S (256). One warpgroup does that and nothing else. It hands S^T and Vn
// through shared memory to a second one, which computes o beside it, and keeps three chunks on
// their way with the copy engine.
#include "../../common/arch.cuh"
#include "../../common/mbarrier.cuh"
#include "../../common/mma.cuh"
#include "../chunk.cuh"

namespace frt::cuda {
namespace {

constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kThreads = 2 * kGroup;
constexpr int kSlice = 64;  // values of a block
constexpr int kStages = 3;

// What a chunk needs: K, Q | T, P | V of the slice | factors.
struct Stage {
  char keys[kKeyBytes];
  char lower[2 * kTileBytes];
  char values[kTileBytes];
  ChunkFactors factors;
  char padding[1024 - sizeof(ChunkFactors) % 1024];
};

struct Shared {
  Stage stages[kStages];
  // From the first warpgroup to the second, registers as they are: S^T and Vn, in f16.
  uint4 state[8][kGroup];
  uint4 fresh[4][kGroup];
  alignas(8) uint64_t full[kStages], empty[kStages];
  uint64_t state_ready, state_taken, fresh_ready, fresh_taken;
};

static_assert(sizeof(Shared) <= kWgmmaScanSharedBytes);

#if FRT_ARCH_WGMMA

constexpr int kStageLoad = kKeyBytes + 3 * kTileBytes + static_cast<int>(sizeof(ChunkFactors));

__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// All but the last `left` groups of products are done.
template <int left>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}
// The registers of products in flight are not touched before this place.
template <int kBlocks>
__device__ __forceinline__ void hold(float (&d)[kBlocks][4]) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(d[n][i])::"memory");
  }
}

// The right operand for the tensor cores: tiles with the 128-byte swizzle. Groups of 8 rows are
// 1024 bytes apart; `apart`: bytes to the tile with the next 64 columns, where it is read by
// columns.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, int apart) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | static_cast<uint64_t>(apart >> 4) << 16 |
         static_cast<uint64_t>(1024 >> 4) << 32 | uint64_t{1} << 62;
}

// d (64, 64) = a b^T, or added: b has 64 rows of 16 columns.
__device__ __forceinline__ void multiply_rows(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b,
                                              int add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1, 0;\n"
      "}"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
// d (64, 128) += a b: b has 16 rows of 128 columns.
__device__ __forceinline__ void multiply_columns(float (&d)[16][4], const uint32_t (&a)[4],
                                                 uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
        "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
        "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]),
        "+f"(d[11][3]), "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
        "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]),
        "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]),
        "+f"(d[15][2]), "+f"(d[15][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// The left operand of the next products: step s has columns 16 s .. 16 s + 15.
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

// to = S^T X^T, X being K or Q.
__device__ __forceinline__ void read_state(float (&to)[8][4], const uint32_t (&state)[8][4],
                                           uint32_t x) {
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    multiply_rows(to, state[step], descriptor(x + step / 4 * kTileBytes + step % 4 * 32, 0),
                  step > 0);
  }
}

// to = X^T L^T.
__device__ __forceinline__ void multiply_lower(float (&to)[8][4], const uint32_t (&x)[4][4],
                                               uint32_t lower) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    multiply_rows(to, x[step], descriptor(lower + step * 32, 0), step > 0);
  }
}

// Columns of `x` times their factors. A thread has columns 8 n + lane % 4 * 2 + {0, 1}.
__device__ __forceinline__ void scale(float (&x)[8][4], const float* factors, int pair) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 factor = *reinterpret_cast<const float2*>(factors + n * 8 + pair);
    x[n][0] *= factor.x;
    x[n][1] *= factor.y;
    x[n][2] *= factor.x;
    x[n][3] *= factor.y;
  }
}

// Rows of o, by way of the tile of V, in which a warp has columns of its own.
__device__ __forceinline__ void store_out(const uint32_t (&out)[8][2], char* tile, bf16* o,
                                          int64_t row_stride, int rows, int warp, int lane) {
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<uint32_t*>(tile + tile_offset(n * 8 + lane / 4, warp * 2 + half) +
                                   lane % 4 * 4) = transpose_8x8(out[n][half]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = i * 16 + lane / 2, piece = warp * 2 + lane % 2;
    if (row < rows) {
      *reinterpret_cast<uint4*>(o + row * row_stride + piece * 8) =
          *reinterpret_cast<const uint4*>(tile + tile_offset(row, piece));
    }
  }
}

// The first warpgroup: R, Vn, S.
__device__ __forceinline__ void carry_state(const frt_gated_delta_args& args, Shared& shared,
                                            int length) {
  const int slice = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int chunks = (length + kChunk - 1) / kChunk;
  const int pair = lane % 4 * 2;

  // S^T: block n has keys 8 n + pair + {0, 1} of the values lane / 4 + {0, 8}.
  float* saved = delta_state(args, sequence, head) + slice * kSlice + warp * 16 + lane / 4;
  float state[16][4];
#pragma unroll
  for (int n = 0; n < 16; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      state[n][i] = saved[(n * 8 + pair + i % 2) * kChunkDim + i / 2 * 8];
    }
  }
  // Accumulators are only ever written by products while products are in flight: what has to be
  // scaled or added is in registers of its own.
  uint32_t state_operand[8][4];
  to_operand(state, state_operand);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    Stage& stage = shared.stages[chunk % kStages];
    const ChunkFactors& factors = stage.factors;
    barrier_wait(&shared.full[chunk % kStages], chunk / kStages % 2);
    float seen[8][4];
    products_begin();
    read_state(seen, state_operand, shared_address(stage.keys));
    products_commit();
    if (chunk > 0) barrier_wait(&shared.state_taken, (chunk - 1) % 2);
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      shared.state[s][thread] = make_uint4(state_operand[s][0], state_operand[s][1],
                                           state_operand[s][2], state_operand[s][3]);
    }
    barrier_arrive(&shared.state_ready);

    // R = V - factor * S^T k, then T R.
    uint32_t values[4][4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      load_matrices_transposed(
          values[n], shared_address(stage.values) +
                         tile_offset(n * 16 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2));
    }
    products_wait<0>();
    hold(seen);
    float fresh[8][4];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(&factors.read_k[n * 8 + pair]);
      const uint32_t first = values[n / 2][n % 2 * 2], second = values[n / 2][n % 2 * 2 + 1];
      fresh[n][0] = low_half(first) - factor.x * seen[n][0];
      fresh[n][1] = high_half(first) - factor.y * seen[n][1];
      fresh[n][2] = low_half(second) - factor.x * seen[n][2];
      fresh[n][3] = high_half(second) - factor.y * seen[n][3];
    }
    uint32_t operand[4][4];
    to_operand(fresh, operand);
    float solved[8][4];
    products_begin();
    multiply_lower(solved, operand, shared_address(stage.lower));
    products_commit();
    scale(fresh, factors.beta, pair);
    const float decay = factors.decay[0];
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state[n][i] *= decay;
    }
    if (chunk > 0) barrier_wait(&shared.fresh_taken, (chunk - 1) % 2);
    products_wait<0>();
    hold(solved);

    // Vn = beta R + T R; S = decay S + K^T (factor * Vn).
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fresh[n][i] += solved[n][i];
    }
    to_operand(fresh, operand);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      shared.fresh[s][thread] =
          make_uint4(operand[s][0], operand[s][1], operand[s][2], operand[s][3]);
    }
    barrier_arrive(&shared.fresh_ready);
    scale(fresh, factors.write_k, pair);
    to_operand(fresh, operand);
    products_begin();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      multiply_columns(state, operand[step],
                       descriptor(shared_address(stage.keys) + step * 2048, kTileBytes));
    }
    products_commit();
    products_wait<0>();
    hold(state);
    barrier_arrive(&shared.empty[chunk % kStages]);
    to_operand(state, state_operand);
  }
#pragma unroll
  for (int n = 0; n < 16; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      saved[(n * 8 + pair + i % 2) * kChunkDim + i / 2 * 8] = state[n][i];
    }
  }
}

// Asks for a chunk: one thread, when its stage is free.
__device__ __forceinline__ void bring_chunk(const frt_gated_delta_args& args,
                                            const ChunkRecords& records, Shared& shared,
                                            int chunk) {
  const int slice = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z;
  const int key_head = head / (args.value_heads / args.key_heads);
  Stage& stage = shared.stages[chunk % kStages];
  uint64_t& full = shared.full[chunk % kStages];
  barrier_expect(&full, kStageLoad);
  const char* value = records.value(args, sequence, chunk, head);
  copy_bulk(shared_address(stage.keys), records.key(args, sequence, chunk, key_head), kKeyBytes,
            &full);
  copy_bulk(shared_address(stage.values), value + kTileV + slice * kTileBytes, kTileBytes, &full);
  copy_bulk(shared_address(&stage.factors), value + kFactors,
            static_cast<int>(sizeof(ChunkFactors)), &full);
  copy_bulk(shared_address(stage.lower), value + kTileT, 2 * kTileBytes, &full);
}

// The second warpgroup: o = factor * S^T q + P Vn.
__device__ __forceinline__ void write_out(const frt_gated_delta_args& args,
                                          const ChunkRecords& records, Shared& shared, int length) {
  const int slice = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z;
  const int thread = threadIdx.x - kGroup, lane = thread % 32, warp = thread / 32;
  const int chunks = (length + kChunk - 1) / kChunk;
  const int pair = lane % 4 * 2;
  const int64_t row_stride = static_cast<int64_t>(args.value_heads) * kChunkDim;
  bf16* o = static_cast<bf16*>(args.o) +
            static_cast<int64_t>(sequence) * args.sequences.rows * row_stride + head * kChunkDim +
            slice * kSlice;
  if (thread == 0) {
    for (int chunk = 0; chunk < min(kStages, chunks); ++chunk) {
      bring_chunk(args, records, shared, chunk);
    }
  }
  __syncwarp();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    Stage& stage = shared.stages[chunk % kStages];
    barrier_wait(&shared.full[chunk % kStages], chunk / kStages % 2);
    barrier_wait(&shared.state_ready, chunk % 2);
    uint32_t state_operand[8][4];
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      const uint4 four = shared.state[s][thread];
      state_operand[s][0] = four.x;
      state_operand[s][1] = four.y;
      state_operand[s][2] = four.z;
      state_operand[s][3] = four.w;
    }
    barrier_arrive(&shared.state_taken);
    float read[8][4], within[8][4];
    products_begin();
    read_state(read, state_operand, shared_address(stage.keys) + 2 * kTileBytes);
    products_commit();

    barrier_wait(&shared.fresh_ready, chunk % 2);
    uint32_t fresh_operand[4][4];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4 four = shared.fresh[s][thread];
      fresh_operand[s][0] = four.x;
      fresh_operand[s][1] = four.y;
      fresh_operand[s][2] = four.z;
      fresh_operand[s][3] = four.w;
    }
    barrier_arrive(&shared.fresh_taken);
    products_begin();
    multiply_lower(within, fresh_operand, shared_address(stage.lower) + kTileBytes);
    products_commit();
    products_wait<0>();
    hold(read);
    hold(within);
    uint32_t out[8][2];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(&stage.factors.read_q[n * 8 + pair]);
      out[n][0] = pack_bf16(fmaf(factor.x, read[n][0], within[n][0]),
                            fmaf(factor.y, read[n][1], within[n][1]));
      out[n][1] = pack_bf16(fmaf(factor.x, read[n][2], within[n][2]),
                            fmaf(factor.y, read[n][3], within[n][3]));
    }
    store_out(out, stage.values, o, row_stride, length - chunk * kChunk, warp, lane);
    o += kChunk * row_stride;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    barrier_arrive(&shared.empty[chunk % kStages]);
    if (thread == 0 && chunk + kStages < chunks) {
      barrier_wait(&shared.empty[chunk % kStages], chunk / kStages % 2);
      bring_chunk(args, records, shared, chunk + kStages);
    }
    __syncwarp();
  }
}

#endif

// Grid: (slices of values, value heads, sequences).
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_scan_kernel(const __grid_constant__ frt_gated_delta_args args,
                      const ChunkRecords records) {
#if FRT_ARCH_WGMMA
  extern __shared__ __align__(1024) char shared_bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
  pdl_trigger();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&shared.full[i], 1);
      barrier_init(&shared.empty[i], 2 * kGroup);
    }
    for (uint64_t* barrier :
         {&shared.state_ready, &shared.state_taken, &shared.fresh_ready, &shared.fresh_taken}) {
      barrier_init(barrier, kGroup);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  pdl_wait();
  const int length = active_length(args.sequences, blockIdx.z);
  if (length == 0) return;
  // The same for all lanes, as the compiler must see.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < kGroup / 32) {
    carry_state(args, shared, length);
  } else {
    write_out(args, records, shared, length);
  }
#endif
}

}  // namespace

void launch_wgmma_scan(Stream& stream, ScanCall& scan) {
  const Grid grid{dim3(kChunkDim / kSlice, static_cast<unsigned>(scan.delta.value_heads),
                       static_cast<unsigned>(scan.delta.sequences.count)),
                  dim3(kThreads), sizeof(Shared)};
  launch(stream, grid, wgmma_scan_kernel, scan.delta, scan.records);
}

}  // namespace frt::cuda
