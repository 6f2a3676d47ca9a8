// SPDX-License-Identifier: Apache-2.0
// The grouped product on wgmma (sm_90a), tiles of 128 rows; weights in bf16, or quantised ones that
// are dequantised in front of it, some experts at a time.
//
// A block stays on its SM and takes one (tile, 256 weight rows) after the other. One group
// of four warps fetches, two multiply: each has 64 rows of the tile and all 256 weight rows, 128
// sums per thread, and leaves its half out where the tile has no rows for it. Stages of 64 columns
// pass through a ring of four (48 KB each), so the next tile's first half arrives while the sums of
// this one are written. Weights come by bulk tensor copies; so do rows that are in order; rows that
// have to be gathered come with cp.async, whose data the tensor cores may read only after the
// writing threads' fence, which therefore runs kLag stages behind.
//
// Gated: weight rows 0 .. 127 of a stage are the gate's, the others the up matrix's: the sums of
// one value are in one thread.
#include <algorithm>
#include <frt/error.hpp>

#include "../../common/arch.cuh"
#include "../../common/async_copy.cuh"
#include "../../common/launch.cuh"
#include "../../common/mbarrier.cuh"
#include "../../common/tensor_map.hpp"
#include "../grouped.cuh"
#include "../rows.cuh"

namespace frt::cuda {
namespace {

constexpr int kWeights = 256;  // weight rows of a stage
constexpr int kDepth = 64;     // columns of a stage
constexpr int kStages = 4;
constexpr int kGroup = 128;  // threads
constexpr int kThreads = 3 * kGroup;
constexpr int kTokenBytes = kLargeTile * kDepth * 2;
constexpr int kWeightBytes = kWeights * kDepth * 2;
constexpr int kStageBytes = kTokenBytes + kWeightBytes;
constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // the ring begins at a multiple of 1024
static_assert(kSharedBytes == kGroupedWgmmaSharedBytes);

struct WgmmaArgs {
  MoeProduct product;
  int32_t column_blocks;
  int32_t tile_limit;
  int32_t first_expert;  // whose matrix comes first in memory
  int32_t end_expert;    // 0: all tiles; else those of [first_expert, end_expert)
};

#if FRT_ARCH_WGMMA

constexpr int kLag = 2;  // stages that gathered rows are on their way before they are published

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- copies ----------------------------------------------------------------------------------

// A box of `map` whose corner is (column, row, matrix).
__device__ __forceinline__ void copy_box(uint32_t target, const CUtensorMap& map, int column,
                                         int row, int matrix, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(target),
      "l"(&map), "r"(column), "r"(row), "r"(matrix), "r"(shared_address(barrier))
      : "memory");
}

// ---- products ----------------------------------------------------------------------------------

// Rows of 128 bytes, swizzled by 128 bytes, eight rows after 1024 bytes.
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t address) {
  return static_cast<uint64_t>(address >> 4 & 0x3FFFu) | uint64_t{1} << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
#define FRT_SUMS(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
// c (64 x 256) = or += a (64 x 16) b (256 x 16)^T, both in shared memory.
__device__ __forceinline__ void multiply_async(float (&c)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127}, "
      "%128, %129, add, 1, 1, 0, 0;\n}\n"
      : FRT_SUMS(0), FRT_SUMS(4), FRT_SUMS(8), FRT_SUMS(12), FRT_SUMS(16), FRT_SUMS(20),
        FRT_SUMS(24), FRT_SUMS(28), FRT_SUMS(32), FRT_SUMS(36), FRT_SUMS(40), FRT_SUMS(44),
        FRT_SUMS(48), FRT_SUMS(52), FRT_SUMS(56), FRT_SUMS(60), FRT_SUMS(64), FRT_SUMS(68),
        FRT_SUMS(72), FRT_SUMS(76), FRT_SUMS(80), FRT_SUMS(84), FRT_SUMS(88), FRT_SUMS(92),
        FRT_SUMS(96), FRT_SUMS(100), FRT_SUMS(104), FRT_SUMS(108), FRT_SUMS(112), FRT_SUMS(116),
        FRT_SUMS(120), FRT_SUMS(124)
      : "l"(a), "l"(b), "r"(add));
}
#undef FRT_SUMS

