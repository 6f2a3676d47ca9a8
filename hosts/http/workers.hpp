// SPDX-License-Identifier: Apache-2.0
// workers.hpp - threads that run short jobs: parsing, rendering, tokenizing, text of tokens. All
// members are [any].
//
//   fresh   what somebody new asks for: may be refused, and never takes every thread
//   begun   what belongs to an answer under way: goes first, is never refused
//
// A job that throws ends alone: what it held is dropped, which ends its request with an error.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace frt::host {

class Workers;

// What works each time it was woken: at least once after each wake(), never on two threads at a
// time. Lives in a shared_ptr, which holds it while it waits for a thread.
class Actor : public std::enable_shared_from_this<Actor> {
 public:
  explicit Actor(Workers& workers) noexcept : workers_(workers) {}
  virtual ~Actor() = default;
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  // Takes no lock and allocates nothing, so that an engine's thread may call it for each token.
  // Workers outlive the call.  [any]
  void wake() noexcept;

 protected:
  // On a worker. What this throws is swallowed.
  virtual void work() = 0;

 private:
  friend class Workers;
  void run() noexcept;

  Workers& workers_;
  std::atomic<uint64_t> wakes_{0};  // that no work() has followed
  std::shared_ptr<Actor> hold_;     // itself, between wake() and run()
  Actor* next_ = nullptr;           // of Workers' lists
};

class Workers {
 public:
  // `limit`: fresh jobs that may wait. One thread of several is always free for what was begun.
  // `most_of_owner`: fresh jobs of one owner that run at a time; 0: no such limit.
  Workers(std::size_t threads, std::size_t limit, std::size_t most_of_owner = 0);
  ~Workers();  // runs what waits, then ends
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // A fresh job; false: too much waits already.
  bool try_post(std::function<void()> job, const std::string& owner = {});
  // Jobs that threw.
  uint64_t failures() const noexcept { return failures_.load(std::memory_order_relaxed); }

 private:
  friend class Actor;
  struct Fresh {
    std::function<void()> job;
    std::string owner;
  };

  void push(Actor& actor) noexcept;
  void run();
  bool run_one();
  Actor* take_begun() noexcept;
  bool take_fresh(Fresh& taken);
  void run_fresh(Fresh& fresh);
  void leave_fresh(const std::string& owner) noexcept;

  const std::size_t limit_, most_fresh_, most_of_owner_;
  std::atomic<Actor*> woken_{nullptr};  // a stack: the newest first
  std::atomic<uint64_t> failures_{0};
  std::atomic<bool> stopping_{false};
  sem_t news_;  // at least one for each job that may begin

  std::mutex mutex_;
  Actor *first_begun_ = nullptr, *last_begun_ = nullptr;  // a queue
  std::deque<Fresh> fresh_;
  std::size_t fresh_running_ = 0;
  std::map<std::string, std::size_t> running_of_;  // fresh jobs, by owner
  std::vector<std::thread> threads_;
};

}  // namespace frt::host
