// SPDX-License-Identifier: Apache-2.0
// A counting sort that keeps the order. Blocks of kSortThreads assignments count their experts; one
// block turns the counts into places, expert by expert and in the order of the blocks, and lays out
// the tiles; then every block puts its assignments there: an assignment comes after those of
// earlier warps and of earlier lanes of its warp that have the same expert.
//
// The sum over j reads top_k results of f32 per value: bound by memory.
#include "sort.cuh"

#include "../common/launch.cuh"
#include "rows.cuh"

namespace frt::cuda {
namespace {

constexpr int kSortWarps = kSortThreads / 32;
constexpr int kPlanThreads = 1024;
constexpr int kPlanWarps = kPlanThreads / 32;
constexpr int kMixThreads = 256;

// The sum of `value` over the threads before this one, and over all.
__device__ __forceinline__ int scan(int value, int* sums, int& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int inclusive = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(~0u, inclusive, offset);
    if (lane >= offset) inclusive += other;
  }
  __syncthreads();  // sums may still be read
  if (lane == 31) sums[warp] = inclusive;
  __syncthreads();
  int before = 0;
  total = 0;
#pragma unroll
  for (int w = 0; w < kPlanWarps; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  return before + inclusive - value;
}

// The expert of this thread's assignment, or -1.
__device__ __forceinline__ int sorted_expert(const MoeSort& args, int assignment) {
  if (assignment >= active_rows(args.rows, args.row_count) * args.top_k) return -1;
  const int id = args.ids[assignment];
  return id >= 0 && id < args.experts ? id : -1;
}

__global__ void __launch_bounds__(kSortThreads) count_kernel(const MoeSort args) {
  extern __shared__ int counts[];  // (experts)
  pdl_trigger();
  for (int e = threadIdx.x; e < args.experts; e += kSortThreads) counts[e] = 0;
  __syncthreads();
  pdl_wait();
  const int id = sorted_expert(args, static_cast<int>(blockIdx.x * kSortThreads + threadIdx.x));
  if (id >= 0) atomicAdd(counts + id, 1);
  __syncthreads();
  int* places = args.places + static_cast<int64_t>(blockIdx.x) * args.experts;
  for (int e = threadIdx.x; e < args.experts; e += kSortThreads) places[e] = counts[e];
}

__global__ void __launch_bounds__(kPlanThreads) plan_kernel(const MoeSort args, int blocks) {
  __shared__ int sums[kPlanWarps];
  pdl_trigger();
  pdl_wait();
  int next_row = 0, next_tile = 0;
  for (int base = 0; base < args.experts; base += kPlanThreads) {
    const int expert = base + static_cast<int>(threadIdx.x);
    int count = 0;  // of the expert; every block's count becomes what came before it
    if (expert < args.experts) {
      constexpr int kBatch = 16;  // loads under way at a time
      int* places = args.places + expert;
      for (int b = 0; b < blocks; b += kBatch) {
        int own[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          own[i] = b + i < blocks ? places[static_cast<int64_t>(b + i) * args.experts] : 0;
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (b + i < blocks) places[static_cast<int64_t>(b + i) * args.experts] = count;
          count += own[i];
        }
      }
    }
    int total;
    const int first = next_row + scan(count, sums, total);
    next_row += total;
    if (expert < args.experts) args.first[expert] = first;
    const int tiles = (count + args.tile_rows - 1) / args.tile_rows;
    const int at = next_tile + scan(tiles, sums, total);
    next_tile += total;
    if (expert < args.experts) args.first_tile[expert] = at;
    for (int t = 0; t < tiles; ++t) {
      args.tiles[at + t] = {expert, first + t * args.tile_rows,
                            min(args.tile_rows, count - t * args.tile_rows), 0};
    }
  }
  if (threadIdx.x == 0) *args.tile_count = next_tile;
}

__global__ void __launch_bounds__(kSortThreads) place_kernel(const MoeSort args) {
  extern __shared__ int counts[];  // (warps, experts)
  pdl_trigger();
  for (int i = threadIdx.x; i < kSortWarps * args.experts; i += kSortThreads) counts[i] = 0;
  __syncthreads();
  pdl_wait();
  const int assignment = static_cast<int>(blockIdx.x * kSortThreads + threadIdx.x);
  const int id = sorted_expert(args, assignment);
  const unsigned same = __match_any_sync(~0u, id);
  const int before = __popc(same & ((1u << (threadIdx.x % 32)) - 1u));
  int* mine = counts + threadIdx.x / 32 * args.experts;
  if (id >= 0 && before == 0) mine[id] = __popc(same);
  __syncthreads();
  for (int e = threadIdx.x; e < args.experts; e += kSortThreads) {
    int next = args.first[e] + args.places[static_cast<int64_t>(blockIdx.x) * args.experts + e];
    for (int w = 0; w < kSortWarps; ++w) {
      const int own = counts[w * args.experts + e];
      counts[w * args.experts + e] = next;
      next += own;
    }
  }
  __syncthreads();
  if (id >= 0) args.order[mine[id] + before] = assignment;
}

// A block per row; inputs are multiples of eight.
__global__ void __launch_bounds__(kMixThreads) mix_kernel(const MoeMix args) {
  pdl_trigger();
  pdl_wait();
  const int row = blockIdx.x;
  if (row >= active_rows(args.rows, args.row_count)) return;
  const int64_t assignment = static_cast<int64_t>(row) * args.top_k;
  const float factor = args.shared_y ? sigmoid(args.shared_scale[row]) : 0.0f;
  for (int k = threadIdx.x * 8; k < args.inputs; k += kMixThreads * 8) {
    float sums[8] = {};
#pragma unroll 4
    for (int j = 0; j < args.top_k; ++j) {
      const int id = args.ids[assignment + j];
      if (id < 0 || id >= args.experts) continue;
      const float weight = args.weights[assignment + j];
      const float* result = args.results + (assignment + j) * args.inputs + k;
      const float4 low = *reinterpret_cast<const float4*>(result);
      const float4 high = *reinterpret_cast<const float4*>(result + 4);
      const float values[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[i] = fmaf(weight, values[i], sums[i]);
    }
    const int64_t at = static_cast<int64_t>(row) * args.inputs + k;
    if (args.shared_y) {
      float shared[8];
      floats_of_bf16(*reinterpret_cast<const uint4*>(args.shared_y + at), shared);
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[i] = fmaf(factor, shared[i], sums[i]);
    }
    *reinterpret_cast<uint4*>(args.y + at) = pack_bf16(sums);
  }
}

}  // namespace

void launch_moe_sort(Stream& stream, const MoeSort& sort) {
  const auto blocks = static_cast<int>(sort_blocks(sort.rows, sort.top_k));
  const std::size_t bytes = static_cast<std::size_t>(sort.experts) * sizeof(int);
  const dim3 grid(static_cast<unsigned>(blocks));
  launch(stream, {grid, dim3(kSortThreads), bytes}, count_kernel, sort);
  launch(stream, {dim3(1), dim3(kPlanThreads)}, plan_kernel, sort, blocks);
  launch(stream, {grid, dim3(kSortThreads), bytes * kSortWarps}, place_kernel, sort);
}

void launch_moe_mix(Stream& stream, const MoeMix& mix) {
  launch(stream, {dim3(static_cast<unsigned>(mix.rows)), dim3(kMixThreads)}, mix_kernel, mix);
}

}  // namespace frt::cuda
