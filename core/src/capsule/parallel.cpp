// SPDX-License-Identifier: Apache-2.0
#include "capsule/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace frt::core {

namespace {

constexpr uint64_t kMostThreads = 16;

}  // namespace

void for_each_parallel(uint64_t count, const std::function<void(uint64_t index)>& body) {
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr first;
  const auto work = [&] {
    try {
      for (uint64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i);
    } catch (...) {
      next.store(count);
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  const uint64_t wanted =
      std::min({count, kMostThreads, uint64_t{std::max(1u, std::thread::hardware_concurrency())}});
  {
    std::vector<std::jthread> helpers;
    helpers.reserve(wanted);
    try {
      while (helpers.size() + 1 < wanted) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // Fewer threads, the same work.
    }
    work();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace frt::core
