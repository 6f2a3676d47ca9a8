// SPDX-License-Identifier: Apache-2.0
// The product of encoders, policies and small models: bias and activation, gate, addend and
// residual around one matrix.
#include "operators.hpp"

#include <frt/ops/dense.h>

#include <cmath>
#include <vector>

namespace simple {
namespace {

float activate(uint32_t activation, float z) {
  if (activation == FRT_ACTIVATION_SILU) return silu(z);
  if (activation == FRT_ACTIVATION_NONE) return z;
  return 0.5f * z * (1 + std::tanh(0.7978845608f * (z + 0.044715f * z * z * z)));
}

// The gates of row `row`: the third vector of its modulation.
const float* gates_of(const frt_modulation& gate, int32_t row, int32_t width) {
  const bool clean = gate.clean_rows && row % gate.period < *gate.clean_rows;
  return (clean ? gate.clean : gate.rows) + 2 * static_cast<int64_t>(width);
}

struct Dense {
  using Args = frt_dense_args;
  static constexpr const char* kName = FRT_OP_DENSE;
  static constexpr Formats kWeights = kPlain;
  static void check(const frt::Checks& check, const Args& args) {
    frt::check_dense(check, args, kPlain);
    only_f32(check, "x_dtype", args.x_dtype);
    only_f32(check, "y_dtype", args.y_dtype);
  }
  static void run(const Args& args) {
    const int32_t outputs = args.weight.rows;
    std::vector<float> storage;
    for (int32_t output = 0; output < outputs; ++output) {
      const float* weight = weight_row(args.weight, output, storage);
      for (int32_t r = 0; r < rows_to_run(args.rows, args.row_count); ++r) {
        const float* x = static_cast<const float*>(args.x) + r * args.x_stride;
        float z = args.bias ? args.bias[output] : 0;
        for (int32_t i = 0; i < args.weight.cols; ++i) z += x[i] * weight[i];
        z = activate(args.activation, z);
        if (args.gate.rows) z *= gates_of(args.gate, r, outputs)[output];
        if (args.addend) {
          z += args.addend[static_cast<int64_t>(r % args.addend_rows) * outputs + output];
        }
        float& y = static_cast<float*>(args.y)[r * args.y_stride + output];
        y = args.accumulate ? y + z : z;
      }
    }
  }
};

}  // namespace

void add_dense_operators(Kernels& kernels) {
  kernels.add<Dense>();
}

}  // namespace simple
