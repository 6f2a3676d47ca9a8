// SPDX-License-Identifier: Apache-2.0
// interrupted.hpp - the exit status of a command that a signal ended before its time. It follows
// the statuses of exit_code.hpp, as shells have it: 130 is Ctrl-C.
#pragma once

#include <csignal>

#include "cli/terminal/signals.hpp"
#include "runtime/exit_code.hpp"

namespace frt::host {

inline constexpr int kSignal = 128;  // plus the signal's number

// The signal of the InterruptGuard that there is, or that there was last; 0: none came.  [any]
inline int interrupting_signal() noexcept {
  if (const int ending = InterruptGuard::ending(); ending != 0) return ending;
  return InterruptGuard::requested() ? SIGINT : 0;
}

// [any]
inline ExitCode interrupted_status() noexcept {
  return static_cast<ExitCode>(kSignal + interrupting_signal());
}

}  // namespace frt::host
