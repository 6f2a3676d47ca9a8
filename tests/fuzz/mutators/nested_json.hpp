// SPDX-License-Identifier: Apache-2.0
// nested_json.hpp - JSON text of any depth, right or damaged in some places.
#pragma once

#include <random>
#include <string>
#include <string_view>

namespace frt::test {

// Up to `deepest` levels of arrays and objects, with a few values on the way.
inline std::string nested_json(std::mt19937_64& random, std::size_t deepest) {
  static constexpr std::string_view kValues[] = {"1",
                                                 "-7",
                                                 "123456789012345678901234567890",
                                                 "1.5",
                                                 "1e-7",
                                                 "true",
                                                 "null",
                                                 "[]",
                                                 "{}",
                                                 "\"\"",
                                                 "\"\\u00e9\\n\""};
  static constexpr std::string_view kDamage[] = {"[", "]",  "{",  "}",    ",",
                                                 ":", "\"", "\\", "\xff", "0"};
  std::string open, close;
  for (std::size_t levels = random() % (deepest + 1); levels > 0; --levels) {
    const bool object = random() % 2;
    open += object ? "{" : "[";
    for (std::size_t i = random() % 8 ? 0 : 1 + random() % 3; i > 0; --i) {
      if (object) open += "\"k" + std::to_string(i) + "\":";
      open.append(kValues[random() % std::size(kValues)]).append(",");
    }
    if (object) open += "\"x\":";
    close += object ? '}' : ']';
  }
  std::string text = open + "0" + std::string(close.rbegin(), close.rend());
  for (std::size_t edits = random() % 2 ? 0 : random() % 4; edits > 0; --edits) {
    const std::string_view damage = kDamage[random() % std::size(kDamage)];
    text.replace(random() % text.size(), random() % 2, damage);
  }
  return text;
}

}  // namespace frt::test