// A place in the ring and how often it went round.
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

struct Ring {
  uint32_t memory;
  uint64_t *full, *empty;
};

struct TileRange {
  int first, end;
};

// Of the experts whose matrices are in memory.
__device__ __forceinline__ TileRange tile_range(const WgmmaArgs& args, int experts) {
  if (args.end_expert == 0) return {0, args.tile_limit};
  const MoeProduct& product = args.product;
  return {product.first_tile[args.first_expert],
          args.end_expert < experts ? product.first_tile[args.end_expert] : *product.tile_count};
}

__device__ __forceinline__ bool find_work(const WgmmaArgs& args, const TileRange& range, int work,
                                          MoeTile& tile, int& first) {
  first = work % args.column_blocks;
  const int index = range.first + work / args.column_blocks;
  return index < range.end && find_tile(args.product, index, kLargeTile, tile);
}

template <bool kGated>
__device__ void produce(const CUtensorMap& x_map, const CUtensorMap& map, const CUtensorMap& up_map,
                        const WgmmaArgs& args, const TileRange& range, const Ring& ring) {
  const MoeProduct& product = args.product;
  const bool gather = product.gather;
  const bool leader = threadIdx.x == 0;
  if (!gather && !leader) return;
  const int cols = product.matrix.cols;
  const int row_in_step = threadIdx.x / 8, chunk = threadIdx.x % 8;
  Place place;
  Place arrived;  // kLag behind, if rows are gathered
  int waiting = 0;
  const auto arrive = [&] {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    barrier_arrive(ring.full + arrived.stage);
    arrived.advance();
  };
  MoeTile tile;
  int block;
  for (int work = blockIdx.x; find_work(args, range, work, tile, block); work += gridDim.x) {
    const int first = block * (kGated ? kWeights / 2 : kWeights);
    constexpr int kRows = kLargeTile / 16;  // of this thread
    const bf16* rows[kRows];
    if (gather) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = row_in_step + i * 16;
        rows[i] = row < tile.count
                      ? product.x + input_row(product, tile.first + row) * cols + chunk * 8
                      : nullptr;
      }
    }
    for (int k = 0; k < cols; k += kDepth) {
      barrier_wait(ring.empty + place.stage, place.parity ^ 1);
      const uint32_t tokens = ring.memory + place.stage * kStageBytes;
      const uint32_t weights = tokens + kTokenBytes;
      uint64_t* full = ring.full + place.stage;
      if (leader) {
        barrier_expect(full, kWeightBytes + (gather ? 0 : kTokenBytes));
        const int matrix = tile.expert - args.first_expert;
        copy_box(weights, map, k, first, matrix, full);
        if constexpr (kGated) {
          copy_box(weights + kWeightBytes / 2, up_map, k, first, matrix, full);
        }
        if (!gather) copy_box(tokens, x_map, k, tile.first, 0, full);
      }
      if (gather) {
        const bool inside = k + chunk * 8 < cols;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const int row = row_in_step + i * 16;
          const bool valid = inside && rows[i];
          copy_async_or_zero(tokens + row * 128 + ((chunk ^ (row & 7)) * 16),
                             valid ? rows[i] + k : product.x, valid);
        }
        copies_commit();
        if (++waiting > kLag) {
          copies_wait<kLag>();
          arrive();
          --waiting;
        }
      }
      place.advance();
    }
  }
  if (gather) {
    copies_wait<0>();
    for (; waiting > 0; --waiting) arrive();
  }
}

