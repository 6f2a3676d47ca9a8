// SPDX-License-Identifier: Apache-2.0
// mutated_text.hpp - a text with a few random changes, for parsers.
#pragma once

#include <algorithm>
#include <random>
#include <string>

namespace test {

// Changes some bytes of `text`: replaced, removed, doubled, or cut.
inline std::string mutated(std::string text, std::mt19937_64& random) {
  static constexpr char kTelling[] = "[]{}=\"'.,#\n\\-_x019 \0\xff$";
  const auto below = [&](std::size_t limit) {
    return static_cast<std::size_t>(random() % std::max<std::size_t>(limit, 1));
  };
  for (std::size_t edits = 1 + below(6); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = below(text.size());
    switch (random() % 5) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text[at] = kTelling[below(sizeof(kTelling))];
        break;
      case 2:
        text.erase(at, 1 + below(20));
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), below(30)));
        break;
      default:
        if (below(8) == 0) text.resize(at);
    }
  }
  return text;
}

}  // namespace test
