// SPDX-License-Identifier: Apache-2.0
// shared_address.cuh - a pointer to shared memory as the instructions take it that know no other.
#pragma once

#include <cstdint>

namespace frt::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace frt::cuda
