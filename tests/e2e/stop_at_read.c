// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program: it stops itself (SIGSTOP), once, when it has read FRT_TEST_STOP_AFTER
// bytes or more of the file FRT_TEST_STOP_AT by pread(), before it sees the last of them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_watched(int file) {
  const char* watched = getenv("FRT_TEST_STOP_AT");
  char link[64];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path);
  return watched && length > 0 && (size_t)length == strlen(watched) &&
         memcmp(path, watched, (size_t)length) == 0;
}

static ssize_t watched_read(const char* function, int file, void* to, size_t bytes, off_t at) {
  static atomic_llong read_bytes;
  static atomic_flag stopped = ATOMIC_FLAG_INIT;
  ssize_t (*real)(int, void*, size_t, off_t);
  *(void**)&real = dlsym(RTLD_NEXT, function);
  const ssize_t got = real(file, to, bytes, at);
  if (got > 0 && is_watched(file)) {
    const char* after = getenv("FRT_TEST_STOP_AFTER");
    const long long sum = atomic_fetch_add(&read_bytes, got) + got;
    if (after && sum >= atoll(after) && !atomic_flag_test_and_set(&stopped)) raise(SIGSTOP);
  }
  return got;
}

ssize_t pread(int file, void* to, size_t bytes, off_t at) {
  return watched_read("pread", file, to, bytes, at);
}

ssize_t pread64(int file, void* to, size_t bytes, off64_t at) {
  return watched_read("pread64", file, to, bytes, at);
}
