// SPDX-License-Identifier: Apache-2.0
// parallel.hpp - the chunks of a file on several threads: SHA-256 takes longer than reading.
#pragma once

#include <cstdint>
#include <functional>

namespace frt::core {

// Calls body(i) for every i < count, on this thread and up to 15 more, as many as the machine has.
// The first exception ends it and is thrown here. If the system gives no more threads, those that
// are there do the work.  [any]
void for_each_parallel(uint64_t count, const std::function<void(uint64_t index)>& body);

}  // namespace frt::core
