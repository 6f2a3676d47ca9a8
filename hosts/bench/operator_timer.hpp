// SPDX-License-Identifier: Apache-2.0
// operator_timer.hpp - how long each operator takes on the device: puts itself between a context
// and the kernels of its backend, and records an event before and after every launch.
//
// It times eager runs. So that the device never waits for the host between two events, the stream
// is held back (by a call that blocks in it) while a few dozen launches are submitted, then let go.
// What two events with nothing between them measure is taken off.
//
// One timer at a time, one stream, one thread ([driver]).
#pragma once

#include <frt/backend.h>
#include <frt/kernels.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "bench/operator_shape.hpp"

namespace frt::host {

// The calls of one operator on one shape.
struct OperatorTime {
  std::string name;
  OperatorShape shape;
  std::vector<double> microseconds;  // of every call
};

class OperatorTimer {
 public:
  OperatorTimer();
  ~OperatorTimer();
  OperatorTimer(const OperatorTimer&) = delete;
  OperatorTimer& operator=(const OperatorTimer&) = delete;

  // What to register in place of `kernels` (core::RuntimeOptions::watch); `kernels` may be null.
  const frt_kernels_v1* watch(const frt_backend_v1& backend, const frt_kernels_v1* kernels);

  // From here on launches are timed; the stream must be idle.
  void start();
  // After the last launch of a step, before anybody waits for the stream.
  void release() noexcept;
  // Ends timing: waits for the stream, and returns all calls since start(), in the order in which
  // their operators were first called.
  std::vector<OperatorTime> finish();

 private:
  struct Wrapped {
    OperatorTimer* timer;
    std::string name;
    frt_kernel kernel;
  };
  struct Call {
    std::size_t kind;   // in kinds_
    std::size_t event;  // events_[event], events_[event + 1]
  };

  static frt_status list(frt_backend_device device, const frt_kernel_desc** kernels,
                         uint64_t* count, frt_error* error);
  static frt_status launch(void* self, frt_backend_stream stream, const void* args,
                           frt_error* error);
  frt_status wrap_all(frt_backend_device device, frt_error* error);
  frt_status timed(const Wrapped& wrapped, frt_backend_stream stream, const void* args,
                   frt_error* error);
  void hold(frt_backend_stream stream);
  frt_status collect();
  std::size_t kind_of(const std::string& name, const void* args);
  static frt_status wait_at_gate(void* self, frt_error*);

  frt_backend_v1 backend_{};
  const frt_kernels_v1* inner_ = nullptr;
  frt_kernels_v1 table_{};
  frt_backend_device device_ = nullptr;
  std::deque<Wrapped> wrapped_;
  std::vector<frt_kernel_desc> descriptions_;

  bool running_ = false;
  std::vector<frt_backend_event> events_;
  std::vector<Call> calls_;
  std::vector<OperatorTime> kinds_;
  std::vector<double> empty_;  // what pairs without a launch took
  frt_backend_stream stream_ = nullptr;

  std::mutex mutex_;
  std::condition_variable opened_;
  uint64_t gates_ = 0;    // submitted
  uint64_t passed_ = 0;   // that may be passed
  uint64_t at_gate_ = 0;  // the one the stream reached
  std::size_t since_gate_ = 0;
};

}  // namespace frt::host
