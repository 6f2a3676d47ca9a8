// SPDX-License-Identifier: Apache-2.0
// NFC against utf8proc's own, whose sorting of marks is quadratic but obviously right.
#include <doctest/doctest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "normalize.hpp"
#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

std::string utf8(char32_t character) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length)};
}

std::string reference(const std::string& text) {
  utf8proc_uint8_t* made = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  if (size < 0) FAIL("utf8proc refuses a text");
  return {reinterpret_cast<const char*>(made), static_cast<std::size_t>(size)};
}

std::string normal(const std::string& text) {
  return nfc(text).value_or(text);
}

bool is_character(char32_t c) {
  return c > 0 && !(c >= 0xD800 && c <= 0xDFFF);
}

// Letters that compose, marks of many classes, Hangul, and characters that decompose.
const std::vector<char32_t> kLively = {
    'a',    'e',    'o',    0x3B1,  0x301,  0x323,  0x308,   0x304,   0x345,   0x5B0,   0x5BC,
    0x64B,  0x651,  0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01,  0xE9,    0x1E69,  0x212B,  0x212A,
    0xF73,  0xF71,  0x9C7,  0x9BE,  0x9D7,  0xCC6,  0xCC2,   0xCD5,   0xDD9,   0xDCF,   0xDCA,
    0x1025, 0x102E, 0x3046, 0x3099, 0x4E2D, 0xF900, 0x1D15E, 0x1D165, 0x110A5, 0x110BA, ' '};

}  // namespace

TEST_CASE("every character, alone and beside a letter and a mark, has its normal form") {
  for (char32_t c = 1; c <= 0x10FFFF; ++c) {
    if (!is_character(c)) continue;
    const std::string one = utf8(c);
    const std::string form = normal(one);
    const bool right = form == reference(one) && one.size() <= form.size() * kNfcShrinks;
    if (!right) FAIL_CHECK("character " << static_cast<unsigned>(c));
    if (c > 0x30000) continue;  // nothing up there combines
    const std::string among = "a" + one + "\u0301";
    if (normal(among) != reference(among)) FAIL_CHECK("character " << static_cast<unsigned>(c));
  }
}

TEST_CASE("random texts of marks and syllables have their normal form, in blocks, too") {
  std::mt19937 random(12);
  for (int run = 0; run < 3'000; ++run) {
    std::string text;
    const std::size_t length = run % 300 == 0 ? 12'000 : random() % 40;
    for (std::size_t i = 0; i < length; ++i) text += utf8(kLively[random() % kLively.size()]);
    const std::string form = normal(text);
    if (form != reference(text)) FAIL_CHECK(Json(text).dump(-1, ' ', true));
    CHECK(text.size() <= form.size() * kNfcShrinks);
  }
}

TEST_CASE("a megabyte of alternating marks is sorted, not bubbled") {
  std::string text = "e", sorted = "\u1eb9", high;  // takes minutes by exchanging neighbours
  for (int i = 0; i < 250'000; ++i) {
    text += "\u0301\u0323";
    high += "\u0301";
    if (i > 0) sorted += "\u0323";
  }
  CHECK((normal(text) == sorted + high));
}

TEST_CASE("ranges follow their characters through normalisation") {
  //                    0 1    3    5     7      10
  const std::string text = "ae\u0301b\u00e9c\u212Ad";
  std::vector<TextRange> ranges = {{2, 4}, {5, 7}, {8, 11}};  // the accent, the letter, the sign
  const auto form = nfc(text, ranges);
  REQUIRE(form);
  CHECK(*form == "a\u00e9b\u00e9cKd");
  REQUIRE(ranges.size() == 3);
  CHECK(form->substr(ranges[0].begin, ranges[0].end - ranges[0].begin) == "\u00e9");
  CHECK(form->substr(ranges[1].begin, ranges[1].end - ranges[1].begin) == "\u00e9");
  CHECK(form->substr(ranges[2].begin, ranges[2].end - ranges[2].begin) == "K");
  std::vector<TextRange> none;
  CHECK(nfc(text, none) == *form);
}
