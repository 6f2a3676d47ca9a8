// SPDX-License-Identifier: Apache-2.0
// The worker threads: every task exactly once, for every number of workers, under contention.
#include "pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

using frt::cpu::Pool;

TEST_CASE("every task runs exactly once and all are finished when run returns") {
  for (const int workers : {1, 2, 3, 8}) {
    Pool pool(workers);
    CHECK(pool.workers() == workers);
    for (const int64_t tasks : {0, 1, 2, 3, 7, 64, 1000, 20000}) {
      std::vector<int> runs(static_cast<std::size_t>(tasks), 0);  // plain: a race would show
      std::atomic<bool> worker_in_range{true};
      pool.run(tasks, [&](int64_t task, int worker) {
        ++runs[static_cast<std::size_t>(task)];
        if (worker < 0 || worker >= workers) worker_in_range = false;
      });
      CHECK(worker_in_range);
      CHECK(std::count(runs.begin(), runs.end(), 1) == tasks);
    }
  }
}

TEST_CASE("a pool of fewer than one worker still has the calling thread") {
  Pool pool(0);
  CHECK(pool.workers() == 1);
  const auto caller = std::this_thread::get_id();
  pool.run(3, [&](int64_t, int worker) {
    CHECK(worker == 0);
    CHECK(std::this_thread::get_id() == caller);
  });
}

TEST_CASE("jobs follow each other without mixing their tasks") {
  Pool pool(4);
  constexpr int kJobs = 20000;
  std::vector<int64_t> sums(4 * 16, 0);
  int64_t expected = 0;
  int64_t total = 0;
  for (int job = 0; job < kJobs; ++job) {
    const int64_t tasks = 2 + job % 5;
    std::array<int64_t, 8> values{};
    pool.run(tasks, [&](int64_t task, int) {
      values[static_cast<std::size_t>(task)] = job * int64_t{10} + task;
    });
    for (int64_t task = 0; task < tasks; ++task) expected += job * int64_t{10} + task;
    total += std::accumulate(values.begin(), values.end(), int64_t{0});
  }
  CHECK(total == expected);
}

TEST_CASE("sleeping workers are woken and take part") {
  Pool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than they watch
    std::atomic<int> arrived{0};
    std::atomic<int> met{0};
    // Each task waits for the other one: without a second worker only the time limit ends it.
    pool.run(2, [&](int64_t, int) {
      arrived.fetch_add(1);
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (arrived.load() < 2 && std::chrono::steady_clock::now() < limit) {
        std::this_thread::yield();
      }
      if (arrived.load() == 2) met.fetch_add(1);
    });
    CHECK(met.load() == 2);
  }
}

TEST_CASE("a thread that finds the workers taken runs its tasks alone") {
  Pool pool(2);
  std::atomic<bool> holding{false};
  std::atomic<bool> release{false};
  std::thread owner([&] {
    pool.run(2, [&](int64_t, int) {
      holding = true;
      while (!release) std::this_thread::yield();
    });
  });
  while (!holding) std::this_thread::yield();
  std::set<std::thread::id> threads;
  int64_t ran = 0;
  pool.run(100, [&](int64_t, int worker) {  // plain variables: nobody else may touch them
    threads.insert(std::this_thread::get_id());
    ran += worker == 0 ? 1 : 1000;
  });
  release = true;
  owner.join();
  CHECK(ran == 100);
  CHECK(threads == std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST_CASE("many threads share one pool") {
  Pool pool(3);
  constexpr int kThreads = 4;
  constexpr int kJobs = 2000;
  std::vector<int64_t> sums(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int job = 0; job < kJobs; ++job) {
        std::array<int64_t, 16> values{};
        pool.run(16, [&](int64_t task, int) { values[static_cast<std::size_t>(task)] = task + t; });
        sums[static_cast<std::size_t>(t)] +=
            std::accumulate(values.begin(), values.end(), int64_t{0});
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    CHECK(sums[static_cast<std::size_t>(t)] == int64_t{kJobs} * (120 + 16 * t));
  }
}
