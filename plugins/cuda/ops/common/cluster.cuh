// SPDX-License-Identifier: Apache-2.0
// cluster.cuh - blocks of a cluster read each other's shared memory (sm_90 on; before, a block is
// alone and reads its own).
#pragma once

#include "arch.cuh"
#include "mma.cuh"

namespace frt::cuda {

// All threads of all blocks of the cluster; orders their accesses to shared memory.
__device__ __forceinline__ void cluster_barrier() {
#if FRT_ARCH_CLUSTERS
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// The shared memory of block `rank` of the cluster, at the place of `local` here. Loads of it are
// ordered by cluster_barrier() alone, so several can be under way.
__device__ __forceinline__ uint32_t rank_address(const void* local, int rank) {
  uint32_t address = shared_address(local);
#if FRT_ARCH_CLUSTERS
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(local)), "r"(rank));
#endif
  return address;
}

__device__ __forceinline__ float read_rank(const float* local, int rank) {
  float value = *local;
#if FRT_ARCH_CLUSTERS
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(rank_address(local, rank)));
#endif
  return value;
}
__device__ __forceinline__ float2 read_rank(const float2* local, int rank) {
  float2 value = *local;
#if FRT_ARCH_CLUSTERS
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(rank_address(local, rank)));
#endif
  return value;
}
__device__ __forceinline__ float4 read_rank(const float4* local, int rank) {
  float4 value = *local;
#if FRT_ARCH_CLUSTERS
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(rank_address(local, rank)));
#endif
  return value;
}

}  // namespace frt::cuda
