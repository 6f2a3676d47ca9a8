// SPDX-License-Identifier: Apache-2.0
// The handler writes a byte into a pipe, too: whoever waits for input polls the pipe beside it, so
// no signal falls between a look at the flag and the wait, whichever thread the handler runs on.
//
// Calls are not restarted (SA_RESTART): a write to a pipe that nobody reads must be left when the
// program is to end. After a mere Ctrl-C output.cpp goes on with it.
#include "cli/terminal/signals.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <frt/error.hpp>

namespace frt::host {
namespace {

volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t asked_to_end = 0;  // by this signal
volatile std::sig_atomic_t exits = 1;         // a signal that comes again exits at once
int wake[2] = {-1, -1};
struct sigaction previous_int, previous_term, previous_hup;

extern "C" void on_signal(int number) {
  const bool again = asked_to_end == number || (number == SIGINT && interrupted != 0);
  if (again && (exits != 0 || (number == SIGINT && asked_to_end != 0))) _exit(128 + number);
  if (number == SIGINT) interrupted = number;
  if ((number != SIGINT || again) && asked_to_end == 0) asked_to_end = number;
  const int before = errno;
  // A full pipe is readable already.
  [[maybe_unused]] const ssize_t written = write(wake[1], "", 1);
  errno = before;
}

}  // namespace

InterruptGuard::InterruptGuard(Again again) {
  if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(FRT_ERR_IO, "cannot make a pipe for signals; raise the limit of open files");
  }
  interrupted = 0;
  asked_to_end = 0;
  exits = again == Again::kExits ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
  sigaction(SIGHUP, nullptr, &previous_hup);
  if (previous_hup.sa_handler == SIG_DFL) sigaction(SIGHUP, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
  sigaction(SIGHUP, &previous_hup, nullptr);
  for (int& end : wake) {
    close(end);
    end = -1;
  }
}

bool InterruptGuard::requested() noexcept {
  return interrupted != 0 || asked_to_end != 0;
}

int InterruptGuard::ending() noexcept {
  return asked_to_end;
}

void InterruptGuard::reset() noexcept {
  interrupted = 0;
  if (asked_to_end != 0) return;
  char bytes[64];
  while (read(wake[0], bytes, sizeof(bytes)) > 0) {
  }
}

int InterruptGuard::descriptor() noexcept {
  return wake[0];
}

}  // namespace frt::host
