// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program: a disk on which fsync() and fdatasync() take FRT_TEST_SYNC_MS longer.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int slow(const char* function, int file) {
  const char* text = getenv("FRT_TEST_SYNC_MS");
  const long ms = text ? atol(text) : 0;
  const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&pause, NULL);
  int (*real)(int);
  *(void**)&real = dlsym(RTLD_NEXT, function);
  return real(file);
}

int fsync(int file) {
  return slow("fsync", file);
}

int fdatasync(int file) {
  return slow("fdatasync", file);
}
