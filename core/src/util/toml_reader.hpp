// SPDX-License-Identifier: Apache-2.0
// toml_reader.hpp - TOML as a plain tree in file order, with the position of every key and value.
// The one place that knows the TOML library.
#pragma once

#include <frt/core/diagnostic.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace frt::core {

struct TomlMember;

struct TomlNode {
  enum class Kind { kTable, kArray, kString, kInteger, kFloat, kBool, kTime };
  Kind kind = Kind::kTable;
  SourcePosition position;
  std::string text;                 // kString
  int64_t integer = 0;              // kInteger; kBool: 0 or 1
  double number = 0;                // kFloat
  std::vector<TomlMember> members;  // kTable, in file order
  std::vector<TomlNode> items;      // kArray

  // The member called `key`, or null.
  const TomlMember* find(std::string_view key) const noexcept;
};

struct TomlMember {
  std::string key;
  SourcePosition key_position;
  TomlNode value;
};

// "a table", "text", "a whole number", ... for messages.  [any]
const char* toml_kind_name(TomlNode::Kind kind) noexcept;

// Parses `text`, within the limits of toml_bounds.hpp. A syntax error, or a text beyond a limit,
// becomes one finding in `diagnostics` and an empty table.  [any]
TomlNode parse_toml(std::string_view text, const SourceText& source, Diagnostics& diagnostics);

// True for keys that are free: they start with "x-".  [any]
inline bool is_free_key(std::string_view key) noexcept {
  return key.starts_with("x-");
}

}  // namespace frt::core
