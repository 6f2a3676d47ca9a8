// SPDX-License-Identifier: Apache-2.0
// number_text.hpp - numbers as people give them, read strictly: decimal digits and nothing before
// or behind them but, for a number below 0, one '-'. What does not fit the type is no number
// either.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace frt::host {

// Why `text` is no `Number` from `least` to `most`; empty if it is one, which is in `value` then.
template <class Number>
std::string read_number(std::string_view text, Number& value,
                        Number least = std::numeric_limits<Number>::lowest(),
                        Number most = std::numeric_limits<Number>::max()) {
  Number read{};
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, read);
  // A minus sign makes no unsigned number, but a number out of range it is.
  const bool below = std::unsigned_integral<Number> && text.size() > 1 && text[0] == '-' &&
                     text.find_first_not_of("0123456789", 1) == std::string_view::npos;
  const bool fits = code == std::errc() && read >= least && read <= most;
  if (!below && (stop != end || (code != std::errc() && code != std::errc::result_out_of_range))) {
    return fmt::format("'{}' is no {}", text, std::integral<Number> ? "whole number" : "number");
  }
  // Comparisons with NaN fail, infinity is above the largest number.
  if (below || !fits) return fmt::format("'{}' is outside {} to {}", text, least, most);
  value = read;
  return {};
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  return read_number(text, value).empty() ? std::optional(value) : std::nullopt;
}

}  // namespace frt::host
