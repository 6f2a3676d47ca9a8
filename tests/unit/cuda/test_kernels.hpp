// SPDX-License-Identifier: Apache-2.0
// test_kernels.hpp - operators that exist only in these tests: they make delays, races and faults
// visible. register_operators() of test_kernels.cu stands where the backend has its families.
#pragma once

#include <frt/kernels.h>

#include <cstdint>

namespace frt::cuda {
class Stream;
}

namespace frt::cuda_test {

// value = value * 3 + add, by one thread that takes its time between reading and writing: two of
// them at once, or in another order, give another number.
inline constexpr const char* kStep = "test.step/1";
struct StepArgs {
  uint32_t struct_size = sizeof(StepArgs);
  uint32_t add = 0;
  uint32_t microseconds = 0;
  uint32_t reserved = 0;
  uint32_t* value = nullptr;  // device
};

// out[i] = value + i for i < count, by way of scratch memory, with a pause between writing it and
// reading it back.
inline constexpr const char* kThroughScratch = "test.through_scratch/1";
struct ThroughScratchArgs {
  uint32_t struct_size = sizeof(ThroughScratchArgs);
  uint32_t value = 0;
  uint32_t microseconds = 0;
  uint32_t count = 0;
  uint32_t* out = nullptr;  // [count] device
};

// Writes to an address that does not exist.
inline constexpr const char* kFault = "test.fault/1";
struct FaultArgs {
  uint32_t struct_size = sizeof(FaultArgs);
  uint32_t reserved = 0;
};

// Forks the capture to a second stream, as an operator must not. `join`: and joins it again.
inline constexpr const char* kFork = "test.fork/1";
struct ForkArgs {
  uint32_t struct_size = sizeof(ForkArgs);
  uint32_t join = 0;
  uint32_t* value = nullptr;  // device
};

// Sums 1 .. 6144 + dynamic_bytes / 4 by way of shared memory: 24 KB that the kernel declares and
// dynamic_bytes (whole words) that the launch adds.
inline constexpr const char* kShared = "test.shared/1";
struct SharedArgs {
  uint32_t struct_size = sizeof(SharedArgs);
  uint32_t dynamic_bytes = 0;
  uint32_t* value = nullptr;  // device
};

// A BF16 product y = x W^T of cuBLASLt: x (rows, inputs), W (outputs, inputs), y (rows, outputs)
// f32. `algorithm`: a place in the list of Blas::algorithms(), whose length is written to `count`;
// -1: the one that Blas chose.
inline constexpr const char* kBlas = "test.blas/1";
struct BlasArgs {
  uint32_t struct_size = sizeof(BlasArgs);
  int32_t algorithm = -1;
  int32_t rows = 0, outputs = 0, inputs = 0;
  int32_t* count = nullptr;  // host
  const void* x = nullptr;   // device, as all below
  const void* weight = nullptr;
  float* y = nullptr;
  void* workspace = nullptr;  // 32 MiB
};

// The product of a GEMM with FP4 activations alone, emulated where the code has no instruction for
// it: x (rows, inputs) is rounded to `values`, `scales` and `row_scales`, from which y (rows,
// outputs) is computed. Rows are not padded but those of `scales`, to multiples of 16 bytes.
inline constexpr const char* kFp4 = "test.fp4/1";
struct Fp4Args {
  uint32_t struct_size = sizeof(Fp4Args);
  frt_dtype x_dtype = FRT_DTYPE_BF16;
  frt_dtype y_dtype = FRT_DTYPE_F32;
  int32_t rows = 0, inputs = 0, outputs = 0;
  float global_scale = 1;
  uint32_t accumulate = 0;
  const int32_t* row_count = nullptr;  // (1), or NULL
  const void* x = nullptr;
  const uint8_t* weight = nullptr;         // NVFP4 (outputs, inputs)
  const uint8_t* weight_scales = nullptr;  // (outputs, inputs / 16)
  uint8_t* values = nullptr;
  uint8_t* scales = nullptr;
  float* row_scales = nullptr;
  void* y = nullptr;
};

// Whether the product of 130 rows with one NVFP4 matrix of 128 inputs, of a mixture of experts,
// may round x to NVFP4 (ops/moe/grouped.cuh). `exact`: as the router's, which chooses the experts.
bool may_round_experts(bool exact);

// What test.blas/1 submits (blas_kernel.cpp).
void submit_blas(cuda::Stream& stream, const BlasArgs& args);

}  // namespace frt::cuda_test