// The sums of 64 rows, times what is constant along a weight row (kScaled): rows lane / 4 and + 8
// of every warp's sixteen, columns 8 j + lane % 4 * 2.
template <bool kGated, bool kScaled>
__device__ __forceinline__ void store_sums(const MoeProduct& product, const MoeTile& tile,
                                           int group, int block, const float (&sums)[128]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int outputs = product.matrix.rows;
  const int first = block * (kGated ? kWeights / 2 : kWeights) + lane % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = group * 64 + warp * 16 + half * 8 + lane / 4;
    if (row >= tile.count) continue;
    const int64_t at = output_row(product, tile.first + row) * outputs;
    constexpr int kBlocks = kGated ? 16 : 32;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int n = first + j * 8;
      if (n >= outputs) continue;
      const auto scaled = [&](const MoeMatrix& matrix, int at_n, float sum) {
        if constexpr (!kScaled) return sum;
        return at_n < outputs ? sum * moe_row(matrix, tile.expert, at_n).factor : 0.0f;
      };
      float low = scaled(product.matrix, n, sums[4 * j + half * 2]);
      float high = scaled(product.matrix, n + 1, sums[4 * j + half * 2 + 1]);
      if constexpr (kGated) {
        low = gated_bf16(low, scaled(product.up, n, sums[4 * (j + 16) + half * 2]));
        high = gated_bf16(high, scaled(product.up, n + 1, sums[4 * (j + 16) + half * 2 + 1]));
      }
      if (!kGated && product.y_f32) {
        auto* y = static_cast<float*>(product.y) + at + n;
        if (outputs % 2 == 0) {
          *reinterpret_cast<float2*>(y) = make_float2(low, high);
        } else {
          y[0] = low;
          if (n + 1 < outputs) y[1] = high;
        }
      } else {
        *reinterpret_cast<__nv_bfloat162*>(static_cast<bf16*>(product.y) + at + n) =
            __floats2bfloat162_rn(low, high);
      }
    }
  }
}

template <bool kGated, bool kScaled>
__device__ void consume(const WgmmaArgs& args, const TileRange& range, const Ring& ring) {
  const int group = static_cast<int>(threadIdx.x) / kGroup - 1;
  const int steps = (args.product.matrix.cols + kDepth - 1) / kDepth;
  Place place;
  MoeTile tile;
  int block;
  for (int work = blockIdx.x; find_work(args, range, work, tile, block); work += gridDim.x) {
    const bool busy = group * 64 < tile.count;
    float sums[128];
    int previous = -1;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(ring.full + place.stage, place.parity);
      if (busy) {
        const uint32_t tokens = ring.memory + place.stage * kStageBytes;
        const uint64_t a = matrix_descriptor(tokens + group * (kTokenBytes / 2));
        const uint64_t b = matrix_descriptor(tokens + kTokenBytes);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int kk = 0; kk < kDepth / 16; ++kk) {
          multiply_async(sums, a + kk * 2, b + kk * 2, step + kk > 0 ? 1 : 0);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      }
      if (previous >= 0 && threadIdx.x % 32 == 0) barrier_arrive(ring.empty + previous);
      previous = place.stage;
      place.advance();
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty + previous);
    if (busy) store_sums<kGated, kScaled>(args.product, tile, group, block, sums);
  }
}

#endif  // FRT_ARCH_WGMMA

template <bool kGated, bool kScaled>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_wgmma_kernel(const __grid_constant__ CUtensorMap x_map,
                         const __grid_constant__ CUtensorMap map,
                         const __grid_constant__ CUtensorMap up_map,
                         const __grid_constant__ WgmmaArgs args, int experts) {
#if FRT_ARCH_WGMMA
  extern __shared__ uint8_t dynamic[];
  __shared__ uint64_t full[kStages], empty[kStages];
  pdl_trigger();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(full + i, args.product.gather ? 1 + kGroup : 1);
      barrier_init(empty + i, 8);  // every multiplying warp: none may fall a round behind
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  pdl_wait();
  const TileRange range = tile_range(args, experts);
  const Ring ring{(shared_address(dynamic) + 1023) / 1024 * 1024, full, empty};
  if (threadIdx.x < kGroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    produce<kGated>(x_map, map, up_map, args, range, ring);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    consume<kGated, kScaled>(args, range, ring);
  }
#endif
}

// ---- host --------------------------------------------------------------------------------------

