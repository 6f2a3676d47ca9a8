// SPDX-License-Identifier: Apache-2.0
// allocator.hpp - how much of what a server frees its allocator keeps: with glibc's defaults each
// thread's arena keeps the most that was ever allocated of it, in pieces, and a server's memory
// grows for hours though what it uses does not (hosts/http/notes/2026-11-28-memory.md). With
// another allocator than glibc's nothing here does anything.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace frt::host {

// Two arenas instead of eight for each processor. Before any thread begins.  [setup]
void bound_allocator() noexcept;

// While an object lives, a thread of its own gives free pages back to the system once a minute.
// That holds an arena's lock for some milliseconds, under load for tens of them. An engine's step
// allocates nothing; a robot's request does, so there is none where a policy is served.
class AllocatorTrim {
 public:
  AllocatorTrim();   // [setup]
  ~AllocatorTrim();  // waits for a trim under way
  AllocatorTrim(const AllocatorTrim&) = delete;
  AllocatorTrim& operator=(const AllocatorTrim&) = delete;

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace frt::host
