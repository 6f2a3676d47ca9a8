// SPDX-License-Identifier: Apache-2.0
#include "robot/service/latency_histogram.hpp"

#include <algorithm>

namespace frt::host {

void LatencyHistogram::add(double seconds) noexcept {
  const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(seconds, std::memory_order_relaxed);
}

void LatencyHistogram::write(MetricsText& out, std::string_view name, std::string_view help) const {
  std::array<uint64_t, kBounds.size() + 1> counts{};
  uint64_t count = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    count += counts[i] = counts_[i].load(std::memory_order_relaxed);
  }
  out.family(name, "histogram", help);
  out.histogram(kBounds, counts, count, sum_.load(std::memory_order_relaxed));
}

}  // namespace frt::host
