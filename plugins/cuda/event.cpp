// SPDX-License-Identifier: Apache-2.0
#include "event.hpp"

#include <initializer_list>

#include "device.hpp"

namespace frt::cuda {

Event::Event(Device& device, uint32_t flags)
    : device_(device), timing_((flags & FRT_EVENT_TIMING) != 0) {
  device_.enter("event_create");
  device_.check(
      cudaEventCreateWithFlags(&event_, timing_ ? cudaEventDefault : cudaEventDisableTiming),
      "event_create");
}

Event::~Event() {
  device_.make_current();
  cudaEventDestroy(event_);
  cudaGetLastError();
}

frt_status Event::query() noexcept {
  if (const frt_status status = device_.enter(); status != FRT_OK) return status;
  return device_.note(cudaEventQuery(event_));
}

frt_status Event::sync() noexcept {
  if (const frt_status status = device_.enter(); status != FRT_OK) return status;
  return device_.note(cudaEventSynchronize(event_));
}

frt_status Event::elapsed(Event& start, Event& end, double& ms) noexcept {
  if (!start.timing_ || !end.timing_) return FRT_ERR_INVALID_ARGUMENT;
  if (&start.device_ != &end.device_) return FRT_ERR_MISMATCH;
  if (!start.recorded_ || !end.recorded_) return FRT_ERR_BAD_STATE;
  for (Event* event : {&start, &end}) {
    if (const frt_status status = event->query(); status != FRT_OK) return status;
  }
  float value = 0;
  const frt_status status =
      start.device_.note(cudaEventElapsedTime(&value, start.event_, end.event_));
  if (status == FRT_OK) ms = static_cast<double>(value);
  return status;
}

}  // namespace frt::cuda
