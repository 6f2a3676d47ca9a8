// SPDX-License-Identifier: Apache-2.0
// plugin_call.hpp - the call into an environment that runs now. A program that a signal ends says
// which call did not come back.
#pragma once

#include <atomic>
#include <cstdint>

namespace frt::host {

namespace detail {
// The count is odd while a call runs. A handler that looks between two calls may get the texts of
// the later one with the number of the earlier one. All texts are alive then.
struct CallSlot {
  std::atomic<uint64_t> count{0};
  std::atomic<const char*> sender{nullptr}, function{nullptr};
  std::atomic<bool> in_tick{false};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);  // used in a handler
static_assert(std::atomic<const char*>::is_always_lock_free);
inline CallSlot call_slot;
}  // namespace detail

// A running call. Its texts outlive it.
struct RunningCall {
  uint64_t number = 0;  // 0: none runs; each call has another one
  const char* sender = nullptr;
  const char* function = nullptr;
  bool in_tick = false;  // of `step` and what belongs to one: it does not take seconds
};

// While it lives, running_call() gives this call. A few stores, no lock. Only one lives at a time,
// of whichever thread.  [hot]
class PluginCall {
 public:
  PluginCall(const char* sender, const char* function, bool in_tick) noexcept {
    detail::call_slot.sender.store(sender, std::memory_order_relaxed);
    detail::call_slot.function.store(function, std::memory_order_relaxed);
    detail::call_slot.in_tick.store(in_tick, std::memory_order_relaxed);
    detail::call_slot.count.fetch_add(1, std::memory_order_release);
  }
  ~PluginCall() { detail::call_slot.count.fetch_add(1, std::memory_order_release); }
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;
};

// For a signal handler, on any thread.
inline RunningCall running_call() noexcept {
  const uint64_t number = detail::call_slot.count.load(std::memory_order_acquire);
  if (number % 2 == 0) return {};
  return {number, detail::call_slot.sender.load(std::memory_order_relaxed),
          detail::call_slot.function.load(std::memory_order_relaxed),
          detail::call_slot.in_tick.load(std::memory_order_relaxed)};
}

// Whether there was ever a call.
inline bool had_plugin_call() noexcept {
  return detail::call_slot.count.load(std::memory_order_relaxed) != 0;
}

}  // namespace frt::host
