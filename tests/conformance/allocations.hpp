// SPDX-License-Identifier: Apache-2.0
// allocations.hpp - what a call of a plugin allocates. This program defines malloc and its kin and
// operator new in front of the C library's. An allocation counts for the file whose code asks for
// it, directly or through the C and C++ libraries; what a driver allocates for itself is not the
// plugin's. Allocations of other threads and by mmap do not count.
#pragma once

#include <cstdint>
#include <functional>

namespace frt::conformance {

// False in a build with a sanitizer, which brings functions of its own.
bool counts_allocations() noexcept;

// How often `call` allocates on this thread, by code of the file that has `function`.
uint64_t allocations_of(const void* function, const std::function<void()>& call);

}  // namespace frt::conformance
