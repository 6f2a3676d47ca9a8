// SPDX-License-Identifier: Apache-2.0
// frt/text.hpp - borrowed C texts of the ABI, checked before their first use, and the UTF-8 under
// that check (Unicode table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
//
// A text of the ABI is zero-terminated UTF-8 that prints. What a peer gives may be anything, so a
// reader passes it through `checked_text` once. Header only; all functions are [any].
#pragma once

#include <frt/base.h>

#include <cstddef>
#include <cstring>
#include <frt/error.hpp>
#include <string>
#include <string_view>

namespace frt {

// What stands at the start of a non-empty byte string.
struct Utf8Step {
  enum Kind { kValid, kInvalid, kCut } kind;
  std::size_t bytes;   // of the character; of the maximal invalid part; of the cut character
  char32_t character;  // if valid
};

// A character is "cut" when the string ends inside it and all its bytes so far are right.
inline Utf8Step utf8_step(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Utf8Step::kValid, 1, lead};
  std::size_t length = 0;
  unsigned low = 0x80, high = 0xBF;  // what the second byte may be
  char32_t character = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    character = lead & 0x1Fu;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    character = lead & 0x0Fu;
    if (lead == 0xE0) low = 0xA0;   // overlong below
    if (lead == 0xED) high = 0x9F;  // surrogates above
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    character = lead & 0x07u;
    if (lead == 0xF0) low = 0x90;   // overlong below
    if (lead == 0xF4) high = 0x8F;  // above U+10FFFF
  } else {
    return {Utf8Step::kInvalid, 1, 0};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Step::kCut, i, 0};
    const unsigned next = byte(i);
    if (next < low || next > high) return {Utf8Step::kInvalid, i, 0};
    character = character << 6 | (next & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::kValid, length, character};
}

// False for control characters and for the invisible ones that break or reorder a line.
inline bool prints(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return false;        // C0, DEL, C1
  if (c == 0x2028 || c == 0x2029) return false;                 // line and paragraph separator
  if (c == 0x061C || c == 0x200E || c == 0x200F) return false;  // marks of direction
  return !(c >= 0x202A && c <= 0x202E) && !(c >= 0x2066 && c <= 0x2069);  // embeddings, isolates
}

// The text that a peer gave: zero-terminated within `room` bytes, UTF-8 that prints; line feeds and
// tabs may stand in it. Throws FRT_ERR_FORMAT, naming `what` and the first wrong byte with its
// offset, if it is NULL or no such text.
inline std::string_view checked_text(const char* text, const std::string& what,
                                     std::size_t room = 4096) {
  if (!text) throw Error(FRT_ERR_FORMAT, what + " is NULL");
  const std::string_view given(text, ::strnlen(text, room));
  if (given.size() == room) {
    throw Error(FRT_ERR_FORMAT, what + " does not end within " + std::to_string(room) + " bytes");
  }
  for (std::size_t at = 0; at < given.size();) {
    const Utf8Step step = utf8_step(given.substr(at));
    const bool valid = step.kind == Utf8Step::kValid;
    if (valid && (prints(step.character) || given[at] == '\n' || given[at] == '\t')) {
      at += step.bytes;
      continue;
    }
    constexpr char kHex[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(given[at]);
    throw Error(FRT_ERR_FORMAT, what + " is no text: byte 0x" + kHex[byte >> 4] + kHex[byte & 15] +
                                    " at offset " + std::to_string(at) +
                                    (valid ? " starts a control character" : " is no UTF-8"));
  }
  return given;
}

}  // namespace frt
