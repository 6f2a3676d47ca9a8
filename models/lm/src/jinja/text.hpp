// SPDX-License-Identifier: Apache-2.0
// text.hpp - operations on texts that know which of their bytes came from outside. All of them keep
// that byte by byte. Positions count characters where they say so, as Python does.
#pragma once

#include <frt/models/prompt_text.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "value.hpp"

namespace frt::lm::jinja {

// Appends bytes of either kind.
inline void put(PromptText& out, std::string_view bytes, bool outside) {
  outside ? out.plain(bytes) : out.format(bytes);
}

// Calls `use(bytes, outside)` for each run of bytes of one kind.
template <class Use>
void for_runs(const PromptText& text, Use&& use) {
  const std::string_view all = text.text();
  std::size_t at = 0;
  for (const models::TextRange& range : text.plain()) {
    if (at < range.begin) use(all.substr(at, range.begin - at), false);
    use(all.substr(range.begin, range.end - range.begin), true);
    at = range.end;
  }
  if (at < all.size()) use(all.substr(at), false);
}

// Bytes of the character that begins with `lead`, of a text that is UTF-8.
inline std::size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
char32_t code_point(std::string_view character);
std::size_t count_characters(std::string_view text);
std::vector<Value> characters(Meter& meter, const PromptText& text);

// Bytes [begin, end); `part` lies within the text.
PromptText cut(Meter& meter, const PromptText& text, std::size_t begin, std::size_t end);
PromptText cut(Meter& meter, const PromptText& text, std::string_view part);

// Python's str.strip() and its siblings; `set`: the characters to strip, white space if null.
enum class Side { kLeft, kRight, kBoth };
PromptText strip_text(Meter& meter, const PromptText& text, Side side,
                      const std::string_view* set = nullptr);
// str.split(separator, most): null: at white space; most < 0: all. `from_right`: str.rsplit.
std::vector<Value> split_text(Meter& meter, const PromptText& text,
                              const std::string_view* separator, std::int64_t most,
                              bool from_right);
std::vector<Value> split_lines(Meter& meter, const PromptText& text, bool keep_ends);
// str.replace(from, to, most)
PromptText replace_text(Meter& meter, const PromptText& text, std::string_view from,
                        const PromptText& to, std::int64_t most);

// Every character through `map`, which sees whether the one before it was cased ("title").
enum class Case { kLower, kUpper, kTitle, kCapitalise };
PromptText change_case(Meter& meter, const PromptText& text, Case to);
enum class CharacterClass { kAlpha, kDigit, kAlnum, kSpace, kLower, kUpper };
bool is_all(Meter& meter, std::string_view text, CharacterClass which);

}  // namespace frt::lm::jinja
