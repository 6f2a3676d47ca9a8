// SPDX-License-Identifier: Apache-2.0
// NFC with the tables of utf8proc (Unicode 15 in version 2.8): decompose each character, sort each
// run of marks by combining class, compose. utf8proc_decompose() would sort by exchanging
// neighbours, which is quadratic in the length of a run; here a run is sorted in O(n log n).
//
// The text is worked on in blocks of whole segments, so that the memory does not grow with it. A
// segment begins at a character that nothing before it can change.
//
// The quick check: no character below U+0300 composes with what follows it or changes in NFC unless
// a character from U+0300 on follows, and in UTF-8 the latter all start with a byte of at least
// 0xCC.
#include "normalize.hpp"

#include <frt/io/utf8.hpp>

#include <utf8proc.h>

#include <frt/error.hpp>

#include <algorithm>
#include <array>

namespace frt::models {

namespace {

constexpr std::size_t kBlockCharacters = 4096;
constexpr int kClassShift = 21;  // above the bits of a character

// A character before which normalisation stops: it is no mark and no Hangul vowel or trailing
// consonant. Only those move, or become one with what precedes.
bool begins_segment(char32_t character) {
  if (character < 0x300) return true;
  if (character >= 0x1160 && character <= 0x11FF) return false;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return false;
    default:
      return true;
  }
}

// Takes characters, whole segments of a text, and appends them in form C.
class Composer {
 public:
  explicit Composer(std::string& out) : out_(out) {}

  void add(char32_t character) {
    if (character < 0xC0) {  // has no decomposition and class 0
      block_.push_back(static_cast<utf8proc_int32_t>(character));
      return;
    }
    std::array<utf8proc_int32_t, 32> parts;
    int boundary = 0;  // of grapheme clusters: not asked for
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(character), parts.data(),
        static_cast<utf8proc_ssize_t>(parts.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    check(count, parts.size());
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      const utf8proc_int32_t part = parts[static_cast<std::size_t>(i)];
      const auto order = utf8proc_get_property(part)->combining_class;
      block_.push_back(part | static_cast<utf8proc_int32_t>(order) << kClassShift);
    }
  }

  std::size_t characters() const { return block_.size(); }

  void flush() {
    if (block_.empty()) return;
    sort_marks();
    const auto size = static_cast<utf8proc_ssize_t>(block_.size());
    block_.push_back(0);  // utf8proc_reencode() writes UTF-8 and a zero into the same memory
    const utf8proc_ssize_t bytes = utf8proc_reencode(
        block_.data(), size, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    check(bytes, block_.size() * sizeof(block_[0]));
    out_.append(reinterpret_cast<const char*>(block_.data()), static_cast<std::size_t>(bytes));
    block_.clear();
  }

 private:
  static void check(utf8proc_ssize_t count, std::size_t most) {
    if (count >= 0 && static_cast<std::size_t>(count) <= most) return;
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                std::string("the text cannot be normalised: ") +
                    utf8proc_errmsg(count < 0 ? count : UTF8PROC_ERROR_OVERFLOW));
  }

  // Runs of marks by their combining class, equal ones as they are; then drops the classes.
  void sort_marks() {
    const auto order = [](utf8proc_int32_t entry) { return entry >> kClassShift; };
    for (auto at = block_.begin(); at != block_.end();) {
      const auto first = std::find_if(at, block_.end(), order);
      at = std::find_if_not(first, block_.end(), order);
      if (at - first > 1) {
        std::stable_sort(first, at, [&](auto a, auto b) { return order(a) < order(b); });
      }
    }
    for (auto& entry : block_) entry &= (1 << kClassShift) - 1;
  }

  std::string& out_;
  std::vector<utf8proc_int32_t> block_;  // decomposed; class << kClassShift | character
};

bool passes_quick_check(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

}  // namespace

std::optional<std::string> nfc(std::string_view text) {
  if (passes_quick_check(text)) return std::nullopt;
  std::string out;
  out.reserve(text.size());
  Composer composer(out);
  for (std::size_t at = 0; at < text.size();) {
    const io::Utf8Step step = io::utf8_step(text.substr(at));
    if (composer.characters() >= kBlockCharacters && begins_segment(step.character)) {
      composer.flush();
    }
    composer.add(step.character);
    at += step.bytes;
  }
  composer.flush();
  return out;
}

std::optional<std::string> nfc(std::string_view text, std::vector<TextRange>& ranges) {
  if (ranges.empty()) return nfc(text);
  if (passes_quick_check(text)) return std::nullopt;
  std::string out;
  out.reserve(text.size());
  Composer composer(out);
  std::vector<TextRange> moved;
  auto range = ranges.begin();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at, out_begin = out.size();
    for (bool first = true; at < text.size(); first = false) {
      const io::Utf8Step step = io::utf8_step(text.substr(at));
      if (!first && begins_segment(step.character)) break;
      composer.add(step.character);
      at += step.bytes;
    }
    composer.flush();
    while (range != ranges.end() && range->end <= begin) ++range;
    if (range == ranges.end() || range->begin >= at) continue;
    if (!moved.empty() && moved.back().end == out_begin) {
      moved.back().end = out.size();
    } else {
      moved.push_back({out_begin, out.size()});
    }
  }
  ranges = std::move(moved);
  return out;
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
