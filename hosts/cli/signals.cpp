// SPDX-License-Identifier: Apache-2.0
// The handler writes a byte into a pipe, too: whoever waits for input polls the pipe beside it, so
// no signal falls between a look at the flag and the wait, whichever thread the handler runs on.
#include "cli/signals.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <frt/error.hpp>

namespace frt::host {
namespace {

volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t asked_to_end = 0;  // by this signal
int wake[2] = {-1, -1};
struct sigaction previous_int, previous_term, previous_hup;

extern "C" void on_signal(int number) {
  volatile std::sig_atomic_t& flag = number == SIGINT ? interrupted : asked_to_end;
  if (flag == number) _exit(128 + number);
  flag = number;
  const int before = errno;
  // A full pipe is readable already.
  [[maybe_unused]] const ssize_t written = write(wake[1], "", 1);
  errno = before;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(FRT_ERR_IO, "cannot make a pipe for signals; raise the limit of open files");
  }
  interrupted = 0;
  asked_to_end = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
  sigaction(SIGHUP, nullptr, &previous_hup);
  if (previous_hup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
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
