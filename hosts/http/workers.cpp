// SPDX-License-Identifier: Apache-2.0
#include "http/workers.hpp"

#include <utility>

namespace frt::host {

Workers::Workers(std::size_t threads, std::size_t limit)
    : limit_(limit), most_fresh_(threads > 1 ? threads - 1 : 1) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Workers::try_post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (fresh_.size() >= limit_) return false;
    fresh_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void Workers::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    begun_.push_back(std::move(job));
  }
  changed_.notify_one();
}

std::size_t Workers::waiting() const {
  const std::lock_guard lock(mutex_);
  return begun_.size() + fresh_.size();
}

void Workers::run() {
  for (;;) {
    std::function<void()> job;
    bool fresh = false;
    {
      std::unique_lock lock(mutex_);
      const auto may_begin = [&] { return !fresh_.empty() && fresh_running_ < most_fresh_; };
      changed_.wait(lock, [&] { return stopping_ || !begun_.empty() || may_begin(); });
      fresh = begun_.empty();
      if (fresh && !may_begin()) return;  // whoever runs the fresh ones takes what waits
      auto& jobs = fresh ? fresh_ : begun_;
      job = std::move(jobs.front());
      jobs.pop_front();
      fresh_running_ += fresh ? 1 : 0;
    }
    job();
    if (!fresh) continue;
    {
      const std::lock_guard lock(mutex_);
      --fresh_running_;
    }
    changed_.notify_one();
  }
}

void Strand::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (std::exchange(running_, true)) return;
  }
  workers_.post([self = shared_from_this()] { self->run(); });
}

// One job, then others' work has its turn.
void Strand::run() {
  std::function<void()> job;
  {
    const std::lock_guard lock(mutex_);
    job = std::move(jobs_.front());
    jobs_.pop_front();
  }
  job();
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty()) {
      running_ = false;
      return;
    }
  }
  workers_.post([self = shared_from_this()] { self->run(); });
}

}  // namespace frt::host
