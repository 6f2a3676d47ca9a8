// SPDX-License-Identifier: Apache-2.0
// plugin_call.hpp - the call into an environment that runs now. A program that a signal ends says
// which call did not come back.
#pragma once

#include <cstdint>

namespace frt::host {

// A running call. Its texts outlive it.
struct RunningCall {
  uint64_t number = 0;  // 0: none runs; each call has another one
  const char* sender = nullptr;
  const char* function = nullptr;
  bool in_tick = false;  // of `step` and what belongs to one: it does not take seconds
};

// While it lives, running_call() gives this call. Three stores, no lock. Only one lives at a time,
// of whichever thread.  [hot]
class PluginCall {
 public:
  PluginCall(const char* sender, const char* function, bool in_tick) noexcept;
  ~PluginCall();
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;
};

// For a signal handler, on any thread.
RunningCall running_call() noexcept;
// Whether there was ever a call.
bool had_plugin_call() noexcept;

}  // namespace frt::host
