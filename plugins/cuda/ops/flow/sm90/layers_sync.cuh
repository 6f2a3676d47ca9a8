// SPDX-License-Identifier: Apache-2.0
// layers_sync.cuh - how the blocks of the persistent kernel of an expert's layers wait for
// each other (sm_90a): the threads that compute, the grid.
//
// A block's kFlowThreads consumer threads compute; behind them are warps that only copy, and that
// run ahead of them. So no barrier here counts all threads of a block or a cluster. All warps that
// compute pass all of its barriers: tools that look for races count them by the warp.
//
// The grid's barrier is one word in memory, which every block increments as it arrives: the blocks
// run all at once (CoResidentLaunch). What arrives releases what the block's consumers wrote, to
// copies, too; who waits reads it past the first cache. The n-th barrier of a launch is passed when
// the word is n * blocks.
#pragma once

#include "../../common/arch.cuh"
#include "../../common/cluster.cuh"
#include "../../common/mbarrier.cuh"

namespace frt::cuda {

inline constexpr int kFlowThreads = 256;  // that compute, of a block
inline constexpr int kFlowCluster = 8;    // blocks of a cluster

// What a block is. `tid`: of the consumer threads.
struct FlowPlace {
  int cluster, clusters, rank, tid;
};

struct FlowSync {
  uint32_t* word;        // the grid's barrier
  uint32_t arrived = 0;  // barriers of the grid, so far
  uint32_t blocks;       // of the grid

  // All consumer threads of the block.
  __device__ __forceinline__ void block() const {
    asm volatile("bar.sync 1, %0;" ::"n"(kFlowThreads) : "memory");
  }

  // All consumer threads: what they wrote to memory is there for who waits for this barrier.
  __device__ __forceinline__ void arrive() {
#if FRT_ARCH_CLUSTERS
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    block();
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(word) : "memory");
    }
    ++arrived;
#endif
  }

  // One thread: until all blocks have arrived `count` times.
  __device__ __forceinline__ void wait_alone(uint32_t count) const {
#if FRT_ARCH_CLUSTERS
    uint32_t seen;
    do {
      asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
    } while (seen < count * blocks);
#endif
  }

  // What this thread has seen in memory, or has written, bulk copies find there, too.
  static __device__ __forceinline__ void show_to_copies() {
#if FRT_ARCH_CLUSTERS
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
  }

  // All consumer threads: until all blocks have arrived as often as this one.
  __device__ __forceinline__ void wait() const {
    if (threadIdx.x == 0) wait_alone(arrived);
    block();
  }
};

}  // namespace frt::cuda