// (matrices, rows, cols) of bf16; boxes of `box_rows` x kDepth. A stride of 0: one behind the
// other.
CUtensorMap make_map(Device& device, const void* data, int64_t cols, int64_t rows, int64_t matrices,
                     int64_t matrix_stride, int box_rows) {
  BoxedMatrix matrix{data, cols, rows, cols * 2, box_rows};
  matrix.matrices = matrices;
  matrix.matrix_stride = matrix_stride > 0 ? matrix_stride : cols * rows * 2;
  return make_tensor_map(device, matrix, "mixture of experts");
}

// Matrices of bf16 in memory, those of [first_expert, end_expert); 0: of all experts.
struct PlainMatrices {
  const void* matrix;
  const void* up;
  int64_t matrix_stride, up_stride;  // bytes; 0: one behind the other
  int64_t count;
  int32_t first_expert, end_expert;
};

template <bool kScaled>
void launch_kernel(Stream& stream, GroupedCall& call, const PlainMatrices& plain) {
  const MoeProduct& product = call.product;
  Device& device = stream.device();
  const MoeMatrix& matrix = product.matrix;
  const int box = call.gated ? kWeights / 2 : kWeights;
  const CUtensorMap x_map = make_map(device, product.x, matrix.cols, call.x_rows, 1, 0, kLargeTile);
  const CUtensorMap map = make_map(device, plain.matrix, matrix.cols, matrix.rows, plain.count,
                                   plain.matrix_stride, box);
  const CUtensorMap up_map = call.gated ? make_map(device, plain.up, matrix.cols, matrix.rows,
                                                   plain.count, plain.up_stride, box)
                                        : map;
  WgmmaArgs args{
      product, static_cast<int32_t>(ceil_div(matrix.rows, box)),
      product.tiles ? product.tile_limit : static_cast<int32_t>(ceil_div(product.rows, kLargeTile)),
      plain.first_expert, plain.end_expert};
  const int64_t blocks =
      std::min<int64_t>(device.properties().multiprocessors,
                        static_cast<int64_t>(args.tile_limit) * args.column_blocks);
  const Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(kThreads), kSharedBytes};
  launch(stream, grid,
         call.gated ? grouped_wgmma_kernel<true, kScaled> : grouped_wgmma_kernel<false, kScaled>,
         x_map, map, up_map, args, static_cast<int>(call.experts));
}

// Dequantised matrices in memory at a time. A quarter of the experts at most.
constexpr int64_t kSliceBytes = int64_t{256} << 20;
constexpr int64_t kLeastSlices = 4;

int64_t matrix_values(GroupedCall& call) {
  return static_cast<int64_t>(call.product.matrix.rows) * call.product.matrix.cols;
}

}  // namespace

void launch_grouped_wgmma(Stream& stream, GroupedCall& call) {
  const MoeMatrix &matrix = call.product.matrix, &up = call.product.up;
  launch_kernel<false>(
      stream, call, {matrix.data, up.data, matrix.data_stride, up.data_stride, call.experts, 0, 0});
}

int64_t grouped_slice_experts(GroupedCall& call) {
  const int64_t bytes = matrix_values(call) * 2 * (call.gated ? 2 : 1);
  return std::max<int64_t>(1, std::min(kSliceBytes / bytes, ceil_div(call.experts, kLeastSlices)));
}

std::size_t grouped_slice_bytes(GroupedCall& call) {
  return static_cast<std::size_t>(grouped_slice_experts(call) * matrix_values(call) * 2 *
                                  (call.gated ? 2 : 1));
}

void launch_grouped_dequantised(Stream& stream, GroupedCall& call) {
  if (!call.slice) throw Error(FRT_ERR_INTERNAL, "grouped product dequantised: no working memory");
  const int64_t slice = grouped_slice_experts(call);
  for (int64_t first = 0; first < call.experts; first += slice) {
    const int64_t count = std::min(slice, call.experts - first);
    bf16* up = call.gated ? call.slice + count * matrix_values(call) : nullptr;
    launch_dequantise_experts(stream, call.product.matrix, first, count, call.slice);
    if (up) launch_dequantise_experts(stream, call.product.up, first, count, up);
    launch_kernel<true>(stream, call,
                        {call.slice, up, 0, 0, count, static_cast<int32_t>(first),
                         static_cast<int32_t>(first + count)});
  }
}

}  // namespace frt::cuda
