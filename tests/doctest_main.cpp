// SPDX-License-Identifier: Apache-2.0
// The main function of every test binary.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

// Where ctest shares out the cores (frt_pin_tests), FRT_TEST_CORES is a folder with a file for
// each. A test locks the file of one that no other test has, until it ends, and stays on that core.
bool take_a_core() {
  const char* folder = std::getenv("FRT_TEST_CORES");
  cpu_set_t allowed;
  if (!folder || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    const std::string path = std::string(folder) + "/" + std::to_string(core);
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return false;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) {
      CPU_ZERO(&allowed);
      CPU_SET(core, &allowed);
      return ::sched_setaffinity(0, sizeof allowed, &allowed) == 0;
    }
    ::close(file);
  }
  return false;
}

[[maybe_unused]] const bool kHasACore = take_a_core();

}  // namespace
