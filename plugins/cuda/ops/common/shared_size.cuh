// SPDX-License-Identifier: Apache-2.0
// shared_size.cuh - sizes of shared memory that a kernel is compiled with. Host code that asks this
// is compiled for each architecture (FRT_CUDA_SIZED_SOURCES in sources.cmake).
#pragma once

namespace frt::cuda {

// Whether an SM of the code's architecture has 160 KB of shared memory or more, rather than 100.
inline constexpr bool kLargeSharedMemory = FRT_CUDA_ARCH >= 90 && FRT_CUDA_ARCH < 120;

}  // namespace frt::cuda
