// SPDX-License-Identifier: Apache-2.0
#include "event.hpp"

#include <chrono>

#include "graph.hpp"

namespace frt::cpu {

frt_status Event::query() const noexcept {
  if (!mark_.progress) return FRT_OK;
  return mark_.progress->value() >= mark_.number ? FRT_OK : FRT_ERR_NOT_READY;
}

frt_status Event::sync() const noexcept {
  if (mark_.progress) mark_.progress->wait(mark_.number, device_.host_spin());
  return FRT_OK;
}

void Event::stamp(uint64_t record) noexcept {
  if (record != records_.load(std::memory_order_relaxed)) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  nanoseconds_.store(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(),
                     std::memory_order_relaxed);
}

frt_status Event::elapsed(const Event& start, const Event& end, double& ms) noexcept {
  if (!start.timing_ || !end.timing_) return FRT_ERR_INVALID_ARGUMENT;
  if (!start.mark_.progress || !end.mark_.progress) return FRT_ERR_BAD_STATE;
  for (const Event* event : {&start, &end}) {
    if (const frt_status status = event->query(); status != FRT_OK) return status;
  }
  // query() acquired the progress that the stamps were published with.
  const int64_t difference = end.nanoseconds_.load(std::memory_order_relaxed) -
                             start.nanoseconds_.load(std::memory_order_relaxed);
  ms = static_cast<double>(difference) * 1e-6;
  return FRT_OK;
}

}  // namespace frt::cpu
