// SPDX-License-Identifier: Apache-2.0
#include <frt/core/child_process.hpp>

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <thread>

namespace frt::core {

namespace {

enum class Look { kRuns, kEnded, kNoChild };

// Does not wait for it, so that its number stays its own.
Look look_at(pid_t child) noexcept {
  siginfo_t info{};
  int result = 0;
  do {
    result = ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return Look::kNoChild;
  return info.si_pid == child ? Look::kEnded : Look::kRuns;
}

}  // namespace

bool child_has_ended(pid_t child) noexcept {
  return look_at(child) != Look::kRuns;
}

std::optional<int> end_child(pid_t child, std::chrono::milliseconds limit) noexcept {
  // Another process may have the number of one that is no child any more.
  if (look_at(child) == Look::kNoChild) return kStatusLost;
  // The group first, and before the child is waited for: both numbers are still its own.
  ::kill(-child, SIGKILL);
  ::kill(child, SIGKILL);
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR) return kStatusLost;
    if (std::chrono::steady_clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace frt::core
