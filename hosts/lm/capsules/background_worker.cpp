// SPDX-License-Identifier: Apache-2.0
#include "lm/capsules/background_worker.hpp"

#include <algorithm>
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
    std::list<Job> taken = take_next();
    running_ = true;
    Job& job = taken.front();
    lock.unlock();
    try {
      job.run();
    } catch (...) {
      job.failure = std::current_exception();
    }
    job.run = nullptr;  // what it holds is given up here, not by the driver
    lock.lock();
    running_ = false;
    done_.splice(done_.end(), taken);  // takes no memory: it may have run out
    over_.notify_all();
  }
}

std::list<BackgroundWorker::Job> BackgroundWorker::take_next() {
  auto next = std::ranges::find(waiting_, Urgency::kNow, &Job::urgency);
  if (next == waiting_.end() || overtakes_ == kMostOvertakes) next = waiting_.begin();
  next = std::ranges::find(waiting_, next->subject, &Job::subject);  // its first
  overtakes_ = next == waiting_.begin() ? 0 : overtakes_ + 1;
  std::list<Job> taken;
  taken.splice(taken.begin(), waiting_, next);
  return taken;
}

// The ticket of a job that does for another one of `subject` as well.
std::optional<uint64_t> BackgroundWorker::merged_with(const std::string& subject) const {
  const std::lock_guard lock(mutex_);
  const auto last = std::find_if(waiting_.rbegin(), waiting_.rend(),
                                 [&](const Job& job) { return job.subject == subject; });
  if (last == waiting_.rend() || last->urgency != Urgency::kMerged) return std::nullopt;
  return last->ticket;
}

uint64_t BackgroundWorker::post(std::string subject, std::function<void()> job, End end,
                                Urgency urgency) {
  if (urgency == Urgency::kMerged) {
    if (const auto waiting = merged_with(subject)) return *waiting;
  }
  const uint64_t ticket = next_ticket_++;
  not_ended_.insert(ticket);
  try {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({ticket, std::move(subject), std::move(job), std::move(end), urgency});
  } catch (...) {
    not_ended_.erase(ticket);
    throw;
  }
  posted_.notify_one();
  return ticket;
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
    not_ended_.erase(job.ticket);
    if (job.end) job.end(job.failure);
  }
}

void BackgroundWorker::wait(uint64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(waiting_, ticket, &Job::ticket);
    if (found != waiting_.end()) found->urgency = Urgency::kNow;
  }
  drain();
  while (not_ended_.contains(ticket)) drain_next();
}

void BackgroundWorker::wait_all() {
  drain();
  while (!idle()) drain_next();
}

void BackgroundWorker::drain_next() {
  {
    std::unique_lock lock(mutex_);
    over_.wait(lock, [&] { return !done_.empty(); });
  }
  drain();
}

bool BackgroundWorker::idle() const {
  return not_ended_.empty();
}

bool BackgroundWorker::working() const {
  const std::lock_guard lock(mutex_);
  return running_ || !waiting_.empty();
}

}  // namespace frt::host
