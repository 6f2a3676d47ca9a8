// SPDX-License-Identifier: Apache-2.0
// Edit distance, the byte map and NFC against naive versions.
#include "text.hpp"

#include <random>
#include <vector>

#include "byte_level.hpp"
#include "normalize.hpp"
#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

// The whole table, no band.
std::size_t plain_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
      } else {
        d[i][j] = std::min(
            {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

TEST_CASE("edit distance with a limit equals the plain one up to the limit") {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string a, b;
    for (auto* text : {&a, &b}) {
      const unsigned size = random() % 12;
      for (unsigned i = 0; i < size; ++i) *text += "abc"[random() % 3];
    }
    for (std::size_t limit = 0; limit < 8; ++limit) {
      CHECK(edit_distance(a, b, limit) == std::min(plain_distance(a, b), limit + 1));
    }
  }
}

TEST_CASE("the byte map is a bijection with the known corners") {
  std::string all, characters;
  for (int byte = 0; byte < 256; ++byte) {
    all += static_cast<char>(byte);
    characters += character_of_byte(static_cast<unsigned char>(byte));
  }
  CHECK(bytes_of_token(characters) == all);
  CHECK(character_of_byte(' ') == "\u0120");
  CHECK(character_of_byte('\n') == "\u010a");
  CHECK(character_of_byte('!') == "!");
  CHECK(character_of_byte(0xAD) == "\u0143");
  CHECK(bytes_of_token("a b") == std::nullopt);
  CHECK(bytes_of_token("\u4e2d") == std::nullopt);
  CHECK(bytes_of_token("\u0144") == std::nullopt);
}

TEST_CASE("NFC composes, orders marks and leaves plain text alone") {
  CHECK(nfc("plain \u00e9 text") == std::nullopt);
  CHECK(nfc("e\u0301") == "\u00e9");
  CHECK(nfc("a\u0323\u0307") == "\u1ea1\u0307");
  CHECK(nfc("a\u0307\u0323") == "\u1ea1\u0307");
  CHECK(nfc("\u1100\u1161\u11a8") == "\uac01");
  CHECK(nfc("\u0958") == "\u0915\u093c");  // excluded from composition
  CHECK(nfc("\U0002F800") == "\u4e3d");
  CHECK(nfc("\u212b") == "\u00c5");
  CHECK(nfc("\ufdfa") == "\ufdfa");
  CHECK(nfc(std::string("\0\u0301", 3)) == std::string("\0\u0301", 3));
}

TEST_CASE("white space and word characters") {
  for (const char32_t c : {0x9, 0xd, 0x20, 0x85, 0xa0, 0x1680, 0x2028, 0x202f, 0x3000}) {
    CHECK(is_white_space(c));
  }
  for (const char32_t c : {0x8, 0x180e, 0x200b, 0xfeff}) CHECK_FALSE(is_white_space(c));
  for (const char32_t c : {0x61, 0xe9, 0x5f, 0x39, 0x301, 0x2168, 0x24b6, 0x200d, 0x203f}) {
    CHECK(is_word(c));
  }
  for (const char32_t c : {0x20, 0x2d, 0xb2, 0x1f600}) CHECK_FALSE(is_word(c));
}
