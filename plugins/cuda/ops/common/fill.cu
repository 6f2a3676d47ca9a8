// SPDX-License-Identifier: Apache-2.0
// frt.fill_uniform/1: reproducible values, a function of the seed and the index alone.
//
// A thread makes eight values and writes them in accesses of at most 16 bytes; where y is not
// aligned to that, two values at a time (one byte of f4_e2m1), one by one. No operation may be
// contracted with another: the bits are those of every other backend.
#include <frt/ops/checks/elementwise.hpp>

#include <algorithm>

#include "../registry.hpp"
#include "convert_values.cuh"
#include "launch.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ uint64_t splitmix64(uint64_t x) {
  uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

__device__ __forceinline__ float value_at(const frt_fill_uniform_args& args, float span,
                                          uint64_t i) {
  const auto u = static_cast<float>(static_cast<uint32_t>(splitmix64(args.seed + i) >> 40));
  return __fadd_rn(args.low, __fmul_rn(span, __fmul_rn(u, 0x1p-24f)));
}

// N values per thread: 8, or 2 where y is not aligned.
template <int N>
__global__ void __launch_bounds__(kThreads) fill_kernel(const frt_fill_uniform_args args) {
  pdl_trigger();
  pdl_wait();
  const float span = __fsub_rn(args.high, args.low);
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * kThreads * N;
  for (uint64_t first = (static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
       first < args.count; first += step) {
    float v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = value_at(args, span, first + i);
    const int valid = static_cast<int>(min(static_cast<uint64_t>(N), args.count - first));
    if (args.dtype == FRT_DTYPE_F4_E2M1) {
      auto* bytes = static_cast<uint8_t*>(args.y) + first / 2;
#pragma unroll
      for (int i = 0; i < N; i += 2) {
        if (i >= valid) break;
        bytes[i / 2] = static_cast<uint8_t>(e2m1_bits(v[i]) | e2m1_bits(v[i + 1]) << 4);
      }
    } else if (N == 8 && valid == N) {
      if constexpr (N == 8) store_values(args.dtype, args.y, static_cast<int64_t>(first), v);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (i >= valid) break;
        const float one[1] = {v[i]};
        store_values(args.dtype, args.y, static_cast<int64_t>(first) + i, one);
      }
    }
  }
}

void fill_uniform(Stream& stream, const frt_fill_uniform_args& args) {
  check_fill_uniform(Checks(FRT_OP_FILL_UNIFORM), args);
  if (args.count == 0) return;
  const bool vector = reinterpret_cast<uintptr_t>(args.y) % 16 == 0;
  const uint64_t per_block = static_cast<uint64_t>(kThreads) * (vector ? 8 : 2);
  const uint64_t blocks =
      std::min<uint64_t>((args.count - 1) / per_block + 1,
                         static_cast<uint64_t>(stream.device().properties().multiprocessors) * 32);
  launch(stream, {dim3(static_cast<unsigned>(blocks)), kThreads},
         vector ? fill_kernel<8> : fill_kernel<2>, args);
}

}  // namespace

void register_fill(KernelList& list) {
  list.add<frt_fill_uniform_args>(
      FRT_OP_FILL_UNIFORM,
      {0, kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F16) | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3) |
              FRT_DTYPE_BIT(FRT_DTYPE_F4_E2M1)},
      {}, fill_uniform);
}

}  // namespace frt::cuda
