// SPDX-License-Identifier: Apache-2.0
// A library with thread-local storage of its own, in a block of 8 bytes.
#include <cstdlib>

namespace {
thread_local void* kept;
}

extern "C" void* keep_thread_locally() {
  kept = std::malloc(100);
  return &kept;
}

void* volatile lost;
extern "C" void leak() {
  lost = std::malloc(200);
  lost = nullptr;
}
