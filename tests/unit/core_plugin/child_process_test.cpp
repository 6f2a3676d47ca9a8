// SPDX-License-Identifier: Apache-2.0
#include <frt/core/child_process.hpp>

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

using namespace frt;
using namespace std::chrono_literals;

namespace {

// A child that runs `body` and then sleeps until it is killed; what it writes to its pipe comes
// back as one byte.
struct Child {
  explicit Child(const std::function<bool()>& body) {
    REQUIRE(::pipe(ends.data()) == 0);
    pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setpgid(0, 0);
      const char said = body() ? 'y' : 'n';
      if (::write(ends[1], &said, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char said = 'n';
    good = ::read(ends[0], &said, 1) == 1 && said == 'y';
  }
  ~Child() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  std::array<int, 2> ends{};
  pid_t pid = -1;
  bool good = false;
};

bool nothing() {
  return true;
}

// What becomes of SIGCHLD, and after that what was before.
class OnChildEnd {
 public:
  explicit OnChildEnd(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    REQUIRE(::sigaction(SIGCHLD, &action, &before_) == 0);
  }
  ~OnChildEnd() { ::sigaction(SIGCHLD, &before_, nullptr); }
  OnChildEnd(const OnChildEnd&) = delete;
  OnChildEnd& operator=(const OnChildEnd&) = delete;

 private:
  struct sigaction before_ {};
};

// The state of /proc/PID/stat: S sleeps, R runs, Z is dead; X if nobody knows the number.
char state_of(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  FILE* file = std::fopen(path.c_str(), "r");
  if (!file) return 'X';
  char state = 'X';
  if (std::fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'X';
  std::fclose(file);
  return state;
}

void take_all(int) {
  const int kept = errno;
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  errno = kept;
}

}  // namespace

TEST_CASE("a child that ended by itself keeps its number until it is waited for") {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(7);
  REQUIRE(child > 0);
  while (!core::child_has_ended(child)) std::this_thread::sleep_for(1ms);
  CHECK(::kill(child, 0) == 0);
  const auto status = core::end_child(child, 10s);
  REQUIRE(status.has_value());
  CHECK(WIFEXITED(*status));
  CHECK(WEXITSTATUS(*status) == 7);
  CHECK(core::child_has_ended(child));
}

TEST_CASE("a child that runs is killed with its group") {
  pid_t grandchild = -1;
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const Child child([&] {
    const pid_t made = ::fork();
    if (made == 0) {
      for (;;) ::pause();
    }
    return ::write(ends[1], &made, sizeof(made)) == sizeof(made);
  });
  REQUIRE(child.good);
  REQUIRE(::read(ends[0], &grandchild, sizeof(grandchild)) == sizeof(grandchild));
  CHECK_FALSE(core::child_has_ended(child.pid));
  const auto status = core::end_child(child.pid, 10s);
  REQUIRE(status.has_value());
  CHECK(WTERMSIG(*status) == SIGKILL);
  // Its number goes when whoever adopts it has waited for it; until then it is dead, and no signal
  // wakes it.
  const auto end = std::chrono::steady_clock::now() + 10s;
  const auto runs = [&] {
    const char state = state_of(grandchild);
    return state != 'Z' && state != 'X';
  };
  while (runs() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  CHECK_FALSE(runs());
  ::close(ends[0]);
  ::close(ends[1]);
}

// waitpid of the parent does not return a traced process until its tracer detaches. A process that
// hangs in a driver behaves the same.
TEST_CASE("a child that cannot be waited for is given up at the limit") {
  const Child held(
      [] { return ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY) == 0 || errno == EINVAL; });
  const Child tracer([&] { return ::ptrace(PTRACE_SEIZE, held.pid, nullptr, nullptr) == 0; });
  if (tracer.good) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK_FALSE(core::end_child(held.pid, 50ms).has_value());
    CHECK(std::chrono::steady_clock::now() - begin >= 50ms);
    CHECK_FALSE(core::child_has_ended(held.pid));
  } else {
    MESSAGE("this system lets no process trace another one");
  }
  CHECK(core::end_child(tracer.pid, 10s).has_value());
  CHECK(core::end_child(held.pid, 10s).has_value());
}

TEST_CASE("what is no child of this process has ended, and is not killed") {
  const Child child(nothing);
  CHECK(core::end_child(child.pid, 10s).has_value());
  CHECK(core::child_has_ended(child.pid));
  CHECK(core::end_child(child.pid, 10s) == core::kStatusLost);

  // A child of the child leads a group of its own; its number could be that of an ended child.
  pid_t stranger = -1;
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const Child parent([&] {
    const pid_t made = ::fork();
    if (made == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    ::setpgid(made, made);
    return ::write(ends[1], &made, sizeof(made)) == sizeof(made);
  });
  REQUIRE(parent.good);
  REQUIRE(::read(ends[0], &stranger, sizeof(stranger)) == sizeof(stranger));
  while (state_of(stranger) != 'S') std::this_thread::sleep_for(1ms);  // until it pauses
  CHECK(core::child_has_ended(stranger));
  CHECK(core::end_child(stranger, 10s) == core::kStatusLost);
  // A signal that kills is seen at once in the state; give it time to be wrong.
  std::this_thread::sleep_for(20ms);
  CHECK(state_of(stranger) == 'S');
  CHECK(core::end_child(parent.pid, 10s).has_value());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("a child whose status the program gives away has ended, and nobody knows how") {
  for (void (*handler)(int) : {SIG_IGN, &take_all}) {
    const OnChildEnd on(handler);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(7);
    REQUIRE(child > 0);
    while (!core::child_has_ended(child)) std::this_thread::sleep_for(1ms);
    // The one that ended a moment ago may still be there for a handler that runs after this call.
    const auto status = core::end_child(child, 10s);
    REQUIRE(status.has_value());
    if (*status != core::kStatusLost) CHECK(WEXITSTATUS(*status) == 7);

    const Child running(nothing);
    REQUIRE(running.good);
    CHECK_FALSE(core::child_has_ended(running.pid));
    CHECK(core::end_child(running.pid, 10s).has_value());
    CHECK(core::child_has_ended(running.pid));
  }
}
