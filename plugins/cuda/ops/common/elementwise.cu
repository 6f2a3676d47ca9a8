// SPDX-License-Identifier: Apache-2.0
// Two rows to one: frt.silu_mul/1, frt.gelu_mul/1, frt.sigmoid_mul/1, frt.add/1.
//
// Floor: two reads and a write over the memory bandwidth; at decode (1 x 17,408) the launch. Eight
// values per thread in 16-byte accesses where everything is aligned, one value otherwise. Blocks
// are 2,048 columns wide and one row high: many short blocks keep more loads under way than few
// that walk down the rows.
#include <frt/ops/checks/elementwise.hpp>

#include <algorithm>

#include "../registry.hpp"
#include "convert_values.cuh"
#include "launch.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;

enum class Binary { kSiluMul, kGeluMul, kSigmoidMul, kAdd };

// Division by approximation: exact division would take as long as the memory.
__device__ __forceinline__ float gate(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

__device__ __forceinline__ float apply(Binary operation, float a, float b) {
  switch (operation) {
    case Binary::kSiluMul:
      return a * gate(a) * b;
    case Binary::kGeluMul:
      return gelu(a) * b;
    case Binary::kSigmoidMul:
      return a * gate(b);
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
  check_binary(Checks(kOperation == Binary::kSiluMul      ? FRT_OP_SILU_MUL
                      : kOperation == Binary::kGeluMul    ? FRT_OP_GELU_MUL
                      : kOperation == Binary::kSigmoidMul ? FRT_OP_SIGMOID_MUL
                                                          : FRT_OP_ADD),
               args);
  if (args.rows == 0) return;
  const bool vector = args.width % 8 == 0 && vector_rows(args.a, args.a_stride) &&
                      vector_rows(args.b, args.b_stride) && vector_rows(args.y, args.y_stride);
  const int64_t columns = ceil_div(args.width, kThreads * (vector ? 8 : 1));
  const int row_blocks = std::min(args.rows, 65535);
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
  list.add<frt_binary_args>(FRT_OP_SILU_MUL, kFloatTypes, {}, binary<Binary::kSiluMul>);
  list.add<frt_binary_args>(FRT_OP_GELU_MUL, kFloatTypes, {}, binary<Binary::kGeluMul>);
  list.add<frt_binary_args>(FRT_OP_SIGMOID_MUL, kFloatTypes, {}, binary<Binary::kSigmoidMul>);
  list.add<frt_binary_args>(FRT_OP_ADD, kFloatTypes, {}, binary<Binary::kAdd>);
}

}  // namespace frt::cuda
