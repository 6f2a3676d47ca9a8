// SPDX-License-Identifier: Apache-2.0
// NFC by utf8proc (Unicode 15 in version 2.8). The quick check: no character below U+0300 composes
// with what follows it or changes in NFC unless a character from U+0300 on follows, and in UTF-8
// the latter all start with a byte of at least 0xCC.
#include "normalize.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include <frt/error.hpp>

namespace frt::models {

std::optional<std::string> nfc(std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
  if (plain) return std::nullopt;
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  // utf8proc writes the characters into the buffer and then re-encodes them in place; one more
  // element keeps the terminating zero inside.
  std::vector<utf8proc_int32_t> buffer(text.size() + 1);
  utf8proc_ssize_t count = utf8proc_decompose(bytes, size, buffer.data(), size, kOptions);
  if (count > size) {  // decompositions can be longer than the text
    buffer.resize(static_cast<std::size_t>(count) + 1);
    count = utf8proc_decompose(bytes, size, buffer.data(), count, kOptions);
  }
  if (count >= 0) count = utf8proc_reencode(buffer.data(), count, kOptions);
  if (count < 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                std::string("the text cannot be normalised: ") + utf8proc_errmsg(count));
  }
  return std::string(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(count));
}

bool is_white_space(char32_t character) {
  if (character >= 9 && character <= 13) return true;
  if (character == 0x85) return true;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool is_word(char32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    case UTF8PROC_CATEGORY_SO:  // letters in circles and squares are alphabetic symbols
      return (character >= 0x24B6 && character <= 0x24E9) ||
             (character >= 0x1F130 && character <= 0x1F149) ||
             (character >= 0x1F150 && character <= 0x1F169) ||
             (character >= 0x1F170 && character <= 0x1F189);
    default:
      return character == 0x200C || character == 0x200D;  // join controls
  }
}

}  // namespace frt::models
