// SPDX-License-Identifier: Apache-2.0
// hangup.hpp - SIGHUP as services know it: read your settings again.
#pragma once

#include <functional>
#include <thread>

namespace frt::host {

// While an object lives, each SIGHUP has `work` run on a thread of its own, once for those that
// come together. Made before an InterruptGuard, which then leaves SIGHUP alone. One at a time.
class HangupWatch {
 public:
  // `work` does not throw. Throws FRT_ERR_IO without descriptors.
  explicit HangupWatch(std::function<void()> work);
  ~HangupWatch();  // waits for `work`
  HangupWatch(const HangupWatch&) = delete;
  HangupWatch& operator=(const HangupWatch&) = delete;

 private:
  void run();

  const std::function<void()> work_;
  std::thread thread_;
};

}  // namespace frt::host
