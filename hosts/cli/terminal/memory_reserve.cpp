// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/memory_reserve.hpp"

#include <atomic>
#include <cstddef>
#include <new>

namespace frt::host {
namespace {

constexpr std::size_t kPartBytes = std::size_t{1} << 20;  // an array of 65,536 values takes that

std::atomic<void*> for_destructors{nullptr}, for_unwinding{nullptr};

bool give_back(std::atomic<void*>& part) noexcept {
  void* held = part.exchange(nullptr);
  ::operator delete(held);
  return held != nullptr;
}

void when_an_allocation_fails() {
  if (give_back(for_destructors)) return;  // it is tried again
  give_back(for_unwinding);
  throw std::bad_alloc();
}

}  // namespace

void fill_memory_reserve() noexcept {
  if (for_unwinding.load() != nullptr && for_destructors.load() != nullptr) return;
  std::set_new_handler(nullptr);  // one part is not taken from the other
  for (std::atomic<void*>* part : {&for_unwinding, &for_destructors}) {
    if (part->load() != nullptr) continue;
    ::operator delete(part->exchange(::operator new(kPartBytes, std::nothrow)));
  }
  std::set_new_handler(when_an_allocation_fails);
}

}  // namespace frt::host
