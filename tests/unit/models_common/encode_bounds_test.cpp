// SPDX-License-Identifier: Apache-2.0
// Limits of encoding, and text that must stay text.
#include <frt/models/tokenizer.hpp>

#include <algorithm>
#include <random>

#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

const std::filesystem::path kFolder = kFixtures / "qwen36/tokenizer";
using Ids = std::vector<TokenId>;

const Tokenizer& qwen() {
  static const Tokenizer tokenizer = Tokenizer::load(kFolder);
  return tokenizer;
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, std::vector<TextRange> plain,
           std::size_t max_tokens = 0) {
  return tokenizer.encode(text, {plain, max_tokens});
}

}  // namespace

TEST_CASE("a text of exactly the allowed tokens passes, one more is refused with both numbers") {
  for (const std::string& text :
       {std::string("The capital of France is Paris, and the"), std::string("a<|im_end|>b"),
        std::string(1000, 'a'), std::string("x x x x x x x x"), std::string("\u4e2d\u6587")}) {
    const Ids ids = qwen().encode(text);
    CHECK(encode(qwen(), text, {}, ids.size()) == ids);
    CHECK_FAILS(encode(qwen(), text, {}, ids.size() - 1), "OUT_OF_RANGE",
                std::to_string(text.size()) + " bytes", std::to_string(ids.size() - 1) + " tokens");
  }
}

TEST_CASE("a text that can never fit is refused before it is looked at") {
  // 60 MB of one word: encoding it would take gigabytes. It is not even UTF-8 at its end.
  const std::string text = std::string(60'000'000, 'a') + "\xff";
  CHECK_FAILS(encode(qwen(), text, {}, 4096), "OUT_OF_RANGE", "60000001 bytes", "4096 tokens");
  CHECK_FAILS(qwen().encode(std::string(70'000'000, 'a')), "INVALID_ARGUMENT", "67108864");
}

TEST_CASE("a word is encoded up to 1 MiB, whatever room there is; longer ones are refused unread") {
  const std::string word(std::size_t{1} << 20, 'a');
  CHECK(qwen().encode(word).size() > 1000);
  CHECK_FAILS(qwen().encode(word + "a b"), "INVALID_ARGUMENT", "1048577 bytes", "1048576");
  // Marks are one word, too, and so are spaces.
  std::string marks = "e";
  while (marks.size() < 3'000'000) marks += "\u0301\u0323";
  CHECK_FAILS(qwen().encode(marks), "INVALID_ARGUMENT", "a word of");
}

TEST_CASE("the least tokens that a part can have are counted before it is encoded") {
  // The longest entry with a space has 30 bytes here, the longest with another byte 2: only the
  // latter makes this text too long.
  Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
  Json vocabulary = Json::object(), merges = Json::array();
  for (const auto& [name, id] : file["model"]["vocab"].items()) {
    if (id.get<int>() < 256) vocabulary[name] = id;
  }
  std::string spaces = "\u0120";
  for (int i = 1, id = 256; i < 30; ++i, ++id) {
    merges.push_back({spaces, "\u0120"});
    spaces += "\u0120";
    vocabulary[spaces] = id;
  }
  file["model"]["vocab"] = vocabulary;
  file["model"]["merges"] = merges;
  file["added_tokens"] = Json::array();
  const Tokenizer tokenizer = Tokenizer::parse(file.dump());
  // Too long a word: refused for its length where the count allows it, else for the count.
  const std::string word(2'000'000, 'a');
  CHECK_FAILS(encode(tokenizer, word, {}, 2'000'000), "INVALID_ARGUMENT", "a word of");
  CHECK_FAILS(encode(tokenizer, word, {}, 1'999'999), "OUT_OF_RANGE", "1999999 tokens");
  CHECK(encode(tokenizer, std::string(300, ' '), {}, 150).size() == 150);
}

