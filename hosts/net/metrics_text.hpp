// SPDX-License-Identifier: Apache-2.0
// metrics_text.hpp - counters and histograms as Prometheus reads them (text format 0.0.4).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frt::host {

// Builds one page. The samples of a family follow its head.
class MetricsText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // `type`: "counter", "gauge" or "histogram".
  void family(std::string_view name, std::string_view type, std::string_view help);
  // Of the last family. Values of labels may be any text.
  void sample(uint64_t value, const Labels& labels = {});
  // `counts` by bucket, not cumulative, one more than `bounds`.
  void histogram(std::span<const double> bounds, std::span<const uint64_t> counts, uint64_t count,
                 double sum, const Labels& labels = {});

  std::string take() noexcept { return std::move(text_); }

 private:
  void line(std::string_view suffix, const Labels& labels, const std::string& value);

  std::string text_, name_;
};

}  // namespace frt::host
