// SPDX-License-Identifier: Apache-2.0
// The rewriting of expressions, what is refused, and splitting of long and hostile texts.
#include "split_regex.hpp"

#include <vector>

#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

std::vector<std::string_view> words_of(const SplitRegex& regex, std::string_view text) {
  std::vector<std::string_view> words;
  SplitRegex::Scratch scratch;
  regex.split(text, scratch, [&](std::string_view word) { words.push_back(word); });
  return words;
}

std::string joined(const std::string& pattern, std::string_view text) {
  const auto words = words_of(SplitRegex(pattern, false, "here"), text);
  std::string out;
  for (const std::string_view word : words) out.append(out.empty() ? "" : "|").append(word);
  return out;
}

constexpr const char* kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

TEST_CASE("expressions are rewritten where the two dialects differ") {
  const auto rewritten = [](const char* pattern) { return pcre_pattern(pattern, "here"); };
  CHECK(rewritten(R"(\s+(?!\S)|[^\s\p{L}]\n)") ==
        R"([\t-\r\x{85}\p{Z}]+(?![^\t-\r\x{85}\p{Z}])|[^\t-\r\x{85}\p{Z}\p{L}]\n)");
  CHECK(rewritten(R"(\s)") == R"([\t-\r\x{85}\p{Z}])");
  CHECK(rewritten(R"(\S)") == R"([^\t-\r\x{85}\p{Z}])");
  CHECK(rewritten(R"([a\s])") == R"([a\t-\r\x{85}\p{Z}])");
  CHECK(rewritten(R"(\h\v)") == R"([0-9A-Fa-f]\x0b)");
  CHECK(rewritten(R"(\p{Lu}\P{L}\p{^N}\p{Han})") == R"(\p{Lu}\P{L}\P{N}\p{sc:Han})");
  CHECK(rewritten(R"(\u00e9\x41\x{1F600}\.)") == R"(\x{00e9}\x{41}\x{1F600}\.)");
  CHECK(rewritten(R"((?i:a)(?:b)(c){2,3}d{4}?)") == R"((?i:a)(?:b)(c){2,3}d{4}?)");
}

TEST_CASE("what has no sure equivalent is refused with its place") {
  for (const char* pattern :
       {R"(\bx)",     R"(\Bx)",   R"(\Ax)",    R"(x\z)",   R"((a)\1)", R"(\k<n>)",
        R"((?<n>a))", R"((?#c))", R"((?m:a))", R"((?x)a)", "[a&&b]",   "[[:alpha:]]",
        "[a[b]]",     "[]a]",     "[a",        R"([\S])",  R"([^\W])", "a{,3}",
        "a{2}+",      "a{x}",     "a{",        R"(\p{})",  R"(\pL)",   R"(\p{Script=Han})",
        "\\",         R"(\R)",    R"(\X)",     R"(\K)",    R"(\G)",    R"(\u12)",
        R"(\x)",      R"(\x{12)", "(*UTF)a",   R"(\q)"}) {
    INFO(pattern);
    CHECK_FAILS(SplitRegex(pattern, false, "where it is"), "UNSUPPORTED", "where it is");
  }
  CHECK_FAILS(SplitRegex("(a", false, "here"), "UNSUPPORTED", "here", "'(a'", "offset");
  CHECK_FAILS(SplitRegex(R"(\p{Klingon})", false, "here"), "UNSUPPORTED", "here");
}

TEST_CASE("the words of the Qwen expression") {
  CHECK(joined(kQwen, "I'll say: it's 2024!\n\n  ok") ==
        "I|'ll| say|:| it|'s| |2|0|2|4|!\n\n| | ok");
  CHECK(joined(kQwen, "a\u180eb") == "a|\u180eb");    // a format character, not white space
  CHECK(joined(kQwen, "'\u017f x") == "'\u017f| x");  // folds to 's
  CHECK(joined(kQwen, "e\u0301a") == "e\u0301a");
  CHECK(joined(kQwen, "") == "");
}

TEST_CASE("text between matches is a word of its own, empty matches cut") {
  CHECK(joined("b+", "abbac") == "a|bb|ac");
  CHECK(joined("(?=b)", "abcbd\u00e9b") == "a|bc|bd\u00e9|b");
  CHECK(joined("x*", "axxb") == "a|xx|b");
  CHECK(words_of(SplitRegex("a.b", true, "here"), "xa.bya+b") ==
        std::vector<std::string_view>{"x", "a.b", "ya+b"});
}

TEST_CASE("a million of anything is split without quadratic growth") {
  const SplitRegex regex(kQwen, false, "here");
  for (const char* unit :
       {"a", " ", "\n", "!", "7", "\u3000", "e\u0301", " \n", "'", "\u4e2d", "\t "}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    text += "x";
    std::size_t total = 0;
    for (const std::string_view word : words_of(regex, text)) total += word.size();
    CHECK(total == text.size());
  }
}
