// SPDX-License-Identifier: Apache-2.0
#include "util/toml_reader.hpp"

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <cstdio>

namespace frt::core {

namespace {

SourcePosition position_of(const toml::source_region& region) {
  SourcePosition position;
  position.line = region.begin.line;
  position.column = region.begin.column;
  if (region.end.line == region.begin.line && region.end.column > region.begin.column) {
    position.length = region.end.column - region.begin.column;
  }
  return position;
}

TomlNode convert(const toml::node& node) {
  TomlNode result;
  result.position = position_of(node.source());
  if (const toml::table* table = node.as_table()) {
    result.kind = TomlNode::Kind::kTable;
    for (const auto& [key, value] : *table) {
      result.members.push_back({std::string(key.str()), position_of(key.source()), convert(value)});
    }
    // The library sorts keys by name; people expect the order they wrote.
    std::stable_sort(result.members.begin(), result.members.end(),
                     [](const TomlMember& a, const TomlMember& b) {
                       return std::pair(a.key_position.line, a.key_position.column) <
                              std::pair(b.key_position.line, b.key_position.column);
                     });
  } else if (const toml::array* array = node.as_array()) {
    result.kind = TomlNode::Kind::kArray;
    for (const toml::node& item : *array) result.items.push_back(convert(item));
  } else if (const auto* text = node.as_string()) {
    result.kind = TomlNode::Kind::kString;
    result.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    result.kind = TomlNode::Kind::kInteger;
    result.integer = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    result.kind = TomlNode::Kind::kFloat;
    result.number = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    result.kind = TomlNode::Kind::kBool;
    result.integer = boolean->get() ? 1 : 0;
  } else {
    result.kind = TomlNode::Kind::kTime;
  }
  return result;
}

// The library's texts name its inner step first ("Error while parsing key-value pair: ...").
std::string short_description(std::string_view description) {
  constexpr std::string_view kPrefix = "Error while parsing ";
  if (description.starts_with(kPrefix)) {
    description.remove_prefix(kPrefix.size());
    return "TOML syntax, in " + std::string(description);
  }
  return "TOML syntax: " + std::string(description);
}

}  // namespace

const TomlMember* TomlNode::find(std::string_view key) const noexcept {
  for (const TomlMember& member : members) {
    if (member.key == key) return &member;
  }
  return nullptr;
}

const char* toml_kind_name(TomlNode::Kind kind) noexcept {
  switch (kind) {
    case TomlNode::Kind::kTable:
      return "a table";
    case TomlNode::Kind::kArray:
      return "an array";
    case TomlNode::Kind::kString:
      return "text";
    case TomlNode::Kind::kInteger:
      return "a whole number";
    case TomlNode::Kind::kFloat:
      return "a fractional number";
    case TomlNode::Kind::kBool:
      return "true or false";
    case TomlNode::Kind::kTime:
      return "a date or time";
  }
  return "?";
}

TomlNode parse_toml(std::string_view text, const SourceText& source, Diagnostics& diagnostics) {
  try {
    return convert(toml::parse(text, std::string(source.name())));
  } catch (const toml::parse_error& error) {
    SourcePosition position = position_of(error.source());
    // At the very end of a text the library points behind the last line.
    if (position.line > 1 && source.line(position.line).empty()) {
      while (position.line > 1 && source.line(position.line).empty()) --position.line;
      position.column = static_cast<uint32_t>(source.line(position.line).size()) + 1;
    }
    diagnostics.error(FRT_ERR_FORMAT, position, short_description(error.description()));
    return {};
  }
}

std::string toml_quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04X", byte);
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string toml_key(std::string_view key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  return bare ? std::string(key) : toml_quote(key);
}

}  // namespace frt::core
