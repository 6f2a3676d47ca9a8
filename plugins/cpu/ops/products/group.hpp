// SPDX-License-Identifier: Apache-2.0
// group.hpp - several products of the same activations as one node, with the norm before them and
// the gate after them: the node behind frt/ops/linear.h and frt/ops/dense.h.
//
//   rows    residual += delta; x = norm(residual); the panels of x          one task per row
//   tiles   every (part, weight rows) tile of all parts in one task list     one task per tile
//
// How many rows there are is known when the node runs. Up to kGemvRows of them take the GEMV
// kernels; more take oneDNN, unless the numerics are "reference" or the machine has no AVX2: then
// the GEMV kernels walk over the rows.
#pragma once

#include <frt/ops/dense.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "../../device.hpp"
#include "../../node.hpp"
#include "../elementwise.hpp"
#include "weight.hpp"

namespace frt::cpu {

// What frt.dense/1 has after a product.
struct PartFinish {
  const float* bias = nullptr;  // (outputs)
  uint32_t activation = FRT_ACTIVATION_NONE;
  frt_modulation gate{};          // rows NULL: none
  const float* addend = nullptr;  // (addend_rows, outputs)
  int64_t addend_rows = 0;
};

// One weight and where its result goes.
struct GroupPart {
  Weight weight;
  frt_dtype y_dtype = FRT_DTYPE_F32;
  bool accumulate = false;
  void* y = nullptr;
  int64_t y_stride = 0;  // elements
  PartFinish finish{};
  float y_scale = 0;  // of y in f8_e4m3
};

// A checked group. All parts have the same number of columns.
struct Group {
  int32_t rows = 0;
  const int32_t* row_count = nullptr;
  frt_dtype x_dtype = FRT_DTYPE_F32;  // f32, bf16, f8_e4m3
  const void* x = nullptr;
  int64_t x_stride = 0;  // elements
  float x_scale = 0;     // of x in f8_e4m3

  // The norm before: writes x, (rows, columns) contiguous. None with residual NULL.
  frt_dtype residual_dtype = FRT_DTYPE_F32;
  void* residual = nullptr;
  const void* delta = nullptr;
  const float* norm_weight = nullptr;
  float epsilon = 0.0f;

  // Or the norm of rows that stay as they are: x = norm(norm_source). None with norm_source NULL.
  frt_norm norm{};
  frt_dtype norm_dtype = FRT_DTYPE_F32;  // of norm_source
  const void* norm_source = nullptr;     // (rows, columns) contiguous

  // The gate after: two parts of equal shape, y of the first = gate(first, second), each rounded
  // to y_dtype before, unless that is f8_e4m3; y of the second is not used.
  bool gated = false;
  Binary gate = Binary::kSiluMul;

  std::vector<GroupPart> parts;
};

// [setup]
std::unique_ptr<Node> make_group_node(Device& device, Group group);

}  // namespace frt::cpu
