// SPDX-License-Identifier: Apache-2.0
// The leak checker survives plugins' thread-local storage wherever it lies, and still finds leaks.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sanitizer/lsan_interface.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

void* volatile reachable[256];

namespace {

enum Verdict { kSound = 10, kElsewhere, kFalseAlarm, kMissed };

// In a process of its own: the library's block behind `blocks` others of its size, which moves it
// through a page. Where it is at the offset that cmake/sanitizer_options.c speaks of, leaks are
// looked for.
[[noreturn]] void look_for_leaks(int blocks) {
  for (int i = 0; i < blocks; ++i) reachable[i] = std::malloc(8);
  void* library = dlopen(FRT_TEST_THREAD_LOCAL, RTLD_NOW);
  const auto keep = reinterpret_cast<void* (*)()>(dlsym(library, "keep_thread_locally"));
  const auto leak = reinterpret_cast<void (*)()>(dlsym(library, "leak"));
  if (reinterpret_cast<uintptr_t>(keep()) % 4096 != 16) _exit(kElsewhere);
  dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
  if (__lsan_do_recoverable_leak_check() != 0) _exit(kFalseAlarm);
  leak();
  _exit(__lsan_do_recoverable_leak_check() != 0 ? kSound : kMissed);
}

}  // namespace

TEST_CASE("the leak checker: thread-local storage 16 bytes into a page, a leak in a library") {
  int verdict = kElsewhere;
  for (int blocks = 0; blocks < 256 && verdict == kElsewhere; ++blocks) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) look_for_leaks(blocks);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    verdict = WEXITSTATUS(status);
  }
  CHECK(verdict == kSound);
}
