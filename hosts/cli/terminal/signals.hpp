// SPDX-License-Identifier: Apache-2.0
// signals.hpp - Ctrl-C: the first one asks the running work to stop, the next ends the program.
#pragma once

namespace frt::host {

// While an object lives, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the program. A
// SIGHUP that was ignored (nohup), or that somebody else handles, stays so. One object at a time.
class InterruptGuard {
 public:
  // The same signal once more.
  enum class Again {
    kExits,  // at once, with the usual status (128 + number)
    // For who has something to keep: a second SIGINT asks the program to end, a third one exits at
    // once. SIGTERM and SIGHUP once more change nothing: what is being kept is written to its end.
    kEnds,
  };
  explicit InterruptGuard(Again again = Again::kExits);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // True after a signal, until reset().  [any]
  static bool requested() noexcept;
  // The signal that asks the program to end: SIGTERM, SIGHUP, or the second SIGINT of kEnds; 0:
  // none came. reset() keeps it.
  static int ending() noexcept;
  // Forgets a SIGINT, unless it asks the program to end.
  static void reset() noexcept;
  // Readable from a signal on, until reset(): to wait for input and signals at once. Owned by the
  // object; -1 without one.
  static int descriptor() noexcept;
};

}  // namespace frt::host
