// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.hpp"

#include <unistd.h>
#include <csignal>

namespace frt::host {
namespace {

volatile std::sig_atomic_t interrupted = 0;
struct sigaction previous_int, previous_term;

extern "C" void on_signal(int number) {
  if (interrupted) _exit(128 + number);
  interrupted = 1;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
}

bool InterruptGuard::requested() noexcept {
  return interrupted != 0;
}
void InterruptGuard::reset() noexcept {
  interrupted = 0;
}

}  // namespace frt::host
