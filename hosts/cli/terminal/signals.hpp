// SPDX-License-Identifier: Apache-2.0
// signals.hpp - Ctrl-C: the first one asks the running work to stop, the next ends the program. And
// SIGTERM: the program is gone within a second, whatever a plugin does.
#pragma once

#include <chrono>

namespace frt::host {

// Outside every InterruptGuard, SIGINT, SIGTERM and SIGHUP end the program at once, with the status
// 128 + number. A SIGHUP that was ignored stays ignored (nohup). `explains`: an end that a plugin
// forces is explained in a line of text on stderr.  [setup]
void end_on_signals(bool explains) noexcept;

// Everything is done but what the C library does at an exit: where that takes longer than a signal
// leaves time for, the program ends with `status` all the same.  [main]
void end_with(int status) noexcept;

// While an object lives, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the program. A
// SIGHUP that was ignored (nohup), or that somebody else handles, stays so. One object at a time. A
// signal that nobody asked about before its object went counts for the next object.
//
// From a signal that asks the program to end (SIGTERM, SIGHUP) on, a timer runs: after kPatience
// and what an EndAllowance gives, the program ends with the status 128 + number, although a call
// into a plugin has not come back. The timer goes on when the object is gone: a plugin may hang
// while it is closed. After a SIGINT a timer ends the program with 130 if a call of an
// environment's tick (runtime/plugin_call.hpp) runs for kTickPatience: the work cannot stop then.
class InterruptGuard {
 public:
  // The same signal once more.
  enum class Again {
    kExits,  // at once, with the usual status (128 + number)
    // For who has something to keep: a second SIGINT asks the program to end, a third one exits at
    // once. SIGTERM and SIGHUP once more change nothing: what is being kept is written to its end.
    kEnds,
  };
  static constexpr std::chrono::milliseconds kPatience{700};
  static constexpr std::chrono::milliseconds kTickPatience{5000};

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

// For files that are being written: nothing that was promised is lost.
constexpr std::chrono::seconds kKeepTime{60};

// While it lives, the host may have something to do before the program ends: answers that may go
// on, files to write. The timer counts `time` more, from the signal on or, if the signal has come,
// from now on. When the object goes, what was allowed before counts, from then on. One thread.
class EndAllowance {
 public:
  explicit EndAllowance(std::chrono::milliseconds time) noexcept;
  ~EndAllowance();
  EndAllowance(const EndAllowance&) = delete;
  EndAllowance& operator=(const EndAllowance&) = delete;

 private:
  long before_;  // milliseconds
};

}  // namespace frt::host
