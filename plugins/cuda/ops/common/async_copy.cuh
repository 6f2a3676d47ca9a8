// SPDX-License-Identifier: Apache-2.0
// async_copy.cuh - asynchronous copies from global to shared memory by threads (cp.async). All of
// it exists on every architecture from sm_80 on. Copies of one thread form groups; a group ends
// with copies_commit(). Copies by the copy engine (TMA) are in mbarrier.cuh and the sm90 folders.
#pragma once

#include "shared_address.cuh"

namespace frt::cuda {

// 16 bytes, which do not pass through the first-level cache. Both addresses are aligned to 16.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// The first `bytes` of the 16, and zeros; `from` is an address all the same.
__device__ __forceinline__ void copy_async_part(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// All 16, or zeros where there is nothing; `from` is an address all the same.
__device__ __forceinline__ void copy_async_or_zero(uint32_t to, const void* from, bool there) {
  copy_async_part(to, from, there ? 16 : 0);
}
// 16 bytes; memory brings all 256 around them to L2.
__device__ __forceinline__ void copy_async_fetch_256(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
// 4, 8 or 16 bytes through the first-level cache.
template <int kBytes>
__device__ __forceinline__ void copy_async_cached(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes)
               : "memory");
}
template <int kBytes>
__device__ __forceinline__ void copy_async_cached_or_zero(uint32_t to, const void* from,
                                                          bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from),
               "r"(there ? kBytes : 0), "n"(kBytes)
               : "memory");
}

__device__ __forceinline__ void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `kPending` groups of this thread are under way.
template <int kPending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// Waits for all copies of this thread, committed or not.
__device__ __forceinline__ void copies_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace frt::cuda
