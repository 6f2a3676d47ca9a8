// SPDX-License-Identifier: Apache-2.0
// One 64-bit word, the cursor, holds the number of the job (high half) and how many of its tasks
// nobody has taken yet (low half). A worker takes a task by decrementing the cursor with a
// compare-exchange; that succeeds only while the job it read is still the current one, so a worker
// that slept through a job can never run a task of the next one with the old function. Invariants:
//
//  - The job's fields are written only by the owner, only while the cursor shows no tasks left and
//    every task of the previous job is finished. A worker reads them before its compare-exchange;
//    if that succeeds, they were those of the job.
//  - While a taken task is not yet counted in `finished_`, the owner waits, so the job cannot
//    change under a worker that runs one of its tasks.
//  - The owner waits for taken tasks, never for workers: one that is asleep or has lost its core
//    costs nothing.
//
// Idle workers watch the cursor for a while, because the next node of an executable follows within
// microseconds, then sleep. The owner pays a system call only if somebody sleeps (the same
// agreement as in counter.hpp).
#include "pool.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "counter.hpp"
#include "system.hpp"

namespace frt::cpu {
namespace {

// Tasks of one job; a larger run is cut into several jobs.
constexpr int64_t kMaxTasks = INT32_MAX;

constexpr uint32_t tasks_left(uint64_t cursor) {
  return static_cast<uint32_t>(cursor);
}

}  // namespace

struct Pool::Impl {
  explicit Impl(int count) : workers(count), spin(idle_spin(count)) {
    threads.reserve(static_cast<std::size_t>(count - 1));
    try {
      for (int worker = 1; worker < count; ++worker) {
        threads.emplace_back([this, worker] { serve(worker); });
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Impl() { stop(); }

  void stop() noexcept {
    stopping.store(true, std::memory_order_seq_cst);
    signal.fetch_add(1, std::memory_order_seq_cst);
    signal.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  // The life of worker threads.
  void serve(int worker) noexcept {
    name_thread("frt-cpu-w" + std::to_string(worker));
    const auto called = [this] {
      return tasks_left(cursor.load(std::memory_order_seq_cst)) > 0 ||
             stopping.load(std::memory_order_seq_cst);
    };
    while (!stopping.load(std::memory_order_relaxed)) {
      if (!spin_until(spin, called)) {
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        for (;;) {
          const uint32_t seen = signal.load(std::memory_order_seq_cst);
          if (called()) break;
          signal.wait(seen, std::memory_order_seq_cst);
        }
        sleepers.fetch_sub(1, std::memory_order_relaxed);
      }
      if (const uint64_t ran = take_tasks(worker); ran > 0) finished.add(ran);
    }
  }

  // Runs tasks of the current job until none is left to take; how many it ran.
  uint64_t take_tasks(int worker) noexcept {
    uint64_t ran = 0;
    uint64_t seen = cursor.load(std::memory_order_acquire);
    while (tasks_left(seen) > 0) {
      const TaskFunction task_function = function.load(std::memory_order_relaxed);
      void* const task_user = user.load(std::memory_order_relaxed);
      const int64_t end = task_end.load(std::memory_order_relaxed);
      if (!cursor.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        continue;
      }
      task_function(task_user, end - tasks_left(seen), worker);
      ++ran;
      seen = cursor.load(std::memory_order_acquire);
    }
    return ran;
  }

  // Tasks [begin, end) as one job, by the thread that owns the workers.
  void run_job(int64_t begin, int64_t end, TaskFunction task_function, void* task_user) noexcept {
    const auto tasks = static_cast<uint32_t>(end - begin);
    const uint64_t finished_before = finished.value();
    function.store(task_function, std::memory_order_relaxed);
    user.store(task_user, std::memory_order_relaxed);
    task_end.store(end, std::memory_order_relaxed);
    job = job + 1;
    cursor.store(uint64_t{job} << 32 | tasks, std::memory_order_seq_cst);
    wake(tasks - 1);
    const uint64_t own = take_tasks(0);
    finished.wait(finished_before + (tasks - own), spin);
  }

  void wake(uint32_t useful) noexcept {
    const uint32_t asleep = sleepers.load(std::memory_order_seq_cst);
    if (asleep == 0) return;
    signal.fetch_add(1, std::memory_order_seq_cst);
    if (useful >= asleep) {
      signal.notify_all();
    } else {
      for (uint32_t i = 0; i < useful; ++i) signal.notify_one();
    }
  }

  // Longer than the pause between two nodes; short where the workers outnumber the hardware and
  // watching takes the core from somebody who works.
  static SpinBudget idle_spin(int count) {
    return count <= available_cores().threads ? std::chrono::microseconds(50)
                                              : std::chrono::microseconds(2);
  }

  const int workers;
  const SpinBudget spin;

  alignas(64) std::atomic<uint64_t> cursor{0};
  alignas(64) std::atomic<TaskFunction> function{nullptr};
  std::atomic<void*> user{nullptr};
  std::atomic<int64_t> task_end{0};
  uint32_t job = 0;  // of the owner
  Counter finished;  // tasks run by the worker threads, since ever
  alignas(64) std::atomic<bool> owned{false};
  alignas(64) std::atomic<uint32_t> sleepers{0};
  std::atomic<uint32_t> signal{0};
  std::atomic<bool> stopping{false};

  std::vector<std::thread> threads;
};

Pool::Pool(int threads) : impl_(std::make_unique<Impl>(std::max(1, threads))) {}

Pool::~Pool() = default;

int Pool::workers() const noexcept {
  return impl_->workers;
}

void Pool::run_tasks(int64_t tasks, TaskFunction function, void* user) noexcept {
  Impl& impl = *impl_;
  if (tasks <= 1 || impl.workers == 1 || impl.owned.exchange(true, std::memory_order_acquire)) {
    for (int64_t task = 0; task < tasks; ++task) function(user, task, 0);
    return;
  }
  for (int64_t begin = 0; begin < tasks; begin += kMaxTasks) {
    impl.run_job(begin, std::min(tasks, begin + kMaxTasks), function, user);
  }
  impl.owned.store(false, std::memory_order_release);
}

}  // namespace frt::cpu
