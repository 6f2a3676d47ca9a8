// SPDX-License-Identifier: Apache-2.0
// test.blas/1 of test_kernels.hpp, which has no kernel of its own.
#include "blas.hpp"
#include "stream.hpp"
#include "test_kernels.hpp"

namespace frt::cuda_test {

using namespace frt::cuda;

void submit_blas(Stream& stream, const BlasArgs& args) {
  Blas* library = Blas::find(stream.device());
  *args.count = 0;
  if (!library) return;
  const BlasShape shape{BlasTypes::kBf16, FRT_DTYPE_F32, false,       args.rows,
                        args.outputs,     args.inputs,   args.inputs, args.outputs};
  const BlasOperands operands{args.x, nullptr, args.weight, nullptr, args.y, args.workspace};
  const std::vector<cublasLtMatmulAlgo_t> all = library->algorithms(shape);
  *args.count = static_cast<int32_t>(all.size());
  if (args.algorithm < 0) {
    library->multiply(stream, shape, operands);
  } else {
    library->multiply(stream, shape, operands, all.at(static_cast<std::size_t>(args.algorithm)));
  }
}

}  // namespace frt::cuda_test
