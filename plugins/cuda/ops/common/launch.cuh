// SPDX-License-Identifier: Apache-2.0
// launch.cuh - launching device code, with programmatic dependent launch (PDL) as the rule.
//
// With PDL a kernel may start while the one before it still runs; its launch latency and whatever
// it does before pdl_wait() are hidden. Rules for EVERY kernel launched through launch():
//   - before it reads or writes anything another kernel wrote or reads, every thread calls
//     pdl_wait(). Only constants (weights, norm factors, tables) may be read earlier.
//   - it calls pdl_trigger() early, normally first thing: that only allows the next kernel to be
//     scheduled, it publishes no data (the next one's pdl_wait() waits for our end).
// A pair of kernels of one operator may depart from this together: the first triggers only after
// its own pdl_wait(), so what was written before it is there for the second without a wait
// (attention/split.cu, moe/decode_experts.cu). Each says so where it triggers.
// GEMVs always trigger behind their wait, for whatever kernel comes next: that one may
// read states, windows, caches and sequences before its wait, but no outputs of operators
// (Stream::early_reads_safe()). It reads past the first cache, and waits before it ends.
// Below sm_90 both are empty, and launch() asks for no overlap.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "../../device.hpp"
#include "../../stream.hpp"
#include "arch.cuh"

namespace frt::cuda {

__device__ __forceinline__ void pdl_wait() {
#if FRT_ARCH_CLUSTERS
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void pdl_trigger() {
#if FRT_ARCH_CLUSTERS
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;          // blocks of a cluster, along x; more than 1: feature::kClusters
};

// A block gets 48 KB, what the kernel declares and what the launch adds taken together, unless the
// kernel is allowed more.
template <class... Parameters>
void raise_shared_limit(Device& device, void (*kernel)(Parameters...), std::size_t dynamic_bytes) {
  constexpr std::size_t kUnasked = 48 * 1024;
  const void* function = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes known{};
  device.check(cudaFuncGetAttributes(&known, function), "kernel launch: shared memory");
  if (known.sharedSizeBytes + dynamic_bytes <= kUnasked) return;
  device.check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(dynamic_bytes)),
               "kernel launch: shared memory");
}

// Submits kernel(args...). Throws frt::Error.  [driver]
template <class... Parameters, class... Arguments>
void launch(Stream& stream, const Grid& grid, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  Device& device = stream.device();
  if (grid.shared_bytes > 0) raise_shared_limit(device, kernel, grid.shared_bytes);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = grid.cluster;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream.native();
  config.attrs = attributes;
  config.numAttrs = !device.has(feature::kPdl) ? 0 : grid.cluster > 1 ? 2 : 1;
  device.check(
      cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...),
      "kernel launch");
}

inline constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace frt::cuda
