// SPDX-License-Identifier: Apache-2.0
#include "net/metrics_text.hpp"

#include <fmt/format.h>

namespace frt::host {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::line(std::string_view suffix, const Labels& labels, const std::string& value) {
  text_ += name_;
  text_ += suffix;
  char before = '{';
  for (const auto& [key, label] : labels) {
    text_ += fmt::format("{}{}=\"{}\"", before, key, escaped(label));
    before = ',';
  }
  if (before == ',') text_ += '}';
  text_ += " " + value + "\n";
}

void MetricsText::sample(uint64_t value, const Labels& labels) {
  line("", labels, std::to_string(value));
}

void MetricsText::histogram(std::span<const double> bounds, std::span<const uint64_t> counts,
                            uint64_t count, double sum, const Labels& labels) {
  Labels with = labels;
  with.emplace_back("le", "");
  uint64_t up_to = 0;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    up_to += counts[i];
    with.back().second = fmt::format("{}", bounds[i]);
    line("_bucket", with, std::to_string(up_to));
  }
  with.back().second = "+Inf";
  line("_bucket", with, std::to_string(count));
  line("_sum", labels, fmt::format("{}", sum));
  line("_count", labels, std::to_string(count));
}

}  // namespace frt::host
