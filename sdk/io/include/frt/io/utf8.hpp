// SPDX-License-Identifier: Apache-2.0
// frt/io/utf8.hpp - UTF-8 text from outside, checked, repaired and made safe to show. The decoding
// step is the SDK's (frt/text.hpp). All functions are [any].
#pragma once

#include <frt/text.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace frt::io {

using frt::utf8_step;
using frt::Utf8Step;

// Byte offset of the first thing that is no UTF-8, a cut character included.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

bool is_utf8(std::string_view text);

// Appends `character` to `out`.
void append_utf8(std::string& out, char32_t character);

// Moves what is decided of `pending` + `bytes` to `out`, each maximal invalid part as one U+FFFD.
// What stays in `pending` is a cut character.
void append_lossy(std::string& pending, std::string_view bytes, std::string& out);

// The end of the input: a cut character becomes one U+FFFD.
void finish_lossy(std::string& pending, std::string& out);

// What printable() leaves as it is, besides characters that print.
enum class Keep { kNothing, kLines };  // kLines: line feeds and tabs

// `text` for a terminal or a log: control characters (C0, DEL, C1; ESC among them), the invisible
// characters that reorder a line (U+202E and its like), line separators and bytes that are no UTF-8
// become \xNN, byte by byte; a line feed \n and a tab \t.
std::string printable(std::string_view text, Keep keep = Keep::kNothing);

// 'name' in single quotes, printable, cut after 160 bytes: for names in errors.
std::string quote(std::string_view name);

}  // namespace frt::io
