// SPDX-License-Identifier: Apache-2.0
// The count is odd while a call runs. A handler that looks between two calls may get the texts of
// the later one with the number of the earlier one; both calls are over or running then, and all
// texts are alive.
#include "runtime/plugin_call.hpp"

#include <atomic>

namespace frt::host {
namespace {

std::atomic<uint64_t> count{0};
std::atomic<const char*> running_sender{nullptr}, running_function{nullptr};
std::atomic<bool> running_in_tick{false};
static_assert(std::atomic<uint64_t>::is_always_lock_free);  // used in a handler
static_assert(std::atomic<const char*>::is_always_lock_free);

}  // namespace

PluginCall::PluginCall(const char* sender, const char* function, bool in_tick) noexcept {
  running_sender.store(sender, std::memory_order_relaxed);
  running_function.store(function, std::memory_order_relaxed);
  running_in_tick.store(in_tick, std::memory_order_relaxed);
  count.fetch_add(1, std::memory_order_release);
}

PluginCall::~PluginCall() {
  count.fetch_add(1, std::memory_order_release);
}

RunningCall running_call() noexcept {
  const uint64_t number = count.load(std::memory_order_acquire);
  if (number % 2 == 0) return {};
  return {number, running_sender.load(std::memory_order_relaxed),
          running_function.load(std::memory_order_relaxed),
          running_in_tick.load(std::memory_order_relaxed)};
}

bool had_plugin_call() noexcept {
  return count.load(std::memory_order_relaxed) != 0;
}

}  // namespace frt::host
