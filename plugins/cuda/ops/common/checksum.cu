// SPDX-License-Identifier: Apache-2.0
// frt.checksum/1: the exclusive or of all 64-bit words, and the probe of the read bandwidth.
//
// Floor: the bytes over the bandwidth (4.65 TB/s on an H200). What sets the pace is bytes in flight
// (bandwidth times latency: about 35 KB per SM): two blocks of 512 threads with eight
// 16-byte loads each keep 128 KB per SM under way. A block reads pieces of 64 KiB, one
// after the other across the grid; a second kernel joins the blocks' words. Exclusive or has no
// order, so the result is exact.
#include <frt/ops/checks/checksum.hpp>

#include <algorithm>

#include "../registry.hpp"
#include "launch.cuh"
#include "numbers.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 8;        // of 16 bytes, under way per thread
constexpr int kBlocksPerSm = 2;  // resident
constexpr uint64_t kPiece = static_cast<uint64_t>(kThreads) * kLoads;  // in 16-byte units

__device__ __forceinline__ uint64_t fold_block(uint64_t sum) {
  __shared__ uint64_t warps[32];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum ^= __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum ^= __shfl_xor_sync(~0u, sum, offset);
  }
  return sum;  // of thread 0
}

// x: `head` words, then `units` of 16 bytes, then `tail` words. partial: (grid)
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    checksum_blocks(const uint64_t* x, int head, uint64_t units, int tail, uint64_t* partial) {
  pdl_trigger();
  pdl_wait();
  const auto* middle = reinterpret_cast<const uint4*>(x + head);
  uint4 lanes[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) lanes[i] = make_uint4(0, 0, 0, 0);
  const auto join = [&](int i, uint4 v) {
    lanes[i].x ^= v.x;
    lanes[i].y ^= v.y;
    lanes[i].z ^= v.z;
    lanes[i].w ^= v.w;
  };
  uint64_t piece = static_cast<uint64_t>(blockIdx.x) * kPiece;
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * kPiece;
  for (; piece + kPiece <= units; piece += step) {
    uint4 loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      loaded[i] = load_stream(middle + piece + static_cast<uint64_t>(i) * kThreads + threadIdx.x);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) join(i, loaded[i]);
  }
  for (uint64_t i = piece + threadIdx.x; i < min(piece + kPiece, units); i += kThreads) {
    join(0, load_stream(middle + i));
  }
  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    sum ^= (static_cast<uint64_t>(lanes[i].y ^ lanes[i].w) << 32) | (lanes[i].x ^ lanes[i].z);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if (head) sum ^= x[0];
    if (tail) sum ^= x[head + 2 * units];
  }
  sum = fold_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    checksum_join(const uint64_t* partial, int count, uint64_t* y) {
  pdl_trigger();
  pdl_wait();
  uint64_t sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum ^= partial[i];
  sum = fold_block(sum);
  if (threadIdx.x == 0) *y = sum;
}

void checksum(Stream& stream, const frt_checksum_args& args) {
  check_checksum(Checks(FRT_OP_CHECKSUM), args);
  const auto* x = static_cast<const uint64_t*>(args.x);
  const uint64_t words = args.bytes / 8;
  const uint64_t head = words > 0 && reinterpret_cast<uintptr_t>(x) % 16 != 0 ? 1 : 0;
  const uint64_t units = (words - head) / 2;
  const auto tail = static_cast<int>((words - head) % 2);
  const auto blocks = static_cast<int>(std::min<uint64_t>(
      units / kPiece + 1,
      static_cast<uint64_t>(stream.device().properties().multiprocessors) * kBlocksPerSm));
  auto* partial =
      static_cast<uint64_t*>(stream.scratch(static_cast<std::size_t>(blocks) * sizeof(uint64_t)));
  launch(stream, {dim3(static_cast<unsigned>(blocks)), kThreads}, checksum_blocks, x,
         static_cast<int>(head), units, tail, partial);
  launch(stream, {dim3(1), kThreads}, checksum_join, partial, blocks, args.y);
}

}  // namespace

void register_checksum(KernelList& list) {
  list.add<frt_checksum_args>(FRT_OP_CHECKSUM, 0, {}, checksum);
}

}  // namespace frt::cuda
