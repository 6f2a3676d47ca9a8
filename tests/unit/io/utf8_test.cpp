// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <frt/io/utf8.hpp>

#include <random>
#include <string>

using namespace frt::io;

namespace {

std::string lossy(std::string_view bytes) {
  std::string pending, out;
  append_lossy(pending, bytes, out);
  finish_lossy(pending, out);
  return out;
}

}  // namespace

TEST_CASE("every scalar value is valid UTF-8, surrogates and the rest are not") {
  for (char32_t c = 0; c <= 0x110000; ++c) {
    const bool good = c < 0x110000 && (c < 0xD800 || c > 0xDFFF);
    std::string text;
    append_utf8(text, c);
    const Utf8Step step = utf8_step(text);
    if (good) {
      REQUIRE(step.kind == Utf8Step::kValid);
      REQUIRE(step.character == c);
      REQUIRE(step.bytes == text.size());
    } else {
      REQUIRE(step.kind == Utf8Step::kInvalid);
    }
  }
}

TEST_CASE("invalid parts become one replacement character each") {
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(lossy("a\xff"
              "b") == "a" + bad + "b");
  CHECK(lossy("\xC0\xAF") == bad + bad);  // overlong
  CHECK(lossy("\xE2\x82") == bad);        // cut
  CHECK(lossy("\xE2\x82"
              "A") == bad + "A");  // broken off
  CHECK(lossy("\xE2\x28\xA1") == bad + "(" + bad);
  CHECK(lossy("\xED\xA0\x80") == bad + bad + bad);  // surrogate
  CHECK(lossy("\xF0\x90\x80") == bad);
  CHECK(lossy("\xF4\x90\x80\x80") == bad + bad + bad + bad);
  CHECK(lossy("\xF0\x9F\x98\x80") == "\xF0\x9F\x98\x80");
  // The example of the Unicode standard (section 3.9, table 3-8).
  CHECK(lossy("a\xF1\x80\x80\xE1\x80\xC2"
              "b\x80"
              "c\x80\xBF"
              "d") == "a" + bad + bad + bad + "b" + bad + "c" + bad + bad + "d");
}

TEST_CASE("decoding in pieces equals decoding at once") {
  std::mt19937 random(5);
  const std::string units[] = {"a",        "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xff",
                               "\xE4\xB8", "\x80",     "\xF0\x9F",     "\xED\xA0"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes, pending, out;
    for (int i = 0; i < 8; ++i) bytes += units[random() % std::size(units)];
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = 1 + random() % 4;
      append_lossy(pending, std::string_view(bytes).substr(at, size), out);
      CHECK(pending.size() <= 3);
      CHECK(first_invalid_utf8(out) == std::nullopt);
      at += size;
    }
    finish_lossy(pending, out);
    CHECK(out == lossy(bytes));
  }
}

TEST_CASE("text with controls, escapes or broken bytes prints as plain characters") {
  CHECK(printable("plain \u00e9\u4e2d text") == "plain \u00e9\u4e2d text");
  CHECK(printable("\x1b[31mred\x1b[0m") == "\\x1b[31mred\\x1b[0m");
  CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\u009b2J") == "\\xc2\\x9b2J");  // CSI, of C1
  CHECK(printable("\x7f\r\b") == "\\x7f\\x0d\\x08");
  CHECK(printable("\xff\xe4\xb8") == "\\xff\\xe4\\xb8");
  CHECK(printable("\u202egnp.exe") == "\\xe2\\x80\\xaegnp.exe");
  CHECK(printable("\u2028") == "\\xe2\\x80\\xa8");
  CHECK(printable("a\n\tb") == "a\\n\\tb");
  CHECK(printable("a\n\tb\x1b", Keep::kLines) == "a\n\tb\\x1b");
}

TEST_CASE("whatever the bytes, printable text is UTF-8 without controls") {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (unsigned i = random() % 24; i > 0; --i) bytes += static_cast<char>(random());
    const std::string shown = printable(bytes);
    REQUIRE(is_utf8(shown));
    for (const char c : shown) REQUIRE(static_cast<unsigned char>(c) >= 0x20);
    REQUIRE(printable(shown) == shown);
  }
}

TEST_CASE("a quoted name is cut between characters") {
  CHECK(quote("name") == "'name'");
  CHECK(quote("a\x1b") == "'a\\x1b'");
  const std::string long_name = std::string(159, 'a') + "\u00e9" + "b";
  CHECK(quote(long_name) == "'" + std::string(159, 'a') + "...'");
  CHECK(quote(std::string(300, '\xbf')).ends_with("\\xbf...'"));
}

TEST_CASE("a text of the ABI that is none is refused with its first wrong byte and the offset") {
  const auto refusal = [](const char* text, std::size_t room = 16) -> std::string {
    try {
      return "accepted: " + std::string(frt::checked_text(text, "the name", room));
    } catch (const frt::Error& error) {
      CHECK(error.status() == FRT_ERR_FORMAT);
      return error.what();
    }
  };
  CHECK(refusal("plain \u00e9\n\t") == "accepted: plain \u00e9\n\t");
  CHECK(refusal(nullptr) == "the name is NULL");
  CHECK(refusal("sixteen bytes ..") == "the name does not end within 16 bytes");
  CHECK(refusal("a\xff") == "the name is no text: byte 0xff at offset 1 is no UTF-8");
  CHECK(refusal("ab\xe2\x82") == "the name is no text: byte 0xe2 at offset 2 is no UTF-8");
  CHECK(refusal("a\x1b[2J") ==
        "the name is no text: byte 0x1b at offset 1 starts a control character");
  CHECK(refusal("\u202e") ==
        "the name is no text: byte 0xe2 at offset 0 starts a control character");
}
