// SPDX-License-Identifier: Apache-2.0
// latency.hpp - many durations, few numbers: percentiles, jitter, a histogram.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace frt::host {

struct LatencySummary {
  uint64_t count = 0;
  double p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
  double jitter() const noexcept { return p999 - p50; }
};

// Keeps the last `capacity` values in memory that is there from the start: add() allocates nothing.
// One thread at a time.
class LatencySeries {
 public:
  explicit LatencySeries(std::size_t capacity = std::size_t{1} << 16);

  void add(double value) noexcept {  // [hot]
    values_[count_++ % values_.size()] = value;
  }
  uint64_t count() const noexcept { return count_; }
  // What is kept, in no order.
  std::vector<double> values() const;
  // By nearest rank: each percentile is a value that occurred. Zeros if there is none.
  LatencySummary summary() const;

 private:
  std::vector<double> values_;
  uint64_t count_ = 0;
};

// "p50 1.20  p90 1.31  p99 1.50  p99.9 1.71  max 2.01  jitter 0.51 ms (400 values)".
std::string to_text(const LatencySummary& summary, const std::string& unit = "ms");

// A histogram of at most `rows` lines over [lowest, p99.9], for a terminal; the last row takes what
// is above.
std::string histogram(std::vector<double> values, std::size_t rows, std::size_t width,
                      const std::string& unit = "ms");

}  // namespace frt::host
