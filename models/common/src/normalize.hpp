// SPDX-License-Identifier: Apache-2.0
// Unicode of a text: NFC, white space, word characters.
#pragma once

#include <frt/models/tokenizer.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frt::models {

// Normalisation form C never has less than a third of a text's bytes: U+212A becomes "K", the three
// letters of a Hangul syllable become one.
constexpr std::size_t kNfcShrinks = 3;

// `text` (valid UTF-8) in normalisation form C; nothing if it is in that form by a quick check.
// O(n log n) for every text.
std::optional<std::string> nfc(std::string_view text);

// The same, and moves `ranges` (bytes of `text`, in order) to where their characters are in the
// result. A range grows over neighbours that its own characters were composed or reordered with.
std::optional<std::string> nfc(std::string_view text, std::vector<TextRange>& ranges);

// Unicode's White_Space.
bool is_white_space(char32_t character);

// What \w means to Rust's regex: alphabetic, mark, decimal number, connector, join control.
bool is_word(char32_t character);

}  // namespace frt::models
