// SPDX-License-Identifier: Apache-2.0
// Unicode on whole texts: NFC, white space, word characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace frt::models {

// `text` (valid UTF-8) in normalisation form C; nothing if it is in that form by a quick check.
std::optional<std::string> nfc(std::string_view text);

// Unicode's White_Space.
bool is_white_space(char32_t character);

// What \w means to Rust's regex: alphabetic, mark, decimal number, connector, join control.
bool is_word(char32_t character);

}  // namespace frt::models
