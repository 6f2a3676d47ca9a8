// SPDX-License-Identifier: Apache-2.0
// frt/io/json_text.hpp - the one JSON writer: the inverse of frt/io/json.hpp. The library's own
// dump() would write a kBigInteger as an object of bytes.
#pragma once

#include <frt/io/json.hpp>

#include <string>
#include <string_view>

namespace frt::io {

// What stands for a character that is no UTF-8.
enum class BadUtf8 { kRefuse, kReplace };  // kReplace: U+FFFD

struct JsonStyle {
  int indent = -1;  // spaces per level; below 0: all in one line
  BadUtf8 bad = BadUtf8::kRefuse;
  // In one line: what stands between members, and between a key and its value.
  std::string_view comma = ",", colon = ":";
  // How a float is written; null: the shortest digits that read back to the same double, and `null`
  // for what is no number.
  std::string (*number)(double value) = nullptr;
};

// The value as JSON text, with all digits of a kBigInteger. FRT_ERR_INVALID_ARGUMENT for nesting
// beyond 512, for binary values of another kind, and for strings that are no UTF-8, unless the
// style replaces those.  [any]
std::string json_text(const Json& value, const JsonStyle& style = {});

}  // namespace frt::io
