// SPDX-License-Identifier: Apache-2.0
#include "allocations.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kMost = 256;

struct Watch {
  bool on = false;
  std::size_t count = 0;
  std::array<const void*, kMost> callers{};
};
// Of the program itself, so reaching it allocates nothing.
thread_local Watch watch;

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
namespace frt::conformance {
bool counts_allocations() noexcept {
  return false;
}
}  // namespace frt::conformance
#else
namespace {

void note(const void* caller) {
  if (watch.on && watch.count < kMost) watch.callers[watch.count++] = caller;
}

}  // namespace

#define FRT_NOTE_CALLER() note(__builtin_return_address(0))

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* pointer, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  FRT_NOTE_CALLER();
  return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t bytes) {
  FRT_NOTE_CALLER();
  return __libc_calloc(count, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* pointer, std::size_t bytes) {
  FRT_NOTE_CALLER();
  return __libc_realloc(pointer, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t bytes) {
  FRT_NOTE_CALLER();
  return __libc_memalign(alignment, bytes);
}
}

// The deleting functions of the library call free(), which takes what these give. Not inlined, or
// the compiler sees free() meet operator new and warns.
__attribute__((visibility("default"), noinline)) void* operator new(std::size_t bytes) {
  FRT_NOTE_CALLER();
  if (void* pointer = __libc_malloc(bytes > 0 ? bytes : 1)) return pointer;
  throw std::bad_alloc();
}
__attribute__((visibility("default"), noinline)) void* operator new[](std::size_t bytes) {
  FRT_NOTE_CALLER();
  if (void* pointer = __libc_malloc(bytes > 0 ? bytes : 1)) return pointer;
  throw std::bad_alloc();
}
__attribute__((visibility("default"), noinline)) void operator delete(void* pointer) noexcept {
  std::free(pointer);
}
__attribute__((visibility("default"), noinline)) void operator delete(void* pointer,
                                                                      std::size_t) noexcept {
  std::free(pointer);
}

namespace frt::conformance {
bool counts_allocations() noexcept {
  return true;
}
}  // namespace frt::conformance
#endif

namespace frt::conformance {

uint64_t allocations_of(const void* function, const std::function<void()>& call) {
  watch.count = 0;
  watch.on = true;
  try {
    call();
  } catch (...) {
    watch.on = false;
    throw;
  }
  watch.on = false;
  Dl_info plugin{};
  if (::dladdr(function, &plugin) == 0) return 0;
  uint64_t count = 0;
  for (std::size_t i = 0; i < watch.count; ++i) {
    Dl_info caller{};
    if (::dladdr(watch.callers[i], &caller) != 0 && caller.dli_fbase == plugin.dli_fbase) ++count;
  }
  return count;
}

}  // namespace frt::conformance
