// SPDX-License-Identifier: Apache-2.0
// The handler writes into a pipe that the thread reads; 'q' asks the thread to end.
#include "cli/terminal/hangup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <frt/error.hpp>
#include <string_view>
#include <utility>

namespace frt::host {
namespace {

constexpr char kHangup = 'h', kQuit = 'q';
int wake[2] = {-1, -1};
struct sigaction previous;

extern "C" void on_hangup(int) {
  const int before = errno;
  // A full pipe has the same byte already.
  [[maybe_unused]] const ssize_t written = write(wake[1], &kHangup, 1);
  errno = before;
}

}  // namespace

HangupWatch::HangupWatch(std::function<void()> work) : work_(std::move(work)) {
  if (pipe2(wake, O_CLOEXEC) != 0 || fcntl(wake[1], F_SETFL, O_NONBLOCK) != 0) {
    throw Error(FRT_ERR_IO, "cannot make a pipe for signals; raise the limit of open files");
  }
  thread_ = std::thread([this] { run(); });
  struct sigaction action {};
  action.sa_handler = on_hangup;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGHUP, &action, &previous);
}

HangupWatch::~HangupWatch() {
  sigaction(SIGHUP, &previous, nullptr);
  fcntl(wake[1], F_SETFL, 0);  // a full pipe is read soon
  while (write(wake[1], &kQuit, 1) < 0 && errno == EINTR) {
  }
  thread_.join();
  for (int& end : wake) {
    close(end);
    end = -1;
  }
}

void HangupWatch::run() {
  for (;;) {
    char bytes[64];
    const ssize_t count = read(wake[0], bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    const std::string_view asked(bytes, static_cast<std::size_t>(count));
    if (asked.find(kQuit) != asked.npos) return;
    work_();
  }
}

}  // namespace frt::host
