// SPDX-License-Identifier: Apache-2.0
#include "allocations.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <frt/plugin.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

namespace {

struct Watch {
  bool on = false;
  const void* file = nullptr;  // whose allocations count: where it is loaded
  uint64_t count = 0;
};
// Of the program itself, so reaching it allocates nothing.
thread_local Watch watch;

}  // namespace

#if FRT_BUILD_SANITIZER != FRT_SANITIZER_NONE
namespace frt::conformance {
bool counts_allocations() noexcept {
  return false;
}
}  // namespace frt::conformance
#else
namespace {

// Libraries that allocate for who calls them: a string that grows does so inside libstdc++.
bool serves_its_caller(const Dl_info& file) {
  if (!file.dli_fname) return false;
  std::string_view name(file.dli_fname);
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  for (const std::string_view library : {"libstdc++.so", "libc++.so", "libc++abi.so", "libc.so"}) {
    if (name.starts_with(library)) return true;
  }
  return false;
}

// The file that asks: the one of `caller`, or what stands above such libraries on the stack.
const void* asking_file(const void* caller) {
  constexpr int kFrames = 16;  // from here up: through the C++ library to who uses it
  std::array<void*, kFrames> frames{};
  ::backtrace(frames.data(), kFrames);
  Dl_info file{};
  if (::dladdr(caller, &file) == 0) return nullptr;
  const auto* frame = std::find(frames.begin(), frames.end(), caller);
  while (serves_its_caller(file)) {
    if (frame == frames.end() || ++frame == frames.end()) return nullptr;
    if (!*frame || ::dladdr(*frame, &file) == 0) return nullptr;
  }
  return file.dli_fbase;
}

void note(const void* caller) {
  if (!watch.on) return;
  watch.on = false;  // unwinding may allocate
  watch.count += asking_file(caller) == watch.file ? 1 : 0;
  watch.on = true;
}

}  // namespace

#define FRT_NOTE_CALLER() note(__builtin_return_address(0))

// In the table of symbols, where the loader finds it before the library's.
#define FRT_ALLOCATOR __attribute__((visibility("default"), noinline))

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* pointer, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

FRT_ALLOCATOR void* malloc(std::size_t bytes) {
  FRT_NOTE_CALLER();
  return __libc_malloc(bytes);
}
FRT_ALLOCATOR void* calloc(std::size_t count, std::size_t bytes) {
  FRT_NOTE_CALLER();
  return __libc_calloc(count, bytes);
}
FRT_ALLOCATOR void* realloc(void* pointer, std::size_t bytes) {
  FRT_NOTE_CALLER();
  return __libc_realloc(pointer, bytes);
}
FRT_ALLOCATOR void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  FRT_NOTE_CALLER();
  return __libc_memalign(alignment, bytes);
}
FRT_ALLOCATOR void* memalign(std::size_t alignment, std::size_t bytes) {
  FRT_NOTE_CALLER();
  return __libc_memalign(alignment, bytes);
}
FRT_ALLOCATOR int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  FRT_NOTE_CALLER();
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) {
    return EINVAL;
  }
  void* const made = __libc_memalign(alignment, bytes);
  if (!made) return ENOMEM;
  *out = made;
  return 0;
}
}

namespace {

// What every operator new gives; alignment 0: that of malloc. NULL where there is no memory.
void* allocated(std::size_t bytes, std::size_t alignment) noexcept {
  bytes = std::max<std::size_t>(bytes, 1);
  return alignment == 0 ? __libc_malloc(bytes) : __libc_memalign(alignment, bytes);
}

void* allocated_or_thrown(std::size_t bytes, std::size_t alignment = 0) {
  if (void* pointer = allocated(bytes, alignment)) return pointer;
  throw std::bad_alloc();
}

}  // namespace

// All deleting functions, those of the library too, call free(), which takes what these give. Not
// inlined, or the compiler sees free() meet operator new and warns.
FRT_ALLOCATOR void* operator new(std::size_t bytes) {
  FRT_NOTE_CALLER();
  return allocated_or_thrown(bytes);
}
FRT_ALLOCATOR void* operator new[](std::size_t bytes) {
  FRT_NOTE_CALLER();
  return allocated_or_thrown(bytes);
}
FRT_ALLOCATOR void* operator new(std::size_t bytes, std::align_val_t alignment) {
  FRT_NOTE_CALLER();
  return allocated_or_thrown(bytes, static_cast<std::size_t>(alignment));
}
FRT_ALLOCATOR void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  FRT_NOTE_CALLER();
  return allocated_or_thrown(bytes, static_cast<std::size_t>(alignment));
}
FRT_ALLOCATOR void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  FRT_NOTE_CALLER();
  return allocated(bytes, 0);
}
FRT_ALLOCATOR void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  FRT_NOTE_CALLER();
  return allocated(bytes, 0);
}
FRT_ALLOCATOR void* operator new(std::size_t bytes, std::align_val_t alignment,
                                 const std::nothrow_t&) noexcept {
  FRT_NOTE_CALLER();
  return allocated(bytes, static_cast<std::size_t>(alignment));
}
FRT_ALLOCATOR void* operator new[](std::size_t bytes, std::align_val_t alignment,
                                   const std::nothrow_t&) noexcept {
  FRT_NOTE_CALLER();
  return allocated(bytes, static_cast<std::size_t>(alignment));
}
FRT_ALLOCATOR void operator delete(void* pointer) noexcept {
  std::free(pointer);
}
FRT_ALLOCATOR void operator delete(void* pointer, std::size_t) noexcept {
  std::free(pointer);
}
FRT_ALLOCATOR void operator delete(void* pointer, std::align_val_t) noexcept {
  std::free(pointer);
}
FRT_ALLOCATOR void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept {
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
  // The first unwinding of a process loads what it needs.
  std::array<void*, 1> here{};
  ::backtrace(here.data(), 1);
  Dl_info plugin{};
  if (::dladdr(function, &plugin) == 0) return 0;
  watch.file = plugin.dli_fbase;
  watch.count = 0;
  watch.on = true;
  try {
    call();
  } catch (...) {
    watch.on = false;
    throw;
  }
  watch.on = false;
  return watch.count;
}

}  // namespace frt::conformance
