// SPDX-License-Identifier: Apache-2.0
// acme.leaky_sum/1: a sum over the rows of a sequence that forgets. Of sequence b with slot s,
// for its rows q in order:
//   state[s, i] = decay[i] * state[s, i] + x[b * rows + q, i];   y[b * rows + q, i] = state[s, i]
// in f32, product and sum rounded each, so that every device gives the same bits. Rows beyond the
// length of a sequence are left as they are.
#pragma once

#include <frt/ops/sequences.h>

#include <cstdint>

namespace acme {

inline constexpr const char* kLeakySum = "acme.leaky_sum/1";

struct LeakySumArgs {
  uint32_t struct_size;
  int32_t width;
  frt_sequences sequences;
  const float* decay;   // (width)
  const float* x;       // (count * rows, width)
  void* state;          // slot s at state + s * slot_stride: (width) f32
  int64_t slot_stride;  // bytes
  float* y;             // (count * rows, width)
};

// Submits to a cudaStream_t; what CUDA has against it, or NULL. In leaky_sum.cu.
const char* leaky_sum_cuda(const LeakySumArgs& args, void* stream) noexcept;

}  // namespace acme
