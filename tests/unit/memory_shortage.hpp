// SPDX-License-Identifier: Apache-2.0
// memory_shortage.hpp - memory that runs out: every operator new of the program fails from the n-th
// on. One file of a program includes it.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace frt::test {

inline constexpr int64_t kPlenty = INT64_MAX;
inline std::atomic<int64_t> allocations_left{kPlenty};

// A block of this size is not to be had then; one that is given back is worth so many allocations.
inline constexpr std::size_t kLargeBlock = std::size_t{1} << 20;
inline constexpr int64_t kLargeBlockWorth = 1000;

inline void* limited_new(std::size_t bytes, std::size_t alignment) {
  for (;;) {
    if (allocations_left.load() == kPlenty ||
        (bytes < kLargeBlock && allocations_left.fetch_sub(1) > 0)) {
      bytes = (bytes + alignment - 1) / alignment * alignment;
      void* pointer = std::aligned_alloc(alignment, bytes > 0 ? bytes : alignment);
      if (pointer) return pointer;
    }
    const std::new_handler handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
}

inline void limited_delete(void* pointer) noexcept {
  if (allocations_left.load() != kPlenty && malloc_usable_size(pointer) >= kLargeBlock) {
    allocations_left = kLargeBlockWorth;
  }
  std::free(pointer);
}

}  // namespace frt::test

// Not inlined: GCC takes the halves of a pair for a mismatch where it sees only one of them.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return frt::test::limited_new(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return frt::test::limited_new(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return frt::test::limited_new(bytes, alignof(std::max_align_t));
} catch (const std::bad_alloc&) {
  return nullptr;
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept {
  frt::test::limited_delete(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept {
  frt::test::limited_delete(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::align_val_t) noexcept {
  frt::test::limited_delete(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept {
  frt::test::limited_delete(pointer);
}
