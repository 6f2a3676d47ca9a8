// SPDX-License-Identifier: Apache-2.0
#include "robot/control/latency.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace frt::host {

LatencySeries::LatencySeries(std::size_t capacity) : values_(std::max<std::size_t>(capacity, 1)) {}

std::vector<double> LatencySeries::values() const {
  const auto kept = static_cast<std::ptrdiff_t>(std::min<uint64_t>(count_, values_.size()));
  return {values_.begin(), values_.begin() + kept};
}

LatencySummary LatencySeries::summary() const {
  std::vector<double> sorted = values();
  LatencySummary summary;
  summary.count = count_;
  if (sorted.empty()) return summary;
  std::sort(sorted.begin(), sorted.end());
  const auto rank = [&](double share) {
    const auto index = static_cast<std::size_t>(std::ceil(share * double(sorted.size())));
    return sorted[std::clamp<std::size_t>(index, 1, sorted.size()) - 1];
  };
  summary.p50 = rank(0.5);
  summary.p90 = rank(0.9);
  summary.p99 = rank(0.99);
  summary.p999 = rank(0.999);
  summary.max = sorted.back();
  return summary;
}

std::string to_text(const LatencySummary& s, const std::string& unit) {
  return fmt::format(
      "p50 {:.3f}  p90 {:.3f}  p99 {:.3f}  p99.9 {:.3f}  max {:.3f}  jitter {:.3f} {} ({} values)",
      s.p50, s.p90, s.p99, s.p999, s.max, s.jitter(), unit, s.count);
}

std::string histogram(std::vector<double> values, std::size_t rows, std::size_t width,
                      const std::string& unit) {
  if (values.empty() || rows == 0) return {};
  std::sort(values.begin(), values.end());
  const double low = values.front();
  const double high = values[static_cast<std::size_t>(0.999 * double(values.size() - 1))];
  const double step = std::max((high - low) / double(rows), 1e-9);
  std::vector<std::size_t> count(rows);
  for (const double value : values) {
    ++count[std::min(static_cast<std::size_t>((value - low) / step), rows - 1)];
  }
  const std::size_t most = *std::max_element(count.begin(), count.end());
  std::string out;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t bar = (count[row] * width + most - 1) / most;
    out += fmt::format("{:>9.3f} {} {:<{}} {}\n", low + step * double(row), unit,
                       std::string(bar, '#'), width, count[row]);
  }
  return out;
}

}  // namespace frt::host
