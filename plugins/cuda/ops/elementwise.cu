// SPDX-License-Identifier: Apache-2.0
// Two rows to one: frt.silu_mul/1, frt.sigmoid_mul/1, frt.add/1.
//
// Floor: two reads and a write over the memory bandwidth; at decode (1 x 17,408) the launch. Eight
// values per thread in 16-byte accesses where everything is aligned, one value otherwise; blocks
// are 2,048 columns wide and walk down the rows, at most kWaves of them per processor.
#include <frt/ops/elementwise.h>

#include <algorithm>
#include <frt/checks.hpp>

#include "convert_values.cuh"
#include "launch.cuh"
#include "registry.hpp"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWaves = 16;

enum class Binary { kSiluMul, kSigmoidMul, kAdd };

__device__ __forceinline__ float apply(Binary operation, float a, float b) {
  switch (operation) {
    case Binary::kSiluMul:
      return silu(a) * b;
    case Binary::kSigmoidMul:
      return a * sigmoid(b);
    default:
      return a + b;
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    binary_kernel(const frt_binary_args args, Binary operation) {
  pdl_trigger();
  pdl_wait();
  const int rows = active_rows(args.rows, args.row_count);
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (column >= args.width) return;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    float a[N], b[N];
    load_typed(static_cast<const T*>(args.a) + row * args.a_stride + column, a);
    load_typed(static_cast<const T*>(args.b) + row * args.b_stride + column, b);
#pragma unroll
    for (int i = 0; i < N; ++i) a[i] = apply(operation, a[i], b[i]);
    store_typed(static_cast<T*>(args.y) + row * args.y_stride + column, a);
  }
}

template <Binary kOperation>
void binary(Stream& stream, const frt_binary_args& args) {
  const Checks check(kOperation == Binary::kSiluMul      ? FRT_OP_SILU_MUL
                     : kOperation == Binary::kSigmoidMul ? FRT_OP_SIGMOID_MUL
                                                         : FRT_OP_ADD);
  check.dtype("dtype", args.dtype);
  check.at_least("rows", args.rows, 0);
  check.positive("width", args.width);
  check.pointer("a", args.a);
  check.pointer("b", args.b);
  check.pointer("y", args.y);
  check.at_least("a_stride", args.a_stride, args.width);
  check.at_least("b_stride", args.b_stride, args.width);
  check.at_least("y_stride", args.y_stride, args.width);
  if (args.rows == 0) return;
  const bool vector = args.width % 8 == 0 && vector_rows(args.a, args.a_stride) &&
                      vector_rows(args.b, args.b_stride) && vector_rows(args.y, args.y_stride);
  const int64_t columns = ceil_div(args.width, kThreads * (vector ? 8 : 1));
  const int64_t blocks =
      static_cast<int64_t>(stream.device().properties().multiprocessors) * kWaves;
  const int64_t row_blocks =
      std::min<int64_t>({args.rows, std::max<int64_t>(1, blocks / columns), 65535});
  const Grid grid{dim3(static_cast<unsigned>(columns), static_cast<unsigned>(row_blocks)),
                  kThreads};
  if (args.dtype == FRT_DTYPE_F32) {
    launch(stream, grid, vector ? binary_kernel<float, 8> : binary_kernel<float, 1>, args,
           kOperation);
  } else {
    launch(stream, grid, vector ? binary_kernel<bf16, 8> : binary_kernel<bf16, 1>, args,
           kOperation);
  }
}

}  // namespace

void register_elementwise(KernelList& list) {
  list.add<frt_binary_args>(FRT_OP_SILU_MUL, kFloatTypes, 0, binary<Binary::kSiluMul>);
  list.add<frt_binary_args>(FRT_OP_SIGMOID_MUL, kFloatTypes, 0, binary<Binary::kSigmoidMul>);
  list.add<frt_binary_args>(FRT_OP_ADD, kFloatTypes, 0, binary<Binary::kAdd>);
}

}  // namespace frt::cuda
