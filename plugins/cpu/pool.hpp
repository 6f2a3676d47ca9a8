// SPDX-License-Identifier: Apache-2.0
// pool.hpp - the worker threads of one CPU device.
//
// `run(tasks, function)` calls function(task, worker) exactly once for every task in [0, tasks)
// and returns when all calls are done. The calling thread takes part as worker 0. Tasks are handed
// out dynamically, so a kernel must compute the same value for a task whichever worker runs it:
// partition OUTPUTS, never a reduction. That keeps results independent of the number of threads.
//
// One stream at a time owns the workers. A stream that finds them taken runs its tasks alone, on
// its own thread: slower, never blocked behind another stream's node.
//
// Nothing here allocates after construction; a call with one task, or on a pool of one worker,
// costs a function call.
#pragma once

#include <cstdint>
#include <memory>

namespace frt::cpu {

class Pool {
 public:
  // `threads`: workers including the calling thread, >= 1.  [setup]
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The number of workers; worker indices are in [0, workers()).  [any]
  int workers() const noexcept;

  // See above. `function` must not throw.  [hot]
  template <class Function>
  void run(int64_t tasks, Function&& function) noexcept {
    run_tasks(
        tasks,
        [](void* user, int64_t task, int worker) { (*static_cast<Function*>(user))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&function)));
  }

 private:
  using TaskFunction = void (*)(void* user, int64_t task, int worker);
  void run_tasks(int64_t tasks, TaskFunction function, void* user) noexcept;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace frt::cpu
