// SPDX-License-Identifier: Apache-2.0
// toml_bounds.hpp - what is looked at before a TOML text reaches a parser: the library builds,
// copies and frees its tree with one recursion per level, and a dotted key is a level per part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace frt::core {

constexpr std::size_t kTomlBytes = std::size_t{1} << 20;
constexpr uint32_t kTomlParts = 32;    // of a dotted key or a table's name
constexpr uint32_t kTomlNesting = 16;  // of arrays and inline tables

struct TomlExcess {
  uint32_t line = 1, column = 1;  // in characters, as the parser counts them
  std::string message;
};

// The first place where `text` exceeds a limit.  [any]
std::optional<TomlExcess> find_toml_excess(std::string_view text);

}  // namespace frt::core
