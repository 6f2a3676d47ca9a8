// SPDX-License-Identifier: Apache-2.0
// signals.hpp - Ctrl-C: the first one asks the running work to stop, the second ends the program.
#pragma once

namespace frt::host {

// While an object lives, SIGINT and SIGTERM set a flag instead of ending the program; a second
// signal ends it with the usual status (128 + number). One object at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // True after a signal, until reset().  [any]
  static bool requested() noexcept;
  static void reset() noexcept;
};

}  // namespace frt::host
