// SPDX-License-Identifier: Apache-2.0
// A few small copies as one kernel: a block each. Not an operator: Stream::copy() takes it.
#include "../../small_copies.hpp"

#include "../../device.hpp"

namespace frt::cuda {
namespace {

constexpr uint32_t kThreads = 128;

template <class Value>
__device__ void copy_range(const SmallCopies::Range& range) {
  const auto* source = static_cast<const Value*>(range.source);
  auto* target = static_cast<Value*>(range.target);
  for (uint32_t i = threadIdx.x; i < range.bytes / sizeof(Value); i += kThreads) {
    target[i] = source[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    copy_kernel(const __grid_constant__ SmallCopies copies) {
  const SmallCopies::Range& range = copies.ranges[blockIdx.x];
  const auto places = reinterpret_cast<uintptr_t>(range.target) |
                      reinterpret_cast<uintptr_t>(range.source) | range.bytes;
  if (places % sizeof(uint32_t) == 0) {
    copy_range<uint32_t>(range);
  } else {
    copy_range<uint8_t>(range);
  }
}

cudaError_t launch_small_copies(cudaStream_t stream, const SmallCopies& copies) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(copies.count);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, copy_kernel, copies);
}

}  // namespace

void register_small_copies(Device& device) {
  cudaFuncAttributes known{};
  device.check(cudaFuncGetAttributes(&known, copy_kernel), "loading the kernel of small copies");
  set_small_copies(launch_small_copies);
}

}  // namespace frt::cuda
