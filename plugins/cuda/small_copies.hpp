// SPDX-License-Identifier: Apache-2.0
// small_copies.hpp - a few small copies as one kernel (ops/common/small_copies.cu).
//
// Between two kernels a copy of CUDA's own costs 7 to 10 us on an H200, a batch of them as much:
// the work goes to another engine and back. What a step is told and what it answers is some bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace frt::cuda {

class Device;

// Between the device and pinned memory, which the device addresses as the host does.
struct SmallCopies {
  static constexpr uint32_t kMost = 8;
  static constexpr uint32_t kMostBytes = 4096;  // of each

  struct Range {
    void* target;
    const void* source;
    uint32_t bytes;
  };
  Range ranges[kMost];
  uint32_t count;
};

// Submits them; the ranges do not overlap, count > 0.  [hot]
using LaunchSmallCopies = cudaError_t (*)(cudaStream_t stream, const SmallCopies& copies);

// The runtime part holds no device code: register_operators() gives it the kernel. Without one,
// CUDA copies small ranges, too.  [setup]
void set_small_copies(LaunchSmallCopies launch) noexcept;
// For register_operators(): gives it, and has it loaded now, since copies are hot.  [setup]
void register_small_copies(Device& device);

}  // namespace frt::cuda
