// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/allocator.hpp"

#include <chrono>

#include <pthread.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace frt::host {
namespace {

constexpr std::chrono::seconds kBetweenTrims{60};

}  // namespace

void bound_allocator() noexcept {
#ifdef __GLIBC__
  constexpr int kArenas = 2;
  mallopt(M_ARENA_MAX, kArenas);
#endif
}

AllocatorTrim::AllocatorTrim() : thread_([this] { run(); }) {}

AllocatorTrim::~AllocatorTrim() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void AllocatorTrim::run() {
#ifdef __linux__
  pthread_setname_np(pthread_self(), "frt-trim");
#endif
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kBetweenTrims, [this] { return end_; })) {
    lock.unlock();
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    lock.lock();
  }
}

}  // namespace frt::host
