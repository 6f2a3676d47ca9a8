// SPDX-License-Identifier: Apache-2.0
#include "lm/capsules/background_worker.hpp"

#include <utility>

namespace frt::host {

BackgroundWorker::BackgroundWorker() : thread_([this] { work(); }) {}

BackgroundWorker::~BackgroundWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_all();
  thread_.join();
}

void BackgroundWorker::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    try {
      job.run();
    } catch (...) {
      job.failure = std::current_exception();
    }
    job.run = nullptr;  // what it holds is given up here, not by the driver
    lock.lock();
    done_.push_back(std::move(job));
    over_.notify_all();
  }
}

uint64_t BackgroundWorker::post(std::function<void()> job, End end) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(job), std::move(end), nullptr});
  }
  posted_.notify_one();
  return posted_count_++;
}

void BackgroundWorker::drain() {
  for (;;) {
    Job job;
    {
      const std::lock_guard lock(mutex_);
      if (done_.empty()) return;
      job = std::move(done_.front());
      done_.pop_front();
    }
    ++ended_count_;
    if (job.end) job.end(job.failure);
  }
}

void BackgroundWorker::wait(uint64_t ticket) {
  drain();
  while (ended_count_ <= ticket) {
    {
      std::unique_lock lock(mutex_);
      over_.wait(lock, [&] { return !done_.empty(); });
    }
    drain();
  }
}

void BackgroundWorker::wait_all() {
  while (!idle()) wait(posted_count_ - 1);
}

bool BackgroundWorker::idle() const {
  return ended_count_ == posted_count_;
}

}  // namespace frt::host
