// SPDX-License-Identifier: Apache-2.0
// json.dumps of CPython, with ensure_ascii=False. Floats are repr(): the shortest digits that read
// back to the same double (what std::to_chars gives), in positional form while the decimal exponent
// is in [-4, 16), else with an exponent of at least two digits and an explicit sign.
#include <frt/io/json_text.hpp>
#include <frt/models/json.hpp>

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace frt::models {

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, std::abs(value), std::chars_format::scientific);
  // d[.ddd]e+-XX  ->  digits "dddd" with the point after the first, and the exponent.
  const std::string_view text(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  const std::string_view power = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
  std::from_chars(power.data(), power.data() + power.size(), exponent);

  std::string out = std::signbit(value) ? "-" : "";
  const auto count = static_cast<int>(digits.size());
  if (exponent >= 16 || exponent < -4) {
    out += digits[0];
    if (count > 1) out.append(".").append(digits, 1);
    const int size = std::abs(exponent);
    return out + (exponent < 0 ? "e-" : "e+") + (size < 10 ? "0" : "") + std::to_string(size);
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  }
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto whole = static_cast<std::size_t>(exponent + 1);
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string python_json(const Json& value) {
  return io::json_text(
      value, {.bad = io::BadUtf8::kReplace, .comma = ", ", .colon = ": ", .number = python_float});
}

}  // namespace frt::models
