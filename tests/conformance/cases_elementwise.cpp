// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/elementwise.h and frt/ops/checksum.h.
#include <frt/ops/checksum.h>
#include <frt/ops/elementwise.h>

#include "check.hpp"

namespace frt::conformance {
namespace {

void binary(Case& c, const char* name, frt_dtype dtype, int32_t rows, int32_t width) {
  const int64_t a_stride = width + 3, b_stride = width, y_stride = width + 1;
  Tensor& a = c.normal("a", dtype, rows * a_stride);
  Tensor& b = c.normal("b", dtype, rows * b_stride);
  Tensor& y = c.output("y", dtype, rows * y_stride);
  c.run<frt_binary_args>(name, dtype, 0, [&](frt_binary_args& args, const At& at) {
    args.dtype = dtype;
    args.rows = rows;
    args.width = width;
    args.a = at(a);
    args.a_stride = a_stride;
    args.b = at(b);
    args.b_stride = b_stride;
    args.y = at(y);
    args.y_stride = y_stride;
  });
  c.compare(y, tolerance_of(dtype));
}

}  // namespace

void add_elementwise_cases(Suite& suite) {
  for (const char* name : {FRT_OP_SILU_MUL, FRT_OP_SIGMOID_MUL, FRT_OP_ADD}) {
    for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      for (const auto& [rows, width] : {std::pair{1, 1}, {7, 33}, {3, 4096}, {130, 1000}}) {
        suite.add(
            std::string(name) + " " + dtype_name(dtype) + " " + std::to_string(rows) + "x" +
                std::to_string(width),
            [=, rows = rows, width = width](Case& c) { binary(c, name, dtype, rows, width); });
      }
    }
  }
}

}  // namespace frt::conformance
