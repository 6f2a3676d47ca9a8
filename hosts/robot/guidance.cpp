// SPDX-License-Identifier: Apache-2.0
#include "robot/guidance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <frt/error.hpp>
#include <frt/io/json_text.hpp>
#include <nlohmann/json.hpp>
#include <string_view>

namespace frt::host {
namespace {

std::vector<std::string_view> split(std::string_view text, char divider) {
  std::vector<std::string_view> parts;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t end = std::min(text.find(divider, first), text.size());
    parts.push_back(text.substr(first, end - first));
    first = end + 1;
  }
  return parts;
}

double number(std::string_view part, const std::string& text) {
  const std::size_t first = std::min(part.find_first_not_of(' '), part.size());
  const std::size_t last = part.find_last_not_of(' ');
  part = part.substr(first, last == std::string_view::npos ? 0 : last + 1 - first);
  double value = 0;
  const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (code != std::errc() || end != part.data() + part.size() || !std::isfinite(value)) {
    throw Error(
        FRT_ERR_INVALID_ARGUMENT,
        fmt::format("guidance '{}': '{}' is no strength; expected e.g. 1.5, or one per step: "
                    "2.5,2,1.5",
                    text, part));
  }
  return value;
}

// A row behind the others; all have one width.
void add_row(GuidanceStrengths& strengths, const std::vector<double>& row, frt_status status,
             const std::string& shown) {
  if (strengths.values.empty()) strengths.branches = static_cast<uint32_t>(row.size());
  if (row.size() != strengths.branches || row.empty()) {
    throw Error(status, "guidance " + shown + ": every step needs as many strengths as the first");
  }
  strengths.values.insert(strengths.values.end(), row.begin(), row.end());
}

}  // namespace

bool GuidanceStrengths::none() const noexcept {
  return std::ranges::all_of(values, [](double value) { return value == 1; });
}

std::vector<float> GuidanceStrengths::table(uint32_t steps, uint32_t guided) const {
  for (const double value : values) {
    if (!(value >= 1) || !(value <= kMaxStrength)) {
      throw Error(FRT_ERR_OUT_OF_RANGE,
                  fmt::format("beta = {}: guidance is 1 (none) to {}, 1.5 to 2.5 are usual", value,
                              kMaxStrength));
    }
  }
  const std::size_t rows = values.size() / branches;
  if (rows > steps || (branches != 1 && branches != guided)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                fmt::format("guidance of {} steps and {} branches; the model has {} and {}", rows,
                            branches, steps, guided));
  }
  std::vector<float> table;
  for (std::size_t step = 0; step < steps; ++step) {
    const std::size_t row = std::min(step, rows - 1) * branches;
    for (std::size_t branch = 0; branch < guided; ++branch) {
      table.push_back(static_cast<float>(values[row + (branches == 1 ? 0 : branch)]));
    }
  }
  return table;
}

GuidanceStrengths parse_strengths(const std::string& text) {
  GuidanceStrengths strengths{{}, 1};
  for (const std::string_view step : split(text, ',')) {
    std::vector<double> row;
    for (const std::string_view part : split(step, '|')) row.push_back(number(part, text));
    add_row(strengths, row, FRT_ERR_INVALID_ARGUMENT, "'" + text + "'");
  }
  return strengths;
}

std::string to_text(const GuidanceStrengths& strengths) {
  std::string text;
  for (std::size_t i = 0; i < strengths.values.size(); ++i) {
    if (i > 0) text += i % strengths.branches == 0 ? ", " : "|";
    text += fmt::format("{}", strengths.values[i]);
  }
  return text;
}

nlohmann::ordered_json to_json(const GuidanceStrengths& strengths) {
  if (strengths.values.size() == 1) return strengths.values.front();
  if (strengths.branches == 1) return strengths.values;
  auto rows = nlohmann::ordered_json::array();
  for (std::size_t at = 0; at < strengths.values.size(); at += strengths.branches) {
    const auto first = strengths.values.begin() + static_cast<std::ptrdiff_t>(at);
    rows.push_back(std::vector<double>(first, first + strengths.branches));
  }
  return rows;
}

GuidanceStrengths strengths_from(const nlohmann::ordered_json& json) {
  GuidanceStrengths strengths{{}, 1};
  const auto list = json.is_array() ? json : nlohmann::ordered_json::array({json});
  for (const auto& entry : list) {
    const auto row = entry.is_array() ? entry : nlohmann::ordered_json::array({entry});
    const bool numbers =
        std::ranges::all_of(row, [](const auto& value) { return value.is_number(); });
    if (!numbers) {
      throw Error(FRT_ERR_FORMAT, "guidance " + io::json_text(json) + ": expected numbers");
    }
    add_row(strengths, row.template get<std::vector<double>>(), FRT_ERR_FORMAT,
            io::json_text(json));
  }
  if (strengths.values.empty()) {
    throw Error(FRT_ERR_FORMAT, "guidance " + io::json_text(json) + ": expected a strength");
  }
  return strengths;
}

}  // namespace frt::host
