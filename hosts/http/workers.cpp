// SPDX-License-Identifier: Apache-2.0
// A semaphore counts news. A thread that takes one looks for work until it finds none, so a count
// too many costs a look, and none is ever missing: each job is there before its count.
#include "http/workers.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace frt::host {

// ---- actors ----

void Actor::wake() noexcept {
  if (wakes_.fetch_add(1, std::memory_order_acq_rel) > 0) return;  // it waits, or will look again
  hold_ = shared_from_this();
  workers_.push(*this);
}

void Actor::run() noexcept {
  std::shared_ptr<Actor> self = std::move(hold_);
  const uint64_t seen = wakes_.load(std::memory_order_acquire);
  try {
    work();
  } catch (...) {
    workers_.failures_.fetch_add(1, std::memory_order_relaxed);
  }
  if (wakes_.fetch_sub(seen, std::memory_order_acq_rel) == seen) return;
  hold_ = std::move(self);  // others' work has its turn first
  workers_.push(*this);
}

// ---- workers ----

Workers::Workers(std::size_t threads, std::size_t limit, std::size_t most_of_owner)
    : limit_(limit), most_fresh_(threads > 1 ? threads - 1 : 1), most_of_owner_(most_of_owner) {
  sem_init(&news_, 0, 0);
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() {
  stopping_ = true;
  for (std::size_t i = 0; i < threads_.size(); ++i) sem_post(&news_);
  for (std::thread& thread : threads_) thread.join();
  sem_destroy(&news_);
}

void Workers::push(Actor& actor) noexcept {
  Actor* head = woken_.load(std::memory_order_relaxed);
  do actor.next_ = head;
  while (!woken_.compare_exchange_weak(head, &actor, std::memory_order_release,
                                       std::memory_order_relaxed));
  sem_post(&news_);
}

bool Workers::try_post(std::function<void()> job, const std::string& owner) {
  {
    const std::lock_guard lock(mutex_);
    if (fresh_.size() >= limit_) return false;
    fresh_.push_back({std::move(job), owner});
  }
  sem_post(&news_);
  return true;
}

void Workers::run() {
  for (;;) {
    while (sem_wait(&news_) != 0 && errno == EINTR) {
    }
    while (run_one()) (void)sem_trywait(&news_);  // counts do not pile up while work goes on
    if (stopping_) return;  // what waits is taken by whoever makes room for it
  }
}

bool Workers::run_one() {
  Actor* actor = nullptr;
  Fresh fresh;
  {
    const std::lock_guard lock(mutex_);
    actor = take_begun();
    if (!actor && !take_fresh(fresh)) return false;
  }
  if (actor) {
    actor->run();
  } else {
    run_fresh(fresh);
  }
  return true;
}

// In the order of waking.
Actor* Workers::take_begun() noexcept {
  Actor* newest = woken_.exchange(nullptr, std::memory_order_acquire);
  Actor* oldest = nullptr;
  Actor* const last = newest;
  while (newest) {
    Actor* const next = std::exchange(newest->next_, oldest);
    oldest = newest;
    newest = next;
  }
  if (oldest) {
    (first_begun_ ? last_begun_->next_ : first_begun_) = oldest;
    last_begun_ = last;
  }
  Actor* const first = first_begun_;
  if (first) first_begun_ = std::exchange(first->next_, nullptr);
  return first;
}

bool Workers::take_fresh(Fresh& taken) {
  if (fresh_running_ >= most_fresh_) return false;
  const auto may_begin = [&](const Fresh& fresh) {
    if (most_of_owner_ == 0) return true;
    const auto running = running_of_.find(fresh.owner);
    return running == running_of_.end() || running->second < most_of_owner_;
  };
  const auto found = std::ranges::find_if(fresh_, may_begin);
  if (found == fresh_.end()) return false;
  if (most_of_owner_ > 0) {
    try {
      ++running_of_[found->owner];
    } catch (const std::bad_alloc&) {
      if (fresh_running_ > 0) return false;  // it is looked for again when one of these is over
    }
  }
  ++fresh_running_;
  taken = std::move(*found);
  fresh_.erase(found);
  return true;
}

void Workers::run_fresh(Fresh& fresh) {
  try {
    fresh.job();
  } catch (...) {
    failures_.fetch_add(1, std::memory_order_relaxed);
  }
  fresh.job = nullptr;  // what it holds goes before the next one begins
  leave_fresh(fresh.owner);
}

void Workers::leave_fresh(const std::string& owner) noexcept {
  {
    const std::lock_guard lock(mutex_);
    --fresh_running_;
    const auto running = running_of_.find(owner);
    if (running != running_of_.end() && --running->second == 0) running_of_.erase(running);
  }
  sem_post(&news_);  // what waited for this one
}

}  // namespace frt::host
