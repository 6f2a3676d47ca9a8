// SPDX-License-Identifier: Apache-2.0
// frt.convert/1: rows from one float type to another, and the strided copy of rows.
//
// Floor: the bytes read and written over the memory bandwidth. Eight values per thread in 16-byte
// accesses where both sides are aligned, one value otherwise. The types are arguments of one
// kernel: the branches on them are the same for every thread and cost nothing beside the memory.
#include <frt/ops/checks/elementwise.hpp>

#include <algorithm>

#include "../registry.hpp"
#include "convert_values.cuh"
#include "launch.cuh"
#include "rows_copy.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;

template <int N>
__global__ void __launch_bounds__(kThreads) convert_kernel(const frt_convert_args args) {
  pdl_trigger();
  pdl_wait();
  const int rows = active_rows(args.rows, args.row_count);
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (column >= args.width) return;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    float v[N];
    load_values(args.x_dtype, args.x, row * args.x_stride + column, v);
    if (args.factor != 0) {
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] *= args.factor;
    }
    store_values(args.y_dtype, args.y, row * args.y_stride + column, v);
  }
}

__global__ void __launch_bounds__(kThreads) copy_kernel(const frt_convert_args args) {
  pdl_trigger();
  pdl_wait();
  const int rows = active_rows(args.rows, args.row_count);
  const int64_t size = bytes_of(args.x_dtype);
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    copy_part(static_cast<std::byte*>(args.y) + row * args.y_stride * size,
              static_cast<const std::byte*>(args.x) + row * args.x_stride * size,
              args.width * size);
  }
}

void convert(Stream& stream, const frt_convert_args& args) {
  check_convert(Checks(FRT_OP_CONVERT), args);
  if (args.rows == 0) return;
  const auto row_blocks = static_cast<unsigned>(std::min(args.rows, 65535));
  if (args.x_dtype == args.y_dtype && args.factor == 0) {
    const int64_t bytes = static_cast<int64_t>(args.width) * dtype_bits(args.x_dtype) / 8;
    launch(stream, {copy_blocks(bytes, row_blocks), kThreads}, copy_kernel, args);
    return;
  }
  const bool vector = args.width % 8 == 0 && vector_rows(args.x, args.x_stride) &&
                      vector_rows(args.y, args.y_stride);
  const int64_t per_block = kThreads * (vector ? 8 : 1);
  const dim3 blocks(static_cast<unsigned>(ceil_div(args.width, per_block)), row_blocks);
  launch(stream, {blocks, kThreads}, vector ? convert_kernel<8> : convert_kernel<1>, args);
}

}  // namespace

void register_convert(KernelList& list) {
  list.add<frt_convert_args>(
      FRT_OP_CONVERT, kFloatTypes | FRT_DTYPE_BIT(FRT_DTYPE_F16) | FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3),
      {}, convert);
}

}  // namespace frt::cuda
