// SPDX-License-Identifier: Apache-2.0
// Work that is cut into tasks, which a few threads take one by one.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace frt::models {

// Runs body(0) .. body(tasks - 1) on up to `threads` threads, the caller's among them, until one
// throws; throws that again once all have ended.
template <class Body>
void for_each_task(std::size_t tasks, unsigned threads, const Body& body) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  std::exception_ptr first_error;
  std::mutex error_mutex;
  const auto work = [&] {
    try {
      for (std::size_t i; !stop && (i = next++) < tasks;) body(i);
    } catch (...) {
      stop = true;
      const std::lock_guard lock(error_mutex);
      if (!first_error) first_error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> pool;
    try {
      for (std::size_t t = 1; t < threads && t < tasks; ++t) pool.emplace_back(work);
    } catch (const std::system_error&) {
      // Fewer threads are slower, that is all.
    }
    work();
  }
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace frt::models
