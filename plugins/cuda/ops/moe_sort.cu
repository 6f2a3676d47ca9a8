// SPDX-License-Identifier: Apache-2.0
// Sorting without communication: the block of expert e counts the assignments of smaller experts,
// which says where its own begin, then collects its own in order, 1024 at a time. Every block reads
// all ids (256 KB for 8192 rows of 8), from L2; one further block lays out the tiles.
//
// The sum over j reads chosen results of f32 per value: bound by memory.
#include "moe_sort.cuh"

#include "launch.cuh"
#include "moe_rows.cuh"

namespace frt::cuda {
namespace {

constexpr int kSortThreads = 1024;
constexpr int kSortWarps = kSortThreads / 32;
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
  for (int w = 0; w < kSortWarps; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  return before + inclusive - value;
}

__global__ void __launch_bounds__(kSortThreads) sort_kernel(const MoeSort args) {
  __shared__ int sums[kSortWarps];
  pdl_trigger();
  pdl_wait();
  const int expert = blockIdx.x;
  const int count = active_rows(args.rows, args.row_count) * args.chosen;
  int smaller = 0;
  for (int i = threadIdx.x; i < count; i += kSortThreads) {
    const int id = args.ids[i];
    smaller += id >= 0 && id < expert ? 1 : 0;
  }
  int next;
  scan(smaller, sums, next);
  if (threadIdx.x == 0) args.first[expert] = next;
  for (int i = threadIdx.x; i - static_cast<int>(threadIdx.x) < count; i += kSortThreads) {
    const bool mine = i < count && args.ids[i] == expert;
    int total;
    if (__syncthreads_or(mine)) {
      const int before = scan(mine ? 1 : 0, sums, total);
      if (mine) args.order[next + before] = i;
      next += total;
    }
  }
  if (threadIdx.x == 0 && expert == args.experts - 1) args.first[args.experts] = next;
}

__global__ void __launch_bounds__(kSortThreads) tile_kernel(const MoeSort args) {
  __shared__ int sums[kSortWarps];
  pdl_trigger();
  pdl_wait();
  int next = 0;
  for (int base = 0; base < args.experts; base += kSortThreads) {
    const int expert = base + static_cast<int>(threadIdx.x);
    const int first = expert < args.experts ? args.first[expert] : 0;
    const int count = expert < args.experts ? args.first[expert + 1] - first : 0;
    const int tiles = (count + args.tile_rows - 1) / args.tile_rows;
    int total;
    const int at = next + scan(tiles, sums, total);
    for (int t = 0; t < tiles; ++t) {
      args.tiles[at + t] = {expert, first + t * args.tile_rows,
                            min(args.tile_rows, count - t * args.tile_rows), 0};
    }
    next += total;
  }
  if (threadIdx.x == 0) *args.tile_count = next;
}

// A block per row; inputs are multiples of eight.
__global__ void __launch_bounds__(kMixThreads) mix_kernel(const MoeMix args) {
  pdl_trigger();
  pdl_wait();
  const int row = blockIdx.x;
  if (row >= active_rows(args.rows, args.row_count)) return;
  const int64_t assignment = static_cast<int64_t>(row) * args.chosen;
  const float factor = args.shared_y ? sigmoid(args.shared_scale[row]) : 0.0f;
  for (int k = threadIdx.x * 8; k < args.inputs; k += kMixThreads * 8) {
    float sums[8] = {};
#pragma unroll 4
    for (int j = 0; j < args.chosen; ++j) {
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
      widen_bf16(*reinterpret_cast<const uint4*>(args.shared_y + at), shared);
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[i] = fmaf(factor, shared[i], sums[i]);
    }
    *reinterpret_cast<uint4*>(args.y + at) = pack_bf16(sums);
  }
}

}  // namespace

void launch_moe_sort(Stream& stream, const MoeSort& sort) {
  launch(stream, {dim3(static_cast<unsigned>(sort.experts)), dim3(kSortThreads)}, sort_kernel,
         sort);
  launch(stream, {dim3(1), dim3(kSortThreads)}, tile_kernel, sort);
}

void launch_moe_mix(Stream& stream, const MoeMix& mix) {
  launch(stream, {dim3(static_cast<unsigned>(mix.rows)), dim3(kMixThreads)}, mix_kernel, mix);
}

}  // namespace frt::cuda
