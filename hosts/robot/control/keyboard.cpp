// SPDX-License-Identifier: Apache-2.0
// Terminals send END as ESC [ F, ESC O F, ESC [ 4 ~ or ESC [ 8 ~.
#include "robot/control/keyboard.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace frt::host {

Keyboard::Keyboard() {
  flags_ = fcntl(STDIN_FILENO, F_GETFL);
  open_ = flags_ >= 0 && fcntl(STDIN_FILENO, F_SETFL, flags_ | O_NONBLOCK) == 0;
  if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    terminal_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  }
}

Keyboard::~Keyboard() {
  if (terminal_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  if (flags_ >= 0) fcntl(STDIN_FILENO, F_SETFL, flags_);
}

OperatorKeys Keyboard::poll() noexcept {
  OperatorKeys keys;
  char buffer[64];
  while (open_) {
    const ssize_t count = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count == 0) open_ = false;
    if (count <= 0) break;
    for (ssize_t i = 0; i < count; ++i) {
      const char c = buffer[i];
      if (c == '\x1b') {
        escape_ = 1;
      } else if (escape_ == 1 && (c == '[' || c == 'O')) {
        escape_ = 2;
      } else if (escape_ == 2) {
        keys.end = keys.end || c == 'F' || c == '4' || c == '8';
        escape_ = 0;
      } else {
        escape_ = 0;
        keys.end = keys.end || c == 'q';
        keys.takeover = keys.takeover != (c == 't');
      }
    }
  }
  return keys;
}

}  // namespace frt::host
