// SPDX-License-Identifier: Apache-2.0
// The byte map of GPT-2: tokenizer.json writes each byte as one printable character, so that tokens
// are text without white space. Printable ASCII and Latin-1 stand for themselves; the other 68
// bytes are U+0100, U+0101, ... in order (a space is U+0120 'Ġ', a line feed U+010A 'Ċ').
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace frt::models {

// The bytes a token's characters stand for; nothing if a character is outside the map.
std::optional<std::string> bytes_of_token(std::string_view token);

// The character that stands for `byte`, as UTF-8.
std::string character_of_byte(unsigned char byte);

}  // namespace frt::models