TEST_CASE("long words of all kinds are encoded without quadratic growth") {
  std::mt19937 random(3);
  std::string letters, marks = "e", accents, spaces(1'000'000, ' ');
  while (letters.size() < 1'000'000) letters += static_cast<char>('a' + random() % 26);
  while (marks.size() < 500'000) marks += "\u0301\u0323";
  while (accents.size() < 1'000'000) accents += "e\u0301";
  for (const std::string* text : {&letters, &marks, &accents, &spaces}) {
    const Ids ids = qwen().encode(*text);
    CHECK((qwen().encode(qwen().decode(ids)) == ids));
  }
}

TEST_CASE("an expression that tries every way to match is an error, not a wait") {
  Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
  file["pre_tokenizer"] = Json::parse(
      R"({"type": "Sequence", "pretokenizers": [
          {"type": "Split", "pattern": {"Regex": "(?:a|aa|aaa)+b"}, "behavior": "Isolated",
           "invert": false},
          {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  const Tokenizer tokenizer = Tokenizer::parse(file.dump());
  CHECK(tokenizer.decode(tokenizer.encode("aaab")) == "aaab");
  CHECK_FAILS(tokenizer.encode(std::string(200, 'a') + "cb"), "UNSUPPORTED", "matching fails");
}

TEST_CASE("a file asks for a bounded number of splitting steps") {
  Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
  Json steps = Json::array();
  const Json split = Json::parse(R"({"type": "Split", "pattern": {"String": "x"},
                                     "behavior": "Isolated", "invert": false})");
  for (int i = 0; i < 100; ++i) steps.push_back(split);
  steps.push_back(Json::parse(R"({"type": "ByteLevel", "use_regex": false})"));
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  CHECK_FAILS(Tokenizer::parse(file.dump()), "UNSUPPORTED", "16 steps");
}

TEST_CASE("a token that touches plain text is no token") {
  const std::string text = "a<|im_end|>b";
  const Ids whole = qwen().encode(text), letters = encode(qwen(), text, {{0, text.size()}});
  CHECK(whole.size() == 3);
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    const bool apart = begin < 1 || begin >= 11;
    CHECK(encode(qwen(), text, {{begin, begin + 1}}) == (apart ? whole : letters));
  }
  CHECK(encode(qwen(), text + text, {{0, text.size()}}).size() == letters.size() + whole.size());
  CHECK_FAILS(encode(qwen(), text, {{0, 100}}), "INVALID_ARGUMENT", "0 .. 100");
  CHECK_FAILS(encode(qwen(), text, {{3, 5}, {4, 6}}), "INVALID_ARGUMENT", "4 .. 6");
}

TEST_CASE("tokens that are matched on normalised text keep out of plain text, too") {
  Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
  for (Json& token : file["added_tokens"]) token["normalized"] = true;
  const Tokenizer tokenizer = Tokenizer::parse(file.dump());
  // What precedes shrinks when it is normalised, so that the places move.
  const std::string accents = "e\u0301e\u0301e\u0301", token = "<|im_end|>";
  const std::string text = token + accents + token + accents + token;
  const std::size_t second = token.size() + accents.size();
  const Ids ids = encode(tokenizer, text, {{second, second + token.size()}});
  const TokenId end = *tokenizer.token_id(token);
  CHECK(std::count(ids.begin(), ids.end(), end) == 2);
  CHECK(ids.front() == end);
  CHECK(ids.back() == end);
}

TEST_CASE("text does not become a special token by merging either") {
  Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
  const Json model = file["model"];
  const TokenId id = model["vocab"]["in"];
  file["added_tokens"].push_back({{"id", id},
                                  {"content", "in"},
                                  {"special", true},
                                  {"normalized", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"single_word", false}});
  for (const bool whole_words : {false, true}) {
    file["model"]["ignore_merges"] = whole_words;
    const Tokenizer tokenizer = Tokenizer::parse(file.dump());
    CHECK(tokenizer.encode("in") == Ids{id});
    CHECK(encode(tokenizer, "in", {{0, 2}}).size() == 2);
  }
}

TEST_CASE(
    "an added token longer than any real one is refused, for it would be looked for everywhere") {
  Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
  const Tokenizer plain = Tokenizer::parse(file.dump());
  const auto id = static_cast<int>(plain.vocab_size());
  const auto with = [&](std::size_t length) {
    Json changed = file;
    changed["added_tokens"].push_back({{"id", id},
                                       {"content", std::string(length, 'a')},
                                       {"special", false},
                                       {"normalized", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"single_word", false}});
    return changed.dump();
  };
  CHECK_FAILS(Tokenizer::parse(with(257)), "UNSUPPORTED", "257 bytes", "at most 256");
  const Tokenizer tokenizer = Tokenizer::parse(with(256));
  CHECK(tokenizer.encode(std::string(256, 'a')) == Ids{id});
  CHECK(tokenizer.decode(tokenizer.encode(std::string(255, 'a'))) == std::string(255, 'a'));
}
