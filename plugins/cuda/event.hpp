// SPDX-License-Identifier: Apache-2.0
// event.hpp - a point in a stream's order that streams and hosts can wait for.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <cstdint>

namespace frt::cuda {

class Device;

class Event {
 public:
  Event(Device& device, uint32_t flags);  // [setup]
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Device& device() const noexcept { return device_; }
  cudaEvent_t native() const noexcept { return event_; }

  frt_status query() noexcept;  // [hot]
  frt_status sync() noexcept;   // [driver]
  // Milliseconds from the last record of `start` to that of `end`; both must be finished. [driver]
  static frt_status elapsed(Event& start, Event& end, double& ms) noexcept;

  // ---- for Stream ----
  bool recorded() const noexcept { return recorded_; }
  void set_recorded() noexcept { recorded_ = true; }

 private:
  Device& device_;
  const bool timing_;
  bool recorded_ = false;
  cudaEvent_t event_ = nullptr;
};

}  // namespace frt::cuda
