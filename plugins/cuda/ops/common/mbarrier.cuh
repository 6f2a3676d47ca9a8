// SPDX-License-Identifier: Apache-2.0
// mbarrier.cuh - barriers in shared memory that count arrivals and bytes, and the bulk copies that
// complete them (sm_90; before, these are empty and never reached).
//
// A barrier is one uint64_t. Its phase ends when as many have arrived as barrier_init() said and
// all bytes that were expected are there; barrier_wait() takes the parity of the phase to wait for,
// 0 first. Who initialises it makes that known to the others, and to copies, by
// `fence.mbarrier_init` and a barrier of the block or the cluster.
#pragma once

#include "arch.cuh"
#include "shared_address.cuh"

namespace frt::cuda {

__device__ __forceinline__ void barrier_init(uint64_t* barrier, int count) {
#if FRT_ARCH_CLUSTERS
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(count));
#endif
}
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
#if FRT_ARCH_CLUSTERS
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}
// Arrives and adds to the bytes that the phase waits for.
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, int bytes) {
#if FRT_ARCH_CLUSTERS
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
#if FRT_ARCH_CLUSTERS
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#endif
}

// `bytes`, a multiple of 16, from memory to the shared address `target`; both aligned to 16.
__device__ __forceinline__ void copy_bulk(uint32_t target, const void* source, int bytes,
                                          uint64_t* barrier) {
#if FRT_ARCH_CLUSTERS
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(target),
      "l"(source), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}

}  // namespace frt::cuda
