// SPDX-License-Identifier: Apache-2.0
// chat_text.hpp - white space of generated text, as the format's tags see it.
#pragma once

#include <algorithm>
#include <string_view>

namespace frt::qwen36 {

inline constexpr std::string_view kSpace = " \t\r\n";

inline std::string_view trim_right(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kSpace);
  return text.substr(0, last == text.npos ? 0 : last + 1);
}

inline std::string_view trim_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text;
}

inline std::string_view trim(std::string_view text) {
  return trim_left(trim_right(text));
}

}  // namespace frt::qwen36
