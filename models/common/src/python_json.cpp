// SPDX-License-Identifier: Apache-2.0
// json.dumps of CPython, with ensure_ascii=False. Floats are repr(): the shortest digits that read
// back to the same double (what std::to_chars gives), in positional form while the decimal exponent
// is in [-4, 16), else with an exponent of at least two digits and an explicit sign.
#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/models/json.hpp>

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace frt::models {
namespace {

constexpr std::size_t kDeepest = 512;

void write_string(const std::string& text, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (byte < 0x20) {
          out += "\\u00";
          out += kHex[byte >> 4];
          out += kHex[byte & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void write(const Json& value, std::size_t depth, std::string& out) {
  if (depth > kDeepest) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "a JSON value is nested deeper than " +
                                              std::to_string(kDeepest) + " and cannot be written");
  }
  const char* separator = "";
  switch (value.type()) {
    case Json::value_t::null:
      out += "null";
      return;
    case Json::value_t::boolean:
      out += value.get<bool>() ? "true" : "false";
      return;
    case Json::value_t::number_integer:
      out += std::to_string(value.get<std::int64_t>());
      return;
    case Json::value_t::number_unsigned:
      out += std::to_string(value.get<std::uint64_t>());
      return;
    case Json::value_t::number_float:
      out += python_float(value.get<double>());
      return;
    case Json::value_t::string:
      write_string(value.get_ref<const std::string&>(), out);
      return;
    case Json::value_t::array:
      out += '[';
      for (const Json& item : value) {
        out += separator;
        write(item, depth + 1, out);
        separator = ", ";
      }
      out += ']';
      return;
    case Json::value_t::object:
      out += '{';
      for (const auto& [key, item] : value.get_ref<const Json::object_t&>()) {
        out += separator;
        write_string(key, out);
        out += ": ";
        write(item, depth + 1, out);
        separator = ", ";
      }
      out += '}';
      return;
    case Json::value_t::binary:
      if (const auto& digits = value.get_binary();
          digits.has_subtype() && digits.subtype() == io::kBigInteger) {
        out.append(digits.begin(), digits.end());
        return;
      }
      [[fallthrough]];
    case Json::value_t::discarded:
      break;
  }
  throw Error(FRT_ERR_INVALID_ARGUMENT, "a binary JSON value cannot be written as text");
}

}  // namespace

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
  std::string out;
  write(value, 0, out);
  return out;
}

}  // namespace frt::models
