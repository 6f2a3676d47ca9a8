// SPDX-License-Identifier: Apache-2.0
// One decoding step decides everything: the length of a valid character, or how many bytes form one
// "maximal invalid part" (the longest start of a character that could still have been right, or a
// single byte), which is what a decoder replaces by one U+FFFD.
#include <frt/io/utf8.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace frt::io {

namespace {

// How many bytes at the beginning are ASCII.
std::size_t ascii_bytes(std::string_view text) {
  std::size_t at = 0;
  for (std::uint64_t word = 0; at + 8 <= text.size(); at += 8) {
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0;;) {
    at += ascii_bytes(text.substr(at));
    if (at == text.size()) return std::nullopt;
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Step::kValid) return at;
    at += step.bytes;
  }
}

bool is_utf8(std::string_view text) {
  return !first_invalid_utf8(text);
}

void append_utf8(std::string& out, char32_t character) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xC0 | character >> 6);
    put(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    put(0xE0 | character >> 12);
    put(0x80 | (character >> 6 & 0x3F));
    put(0x80 | (character & 0x3F));
  } else {
    put(0xF0 | character >> 18);
    put(0x80 | (character >> 12 & 0x3F));
    put(0x80 | (character >> 6 & 0x3F));
    put(0x80 | (character & 0x3F));
  }
}

void append_lossy(std::string& pending, std::string_view bytes, std::string& out) {
  pending += bytes;
  const std::string_view all = pending;
  std::size_t at = 0;
  while (at < all.size()) {
    const Utf8Step step = utf8_step(all.substr(at));
    if (step.kind == Utf8Step::kCut) break;
    if (step.kind == Utf8Step::kValid) {
      out += all.substr(at, step.bytes);
    } else {
      out += "\xEF\xBF\xBD";
    }
    at += step.bytes;
  }
  pending.erase(0, at);
}

void finish_lossy(std::string& pending, std::string& out) {
  if (!pending.empty()) out += "\xEF\xBF\xBD";
  pending.clear();
}

std::string printable(std::string_view text, Keep keep) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    const std::string_view part = text.substr(at, step.bytes);
    at += step.bytes;
    const bool line = part == "\n" || part == "\t";
    if (step.kind == Utf8Step::kValid &&
        (prints(step.character) || (line && keep == Keep::kLines))) {
      out += part;
    } else if (line) {
      out += part == "\n" ? "\\n" : "\\t";
    } else {
      for (const char c : part) {
        const auto byte = static_cast<unsigned char>(c);
        out += "\\x";
        out += kHex[byte >> 4];
        out += kHex[byte & 15];
      }
    }
  }
  return out;
}

std::string quote(std::string_view name) {
  constexpr std::size_t kLongest = 160;
  std::size_t end = std::min(name.size(), kLongest);
  // Not in the middle of a character.
  while (end < name.size() && end > kLongest - 4 &&
         (static_cast<unsigned char>(name[end]) & 0xC0u) == 0x80u) {
    --end;
  }
  return "'" + printable(name.substr(0, end)) + (end < name.size() ? "...'" : "'");
}

}  // namespace frt::io
