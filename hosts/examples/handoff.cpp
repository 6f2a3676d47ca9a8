// SPDX-License-Identifier: Apache-2.0
#include "examples/handoff.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace frt::host {

void SubgoalMailbox::post(std::string instruction, bool interrupt) {
  const int64_t now = monotonic_ns();
  {
    const std::lock_guard lock(mutex_);
    if (subgoal_ && subgoal_->interrupt && !interrupt) return;
    subgoal_ = Subgoal{std::move(instruction), interrupt, now};
  }
  if (interrupt) changed_.notify_all();
}

std::optional<SubgoalMailbox::Subgoal> SubgoalMailbox::wait_until(int64_t due_ns) {
  std::unique_lock lock(mutex_);
  // steady_clock is CLOCK_MONOTONIC here.
  const auto due = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(due_ns));
  const bool interrupted =
      changed_.wait_until(lock, due, [&] { return subgoal_ && subgoal_->interrupt; });
  if (!interrupted) return std::nullopt;
  return std::exchange(subgoal_, std::nullopt);
}

std::optional<SubgoalMailbox::Subgoal> SubgoalMailbox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(subgoal_, std::nullopt);
}

Handoff::Handoff(PolicyRunner& actor, Environment& environment, SubgoalMailbox& mailbox,
                 HandoffOptions options)
    : actor_(actor),
      environment_(environment),
      mailbox_(mailbox),
      options_(std::move(options)),
      queue_(options_.ticks, actor.policy().info().horizon,
             actor.policy().observation_info().action_dim),
      ticker_(options_.ticks.hz, options_.ticks.spin_us),
      action_(queue_.width()) {
  require_action_width(environment, queue_.width(), actor.policy().name());
  actor_.set_steps(options_.steps);
  actor_.set_guidance(options_.guidance);
}

void Handoff::submit() {
  frt_observation observation = environment_.observe();
  observation.prompt = instruction_.c_str();
  try {
    actor_.observe(observation);
  } catch (const Error& error) {
    if (!is_refusal(error.status()) || draws_ == 0) throw;
    return queue_.note_refused();
  }
  fill_normal(options_.seed, draws_++, actor_.noise());
  submitted_ns_ = monotonic_ns();
  actor_.submit();
  pending_ = true;
  ticks_since_ = 0;
}

void Handoff::accept(HandoffResult& result) {
  pending_ = false;
  std::span<const double> chunk;
  try {
    chunk = actor_.wait();
  } catch (const Error& error) {
    if (!is_refusal(error.status())) throw;
    return queue_.note_refused();
  }
  replay_ms_.add(ms_between(submitted_ns_, monotonic_ns()));
  ++result.chunks;
  queue_.accept(chunk, ticks_since_, ticks_since_ * 1e3 / options_.ticks.hz);
}

// A tick: the next action, or the safe one.  [hot]
void Handoff::tick(HandoffResult& result, bool intended) {
  late_us_.add(static_cast<double>(ticker_.wait()) * 1e-3);
  queue_.next(action_, intended);
  environment_.apply(action_);
  ++result.ticks;
  ++ticks_since_;
  if (!reached_ && environment_.succeeded()) {
    reached_ = true;
    ++result.reached;
  }
}

void Handoff::wait_for_device(HandoffResult& result) {
  while (!actor_.ready()) {
    const int64_t poll = monotonic_ns() + kPollNs;
    if (poll >= ticker_.wake_ns()) {
      tick(result, true);
    } else {
      sleep_until_ns(poll);
    }
  }
}

void Handoff::interrupt(const SubgoalMailbox::Subgoal& subgoal, HandoffResult& result) {
  InterruptTimes times;
  times.instruction = instruction_ = subgoal.instruction;
  times.before.assign(queue_.last().begin(), queue_.last().end());
  queue_.drop();
  times.in_flight = pending_ && !actor_.ready();
  if (pending_) wait_for_device(result);  // its chunk answers the old subgoal
  times.free_ms = times.in_flight ? ms_between(subgoal.posted_ns, monotonic_ns()) : 0;
  actor_.overwrite_prompt(instruction_, environment_.state());
  fill_normal(options_.seed, draws_++, actor_.noise());
  submitted_ns_ = monotonic_ns();
  actor_.submit();
  times.overwritten_ms = ms_between(subgoal.posted_ns, monotonic_ns());
  pending_ = true;
  ticks_since_ = 0;
  wait_for_device(result);
  accept(result);
  times.replay_ms = ms_between(submitted_ns_, monotonic_ns());
  queue_.next(action_);
  environment_.apply(action_);
  times.action_ms = ms_between(subgoal.posted_ns, monotonic_ns());
  times.after = action_;
  if (on_subgoal) on_subgoal(instruction_);
  ++result.subgoals;
  reached_ = false;
  result.interrupts.push_back(std::move(times));
}

HandoffResult Handoff::run() {
  HandoffResult result;
  environment_.reset(options_.seed);
  instruction_ = environment_.instruction();
  queue_.reset();
  reached_ = false;
  submit();
  accept(result);
  ticker_.start();
  const auto end = static_cast<uint64_t>(std::max(1.0, options_.seconds * options_.ticks.hz));
  while (result.ticks < end && !stopped()) {
    if (!pending_ && queue_.wants_chunk()) {
      if (auto subgoal = mailbox_.take()) {
        if (subgoal->interrupt) {
          interrupt(*subgoal, result);
        } else {
          instruction_ = subgoal->instruction;
          if (on_subgoal) on_subgoal(instruction_);
          ++result.subgoals;
          reached_ = false;
        }
      }
      if (!pending_ && queue_.wants_chunk()) submit();
    }
    // The wait for the next tick is also the wait for an interrupt, and for a chunk if no row is
    // left.
    for (bool due = false; !due;) {
      if (pending_ && actor_.ready()) accept(result);
      const int64_t poll = monotonic_ns() + kPollNs;
      due = !pending_ || queue_.left() > 0 || poll >= ticker_.wake_ns();
      if (auto subgoal = mailbox_.wait_until(due ? ticker_.wake_ns() : poll)) {
        interrupt(*subgoal, result);
        due = false;
      }
    }
    tick(result, false);
  }
  if (pending_) actor_.stream().sync();
  result.counters = queue_.counters();
  result.skipped_ticks = ticker_.skipped();
  result.replay_ms = replay_ms_.summary();
  result.late_us = late_us_.summary();
  return result;
}

}  // namespace frt::host
