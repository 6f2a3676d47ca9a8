// SPDX-License-Identifier: Apache-2.0
// host_call.hpp - functions of a user that a stream calls, and how long what they use must live.
//
// The backend calls run(), which lets nothing through that a function throws. A recorded call lives
// with its variant. A call in an eager stream is over when it was made; nobody may release anything
// on the backend's thread, so the driver's thread does it later.
#pragma once

#include <frt/exec.h>

#include <atomic>
#include <deque>
#include <memory>

namespace frt::core {

struct HostCall {
  HostCall(frt_host_function called, void* with) noexcept : function(called), user(with) {}

  const frt_host_function function;
  void* const user;
  void (*release)(void* user) = nullptr;  // may be null
  std::atomic<bool> done{false};          // called at least once; set by the backend's thread

  // The function, for the backend: `call` is a HostCall. What it throws is FRT_ERR_CALLBACK.
  static frt_status run(void* call, frt_error* error) noexcept;
  // Releases what it holds. What that throws is the context's last error, and in the log.  [driver]
  void finish(frt_context_s& context) const noexcept;
};

// Whole objects, because the backend keeps their addresses.
using HostCalls = std::deque<std::unique_ptr<HostCall>>;

}  // namespace frt::core
