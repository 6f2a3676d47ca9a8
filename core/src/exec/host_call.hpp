// SPDX-License-Identifier: Apache-2.0
// host_call.hpp - functions of a user that a stream calls, and how long what they use must live.
//
// A recorded call lives with its variant: the backend calls the user's function itself. A call in
// an eager stream is over when it was made; nobody may release anything on the backend's thread,
// so the driver's thread does it later.
#pragma once

#include <frt/exec.h>

#include <atomic>
#include <deque>
#include <memory>

namespace frt::core {

// What to release once no call can come any more.
struct HostCall {
  void* user;
  void (*release)(void* user);  // may be null

  // Calls it. What it throws is the context's last error, and in the log.  [driver]
  void finish(frt_context_s& context) const noexcept;
};

// A call in an eager stream.
struct EagerCall {
  void (*call)(void* user);
  HostCall held;
  std::atomic<bool> done{false};  // set by the backend's thread
};

using EagerCalls = std::deque<std::unique_ptr<EagerCall>>;

}  // namespace frt::core
