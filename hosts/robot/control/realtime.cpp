// SPDX-License-Identifier: Apache-2.0
#include "robot/control/realtime.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <frt/error.hpp>

namespace frt::host {
namespace {

[[noreturn]] void refused(const std::string& what, int error, const std::string& remedy) {
  throw Error(FRT_ERR_UNSUPPORTED, what + ": " + std::strerror(error) + "; " + remedy);
}

}  // namespace

std::string apply_realtime(const RealtimeOptions& options) {
  prctl(PR_SET_TIMERSLACK, 1ul);
  std::string done;
  const auto add = [&](const std::string& text) { done += (done.empty() ? "" : ", ") + text; };
  if (options.lock_memory) {
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
      refused("lock_memory", errno, "raise the limit (ulimit -l unlimited) or leave it out");
    }
    add("memory locked");
  }
  if (options.cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (options.cpu < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(options.cpu), &set);
    const int error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    if (error != 0) {
      refused("cpu = " + std::to_string(options.cpu), error, "choose a core that there is");
    }
    add("on core " + std::to_string(options.cpu));
  }
  if (options.fifo_priority > 0) {
    sched_param param{};
    param.sched_priority = options.fifo_priority;
    const int error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
    if (error != 0) {
      refused("fifo_priority = " + std::to_string(options.fifo_priority), error,
              "allow it (ulimit -r, or CAP_SYS_NICE) or leave it out");
    }
    add("SCHED_FIFO " + std::to_string(options.fifo_priority));
  }
  return done;
}

int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

void sleep_until_ns(int64_t when) noexcept {
  timespec at{};
  at.tv_sec = when / 1000000000;
  at.tv_nsec = when % 1000000000;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

int64_t Ticker::wait() noexcept {
  int64_t now = monotonic_ns();
  if (now > next_ + period_ns_) {
    const int64_t over = (now - next_) / period_ns_;
    skipped_ += static_cast<uint64_t>(over);
    next_ += over * period_ns_;
  }
  sleep_until_ns(wake_ns());
  do {
    now = monotonic_ns();
  } while (now < next_);
  const int64_t late = now - next_;
  next_ += period_ns_;
  return late;
}

}  // namespace frt::host
