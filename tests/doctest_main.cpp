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

// Where ctest shares out the cores (frt_pin_tests), FRT_TEST_CORES is a folder. A core is two
// places in it, files that are locked until their test ends. This test takes both places of a core
// and stays on it; where no core has both, it stays on all.
int lock(const std::string& path, int how) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0 && ::flock(file, how) == 0) return file;
  if (file >= 0) ::close(file);
  return -1;
}

bool take_a_core() {
  const char* folder = std::getenv("FRT_TEST_CORES");
  cpu_set_t allowed;
  if (!folder || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  const std::string places = std::string(folder) + "/";
  const int choosing = lock(places + "choosing", LOCK_EX);  // one test at a time
  if (choosing < 0) return false;
  bool taken = false;
  for (int core = 0; core < CPU_SETSIZE && !taken; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    const std::string place = places + std::to_string(core);
    const int first = lock(place + ".0", LOCK_EX | LOCK_NB);
    const int second = lock(place + ".1", LOCK_EX | LOCK_NB);
    taken = first >= 0 && second >= 0;
    if (!taken && first >= 0) ::close(first);
    if (!taken && second >= 0) ::close(second);
    if (!taken) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
  }
  ::close(choosing);
  return taken;
}

[[maybe_unused]] const bool kHasACore = take_a_core();

}  // namespace
