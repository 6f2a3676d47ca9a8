// SPDX-License-Identifier: Apache-2.0
// keyboard.hpp - single keys from stdin, without waiting.
#pragma once

#include <termios.h>

#include "robot/control/rollout.hpp"

namespace frt::host {

// While an object lives, a terminal on stdin gives keys at once and unseen. END or q: end the
// episode. t: take over, or give back. From a pipe the same bytes count.
class Keyboard {
 public:
  Keyboard();
  ~Keyboard();
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;

  // The keys since the last call.  [hot]
  OperatorKeys poll() noexcept;

 private:
  bool terminal_ = false, open_ = true;
  int escape_ = 0;  // characters of an escape sequence so far
  int flags_ = 0;
  termios before_{};
};

}  // namespace frt::host
