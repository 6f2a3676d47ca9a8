// SPDX-License-Identifier: Apache-2.0
// signals.hpp - Ctrl-C: the first one asks the running work to stop, the second ends the program.
#pragma once

namespace frt::host {

// While an object lives, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the program; the
// same signal once more ends it with the usual status (128 + number). A SIGHUP that was ignored
// stays ignored (nohup). One object at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // True after a signal, until reset().  [any]
  static bool requested() noexcept;
  // The signal that asks the program to end, SIGTERM or SIGHUP; 0: none came. reset() keeps it.
  static int ending() noexcept;
  // Forgets a SIGINT.
  static void reset() noexcept;
  // Readable from a signal on, until reset(): to wait for input and signals at once. Owned by the
  // object; -1 without one.
  static int descriptor() noexcept;
};

}  // namespace frt::host
