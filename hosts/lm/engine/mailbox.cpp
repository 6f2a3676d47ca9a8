// SPDX-License-Identifier: Apache-2.0
#include "lm/engine/mailbox.hpp"

#include <frt/error.hpp>

namespace frt::host {

uint64_t Mailbox::submit(EngineRequest request, std::shared_ptr<EngineListener> listener) {
  const std::lock_guard lock(mutex_);
  if (lost()) throw Error(FRT_ERR_DEVICE_LOST, lost_reason_);
  if (draining() || stopping()) {
    throw Error(FRT_ERR_BAD_STATE, "the engine takes no new requests: it is being ended");
  }
  if (queued() >= queue_limit_) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    throw Error(FRT_ERR_NOT_READY, "the queue is full: " + std::to_string(queue_limit_) +
                                       " requests wait; try again later");
  }
  const uint64_t number = next_number_++;
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  live_.emplace(number, cancelled);
  try {
    submissions_.push_back(
        {number, std::move(request), std::move(listener), Clock::now(), std::move(cancelled)});
  } catch (...) {
    live_.erase(number);
    throw;
  }
  queued_.fetch_add(1, std::memory_order_relaxed);
  submitted_.fetch_add(1, std::memory_order_relaxed);
  news_.store(true, std::memory_order_release);
  news_came_.notify_one();
  return number;
}

void Mailbox::cancel(uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(number);
  if (found == live_.end()) return;
  found->second->store(true, std::memory_order_relaxed);
  news_.store(true, std::memory_order_release);
  news_came_.notify_one();
}

void Mailbox::drain() {
  std::unique_lock lock(mutex_);
  draining_.store(true, std::memory_order_relaxed);
  something_over_.wait(lock, [&] { return live_.empty(); });
}

void Mailbox::call(Work work) {
  Call call{std::move(work), nullptr, false};
  std::unique_lock lock(mutex_);
  if (lost()) throw Error(FRT_ERR_BAD_STATE, "the engine has no device: " + lost_reason_);
  if (stopping()) throw Error(FRT_ERR_BAD_STATE, "the engine is being ended");
  wait_for(call, lock);
}

void Mailbox::let_go(Work work) {
  Call call{std::move(work), nullptr, false};
  std::unique_lock lock(mutex_);
  wait_for(call, lock);
}

void Mailbox::wait_for(Call& call, std::unique_lock<std::mutex>& lock) {
  calls_.push_back(&call);
  news_.store(true, std::memory_order_release);
  news_came_.notify_one();
  something_over_.wait(lock, [&] { return call.done; });
  if (call.failure) std::rethrow_exception(call.failure);
}

void Mailbox::stop() noexcept {
  const std::lock_guard lock(mutex_);
  stopping_.store(true, std::memory_order_relaxed);
  news_.store(true, std::memory_order_release);
  news_came_.notify_one();
}

void Mailbox::take(std::vector<Submission>& submissions) {
  const std::lock_guard lock(mutex_);
  for (Submission& submission : submissions_) submissions.push_back(std::move(submission));
  submissions_.clear();
  news_.store(!calls_.empty(), std::memory_order_relaxed);
}

void Mailbox::serve(EngineAccess& access) {
  std::unique_lock lock(mutex_);
  while (!calls_.empty()) {
    Call* call = calls_.front();
    calls_.erase(calls_.begin());
    lock.unlock();
    try {
      call->work(access);
    } catch (...) {
      call->failure = std::current_exception();
    }
    lock.lock();
    call->done = true;
    something_over_.notify_all();
  }
}

void Mailbox::wait(std::optional<Clock::time_point> until) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return news(); };
  if (until) {
    news_came_.wait_until(lock, *until, ready);
  } else {
    news_came_.wait(lock, ready);
  }
}

void Mailbox::over(uint64_t number) {
  const std::lock_guard lock(mutex_);
  live_.erase(number);
  if (live_.empty()) something_over_.notify_all();
}

void Mailbox::lose(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (lost()) return;
  lost_reason_ = reason;
  lost_.store(true, std::memory_order_relaxed);
}

}  // namespace frt::host
