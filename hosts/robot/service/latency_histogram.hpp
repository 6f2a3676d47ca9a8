// SPDX-License-Identifier: Apache-2.0
// latency_histogram.hpp - durations in buckets of fixed bounds, for /metrics.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "net/metrics_text.hpp"

namespace frt::host {

class LatencyHistogram {
 public:
  // Seconds; a duration is in the first bucket whose bound is not below it.
  static constexpr std::array<double, 14> kBounds = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                                     0.1,    0.2,   0.5,   1,     2,    5,    10};

  void add(double seconds) noexcept;  // [hot], and [any]
  // The family `name`, for people `help`.  [any]
  void write(MetricsText& out, std::string_view name, std::string_view help) const;

 private:
  std::array<std::atomic<uint64_t>, kBounds.size() + 1> counts_{};  // the last one: above
  std::atomic<double> sum_{0};
};

// What the answer to a request is made of.
struct ServiceTimes {
  LatencyHistogram wait;       // from its last byte to its turn
  LatencyHistogram inference;  // on the device
  LatencyHistogram request;    // from its last byte to the reply
};

}  // namespace frt::host
