// SPDX-License-Identifier: Apache-2.0
// The handler writes a byte into a pipe, too: whoever waits for input polls the pipe beside it, so
// no signal falls between a look at the flag and the wait, whichever thread the handler runs on.
//
// Calls are not restarted (SA_RESTART): a write to a pipe that nobody reads must be left when the
// program is to end. After a mere Ctrl-C output.cpp goes on with it.
//
// The end that nobody can hold up is a timer of the system, not a thread: timer_settime() may be
// called in a handler, and a plugin may be tried in a forked child, beside which no thread may run.
#include "cli/terminal/signals.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <frt/error.hpp>
#include <span>

#include "runtime/plugin_call.hpp"

namespace frt::host {
namespace {

volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t asked_to_end = 0;  // by this signal
volatile std::sig_atomic_t exits = 1;         // a signal that comes again exits at once
std::atomic<bool> seen{false};                // somebody acts on the signal
int wake[2] = {-1, -1};
struct sigaction previous_int, previous_term, previous_hup;

std::atomic<long> allowed_ms{0};
static_assert(std::atomic<long>::is_always_lock_free);  // used in a handler
timer_t end_timer;
volatile std::sig_atomic_t explained = 0;    // an end that is forced
volatile std::sig_atomic_t ended_with = -1;  // the program's status, once it has ended by itself
bool has_timer = false;
std::atomic<uint64_t> watched_call{0};  // that ran when the timer started after a SIGINT
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Starts the timer anew.
void arm(std::chrono::milliseconds patience) noexcept {
  const long ms = patience.count() + allowed_ms.load();
  itimerspec after{};
  after.it_value.tv_sec = static_cast<time_t>(ms / 1000);
  after.it_value.tv_nsec = ms % 1000 * 1000000;
  timer_settime(end_timer, 0, &after, nullptr);
}

// Starts the timer after a SIGINT, for the call of a tick that runs now; without one it looks
// again.
void watch_tick() noexcept {
  const RunningCall call = running_call();
  watched_call = call.in_tick ? call.number : 0;
  arm(InterruptGuard::kTickPatience);
}

// "error: environment 'arm' (plugin acme.arm): its `step` did not come back in time; ...".
void explain() noexcept {
  const RunningCall call = running_call();
  const char* const unnamed[] = {"error: a plugin did not come back in time; ended without it\n"};
  const char* const named[] = {"error: ", call.sender, ": its `", call.function,
                               "` did not come back in time; ended without it\n"};
  char text[512];
  std::size_t used = 0;
  for (const char* part : call.number != 0 ? std::span<const char* const>(named) : unnamed) {
    const std::size_t bytes = std::min(std::strlen(part), sizeof(text) - used);
    std::memcpy(text + used, part, bytes);
    used += bytes;
  }
  pollfd out{STDERR_FILENO, POLLOUT, 0};  // a terminal that was stopped (Ctrl-S) takes nothing
  if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, used);
  }
}

extern "C" void on_time_over(int) {
  if (asked_to_end == 0) {
    const RunningCall call = running_call();
    if (interrupted == 0) return;
    if (!call.in_tick || call.number != watched_call) return watch_tick();
  } else if (ended_with >= 0) {
    _exit(ended_with);
  }
  if (explained != 0) explain();
  _exit(128 + (asked_to_end != 0 ? asked_to_end : SIGINT));
}

extern "C" void on_signal(int number) {
  const bool again = asked_to_end == number || (number == SIGINT && interrupted != 0);
  if (again && (exits != 0 || (number == SIGINT && asked_to_end != 0))) _exit(128 + number);
  if (number == SIGINT) interrupted = number;
  const int before = errno;
  if ((number != SIGINT || again) && asked_to_end == 0) {
    asked_to_end = number;
    arm(InterruptGuard::kPatience);
  } else if (asked_to_end == 0 && had_plugin_call()) {
    watch_tick();
  }
  // A full pipe is readable already.
  [[maybe_unused]] const ssize_t written = write(wake[1], "", 1);
  errno = before;
}

extern "C" void on_signal_outside(int number) {
  _exit(128 + number);
}

// `handler` for the three signals; what was there goes to `before`, where it is wanted.
void handle(void (*handler)(int), struct sigaction* before_int, struct sigaction* before_term,
            struct sigaction* before_hup) noexcept {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, before_int);
  sigaction(SIGTERM, &action, before_term);
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (before_hup) *before_hup = hang_up;
  // One that is ignored, or that somebody else handles (hangup.hpp), stays so.
  const bool ours = hang_up.sa_handler == SIG_DFL || hang_up.sa_handler == on_signal_outside;
  if (ours) sigaction(SIGHUP, &action, nullptr);
}

void make_timer() {
  if (has_timer) return;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGALRM;
  if (timer_create(CLOCK_MONOTONIC, &event, &end_timer) != 0) {
    throw Error(FRT_ERR_IO, "cannot make a timer for signals; raise the limit of pending signals");
  }
  struct sigaction action {};
  action.sa_handler = on_time_over;
  sigfillset(&action.sa_mask);
  sigaction(SIGALRM, &action, nullptr);
  has_timer = true;
}

}  // namespace

void end_on_signals(bool explains) noexcept {
  explained = explains ? 1 : 0;
  handle(on_signal_outside, nullptr, nullptr, nullptr);
}

void end_with(int status) noexcept {
  ended_with = status;
}

InterruptGuard::InterruptGuard(Again again) {
  make_timer();
  if (pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(FRT_ERR_IO, "cannot make a pipe for signals; raise the limit of open files");
  }
  if (seen.load()) {
    interrupted = 0;
    asked_to_end = 0;
    seen = false;
  } else if (interrupted != 0 || asked_to_end != 0) {
    [[maybe_unused]] const ssize_t written = write(wake[1], "", 1);
  }
  exits = again == Again::kExits ? 1 : 0;
  handle(on_signal, &previous_int, &previous_term, &previous_hup);
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
  if (interrupted == 0 && asked_to_end == 0) return false;
  seen = true;
  return true;
}

int InterruptGuard::ending() noexcept {
  if (asked_to_end != 0) seen = true;
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

namespace {

// Returns what was allowed before.
long allow(long ms) noexcept {
  const long before = allowed_ms.exchange(ms);
  if (asked_to_end != 0 && has_timer) arm(InterruptGuard::kPatience);
  return before;
}

}  // namespace

EndAllowance::EndAllowance(std::chrono::milliseconds time) noexcept
    : before_(allow(static_cast<long>(time.count()))) {}

EndAllowance::~EndAllowance() {
  allow(before_);
}

}  // namespace frt::host
