// SPDX-License-Identifier: Apache-2.0
// mailbox.hpp - what other threads want of the engine's thread. While there is nothing, looking
// costs that thread one atomic load.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lm/engine/engine.hpp"

namespace frt::host {

// A request on its way to the engine's thread.
struct Submission {
  uint64_t number = 0;
  EngineRequest request;
  std::shared_ptr<EngineListener> listener;
  EngineRequest::Clock::time_point submitted{};
  std::shared_ptr<const std::atomic<bool>> cancelled;
};

class Mailbox {
 public:
  using Clock = EngineRequest::Clock;
  using Work = std::function<void(EngineAccess&)>;

  explicit Mailbox(uint32_t queue_limit) : queue_limit_(queue_limit) {}

  // ---- any thread ----
  // As Engine does.
  uint64_t submit(EngineRequest request, std::shared_ptr<EngineListener> listener);
  void cancel(uint64_t number) noexcept;
  void drain();
  void call(Work work);
  void let_go(Work work);
  // The thread is to end what there is, and itself.
  void stop() noexcept;

  uint64_t queued() const noexcept { return queued_.load(std::memory_order_relaxed); }
  uint64_t submitted() const noexcept { return submitted_.load(std::memory_order_relaxed); }
  uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
  bool draining() const noexcept { return draining_.load(std::memory_order_relaxed); }
  bool lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

  // ---- the engine's thread ----
  bool news() const noexcept { return news_.load(std::memory_order_acquire); }
  // Appends what was submitted.
  void take(std::vector<Submission>& submissions);
  bool stopping() const noexcept { return stopping_.load(std::memory_order_relaxed); }
  // Runs what call() waits for.
  void serve(EngineAccess& access);
  // Until there is news, or `until`.
  void wait(std::optional<Clock::time_point> until);
  void left_queue() noexcept { queued_.fetch_sub(1, std::memory_order_relaxed); }
  void over(uint64_t number);  // the request has its answer
  // Every later submit() and call() fails with `reason`.
  void lose(const std::string& reason);

 private:
  struct Call {
    Work work;
    std::exception_ptr failure;
    bool done = false;
  };

  void wait_for(Call& call, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable news_came_, something_over_;
  std::vector<Submission> submissions_;
  std::vector<Call*> calls_;
  std::unordered_map<uint64_t, std::shared_ptr<std::atomic<bool>>> live_;  // requests
  uint64_t next_number_ = 1;
  uint32_t queue_limit_;
  std::string lost_reason_;
  std::atomic<bool> news_{false}, stopping_{false}, draining_{false}, lost_{false};
  std::atomic<uint64_t> queued_{0}, submitted_{0}, refused_{0};
};

}  // namespace frt::host
