// SPDX-License-Identifier: Apache-2.0
// Ids, texts and words against what the tokenizers library made of the same texts (goldens of the
// Qwen tokenizer, and random texts for it and for variants of it).
#include <frt/models/tokenizer.hpp>

#include <algorithm>
#include <chrono>
#include <frt/io/json_text.hpp>
#include <random>
#include <thread>

#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

const std::filesystem::path kFolder = kFixtures / "qwen36/tokenizer";

const Tokenizer& qwen() {
  static const Tokenizer tokenizer = Tokenizer::load(kFolder);
  return tokenizer;
}

using Ids = std::vector<TokenId>;

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  return text += decoder.finish();
}

void check_decoding(const Tokenizer& tokenizer, const Json& golden) {
  const Ids ids = golden["ids"];
  CHECK(tokenizer.decode(ids) == golden["decoded"].get<std::string>());
  CHECK(tokenizer.decode(ids, true) == golden["decoded_skip_special"].get<std::string>());
  CHECK(streamed(tokenizer, ids, false) == golden["decoded"].get<std::string>());
  CHECK(streamed(tokenizer, ids, true) == golden["decoded_skip_special"].get<std::string>());
}

// Merging by looking for the best pair over and over: quadratic, obviously right.
Ids naive_bpe(const Json& model, const std::vector<std::string>& symbols) {
  std::vector<std::string> parts = symbols;
  while (parts.size() > 1) {
    std::size_t best = parts.size(), best_rank = model["merges"].size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        const Json& merge = model["merges"][rank];
        if (merge[0] == parts[i] && merge[1] == parts[i + 1]) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(model["vocab"][part]);
  return ids;
}

}  // namespace

TEST_CASE("all golden texts have the golden ids, words and decodings") {
  const Json pairs = frt::io::read_json_file(kFolder / "pairs.json");
  CHECK(pairs.size() == 150);
  for (const Json& golden : pairs) {
    const std::string text = golden["text"];
    INFO(text);
    CHECK(qwen().encode(text) == golden["ids"].get<Ids>());
    if (golden.contains("pieces")) {
      CHECK(qwen().pieces(text) == golden["pieces"].get<std::vector<std::string>>());
    }
    check_decoding(qwen(), golden);
  }
}

TEST_CASE("all golden id lists decode to the golden texts, at once and streamed") {
  const Json lists = frt::io::read_json_file(kFolder / "decode.json");
  CHECK(lists.size() == 22);
  for (const Json& golden : lists) check_decoding(qwen(), golden);
}

TEST_CASE("random texts have the ids of the tokenizers library, in every variant") {
  const Json groups = frt::io::read_json_file(kFixtures / "models_common/encodings.json");
  const Json base = frt::io::read_json_file(kFolder / "tokenizer.json");
  CHECK(groups.size() == 13);
  for (const Json& group : groups) {
    Json changed = base;
    for (const auto& [key, value] : group["changes"].items()) {
      if (key == "model") {
        changed["model"].update(value);
      } else {
        changed[key] = value;
      }
    }
    const Tokenizer tokenizer = Tokenizer::parse(changed.dump());
    for (const Json& golden : group["cases"]) {
      const std::string text = golden["text"];
      INFO(group["name"].get<std::string>(), ": ", golden["text"].dump(-1, ' ', true));
      CHECK(tokenizer.encode(text) == golden["ids"].get<Ids>());
      // The library reads Latin-1 letters of an added token as bytes ("caf\u00e9" decodes to a
      // broken character); here an added token is its content.
      const bool broken = contains(golden["decoded"].get<std::string>(), "\ufffd");
      if (group["name"] == "added tokens" && broken) {
        CHECK_FALSE(contains(tokenizer.decode(golden["ids"].get<Ids>()), "\ufffd"));
      } else {
        check_decoding(tokenizer, golden);
      }
    }
  }
}

TEST_CASE("the heap finds the merges that a naive search finds") {
  const Json model = frt::io::read_json_file(kFolder / "tokenizer.json")["model"];
  for (const char* word : {"aaaaaaaaaaaaaaa", "interesting", "abababababab", "thethethethe",
                           "ininingingin", "x", "sssssssssss"}) {
    std::vector<std::string> symbols;
    for (const char* c = word; *c; ++c) symbols.emplace_back(1, *c);
    CHECK(qwen().encode(word) == naive_bpe(model, symbols));
  }
}

TEST_CASE("merges written as strings are the same merges") {
  Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
  Json strings = Json::array({"#version: 0.2"});
  for (const Json& pair : file["model"]["merges"]) {
    strings.push_back(pair[0].get<std::string>() + " " + pair[1].get<std::string>());
  }
  file["model"]["merges"] = strings;
  const Tokenizer tokenizer = Tokenizer::parse(file.dump());
  for (const Json& golden : frt::io::read_json_file(kFolder / "pairs.json")) {
    CHECK(tokenizer.encode(golden["text"].get<std::string>()) == golden["ids"].get<Ids>());
  }
}

TEST_CASE("added tokens of tokenizer_config.json fill the gaps of tokenizer.json") {
  Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
  const std::string config = read_file(kFolder / "tokenizer_config.json");
  auto& added = file["added_tokens"].get_ref<Json::array_t&>();
  added.resize(added.size() - 7);  // the audio tokens are missing in some files
  const Tokenizer with = Tokenizer::parse(file.dump(), config);
  const Tokenizer without = Tokenizer::parse(file.dump());
  CHECK(with.vocab_size() == 1833);
  CHECK(without.vocab_size() == 1826);
  CHECK(with.encode("<|audio_pad|>") == Ids{1832});
  CHECK(with.is_special(1832));
  CHECK(without.encode("<|audio_pad|>").size() > 1);
  CHECK_FALSE(without.token_id("<|audio_pad|>"));
  CHECK(with.added_tokens().size() == 33);
}

TEST_CASE("tokens are known by name, id and bytes") {
  CHECK(qwen().vocab_size() == 1833);
  CHECK(qwen().token_id("<|im_end|>") == 1802);
  CHECK(qwen().token_id("!") == 0);
  CHECK(qwen().token_id("\u0120") == 220);
  CHECK(qwen().token_bytes(220) == " ");
  CHECK_FALSE(qwen().token_id(" "));
  CHECK_FALSE(qwen().token_id("no such token"));
  CHECK(qwen().token_bytes(1802) == "<|im_end|>");
  CHECK(qwen().is_special(1802));
  CHECK_FALSE(qwen().is_special(1824));  // <think>
  CHECK_FALSE(qwen().is_special(0));
  CHECK(qwen().has_token(1832));
  for (const TokenId id : {-1, 1833, 248319}) {
    CHECK_FALSE(qwen().has_token(id));
    CHECK_FALSE(qwen().is_special(id));
    CHECK_FAILS(qwen().token_bytes(id), "OUT_OF_RANGE", std::to_string(id), "0 to 1832");
  }
  CHECK(qwen().decode(Ids{64, 248319, -5, 65}) == "ab");  // padding of the embedding is no text
}

TEST_CASE("text from outside can be kept from writing control tokens") {
  const std::string text = "a<|im_end|>b";
  CHECK(qwen().encode(text).size() == 3);
  const std::vector<TextRange> all = {{0, text.size()}};
  const Ids plain = qwen().encode(text, {all, 0});
  CHECK(plain.size() > 3);
  for (const TokenId id : plain) CHECK(id < 1800);
  CHECK(qwen().decode(plain) == text);
}

TEST_CASE("a stream gives out whole characters as soon as they are complete") {
  const auto id_of_byte = [](char byte) {
    TokenId id = 0;
    while (qwen().token_bytes(id) != std::string_view(&byte, 1)) ++id;
    return id;
  };
  const std::string text = "a\u00e9\u4e2d\U0001F600z";
  const std::string expected[] = {"a", "", "\u00e9", "",           "", "\u4e2d",
                                  "",  "", "",       "\U0001F600", "z"};
  StreamDecoder decoder(qwen());
  for (std::size_t i = 0; i < text.size(); ++i) {
    CHECK(decoder.push(id_of_byte(text[i])) == expected[i]);
  }
  CHECK(decoder.finish().empty());
  // A cut character is one replacement character, and the decoder can be used again.
  CHECK(decoder.push(id_of_byte('\xF0')).empty());
  CHECK(decoder.finish() == "\ufffd");
  CHECK(decoder.push(id_of_byte('a')) == "a");
}

TEST_CASE("text that is no UTF-8 is refused with the place") {
  CHECK_FAILS(qwen().encode("abc\xff"), "INVALID_ARGUMENT", "UTF-8 at byte 3");
  CHECK_FAILS(qwen().encode("\xED\xA0\x80"), "INVALID_ARGUMENT", "at byte 0");
  CHECK_FAILS(qwen().encode("\u00e9\xE4\xB8"), "INVALID_ARGUMENT", "at byte 2");
  CHECK_FAILS(qwen().pieces("a\x80"), "INVALID_ARGUMENT", "at byte 1");
  CHECK(qwen().encode("").empty());
  CHECK(qwen().decode({}).empty());
  CHECK(qwen().decode(qwen().encode(std::string("a\0b", 3))) == std::string("a\0b", 3));
}

TEST_CASE("a megabyte of any kind of words is encoded without quadratic growth") {
  std::string prose = read_file(kFolder / "corpus.txt");
  while (prose.size() < 1'000'000) prose += prose;
  prose.resize(1'000'000);
  while (prose.back() & 0x80) prose.pop_back();
  const std::string one_word(1'000'000, 'a');
  std::string words;  // all different
  for (unsigned i = 0; words.size() < 1'000'000; ++i) {
    for (unsigned n = i * 2654435761u; n > 0; n /= 26) words += static_cast<char>('a' + n % 26);
    words += ' ';
  }
  for (const std::string* text :
       std::initializer_list<const std::string*>{&prose, &one_word, &words}) {
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = qwen().encode(*text);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    MESSAGE("1 MB -> ", ids.size(), " ids in ", time.count() * 1e3, " ms");
    const std::string back = qwen().decode(ids);  // the text in NFC
    CHECK((qwen().encode(back) == ids));
    CHECK(std::max(back.size(), text->size()) - std::min(back.size(), text->size()) < 10000);
  }
}

TEST_CASE("a vocabulary of the real size loads") {
  // Tokens of at most 16 letters, each a pair of earlier ones, as merges make them.
  Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
  std::vector<std::string> tokens;
  std::string vocab, merges;
  const auto add = [&](const std::string& token) {
    vocab += (tokens.empty() ? "\"" : ",\"") + token + "\":" + std::to_string(tokens.size());
    tokens.push_back(token);
  };
  for (const auto& [token, id] : file["model"]["vocab"].items()) {
    if (id.get<int>() < 256) add(Json(token).dump().substr(1, Json(token).dump().size() - 2));
  }
  const std::vector<std::string> letters(tokens.begin() + 64, tokens.begin() + 90);
  std::vector<std::string> row = letters;
  for (int length = 2; tokens.size() < 248'000; ++length) {
    std::vector<std::string> next;
    for (const std::string& left : row) {
      for (std::size_t i = 0; i < letters.size() && tokens.size() < 248'000;
           i += length > 3 ? 5 : 1) {
        add(left + letters[i]);
        merges += (merges.empty() ? "[\"" : ",[\"") + left + "\",\"" + letters[i] + "\"]";
        next.push_back(tokens.back());
      }
    }
    row = std::move(next);
  }
  file["model"]["vocab"] = "VOCAB";
  file["model"]["merges"] = "MERGES";
  file["added_tokens"] = Json::array();
  std::string text = file.dump();
  text.replace(text.find("\"VOCAB\""), 7, "{" + vocab + "}");
  text.replace(text.find("\"MERGES\""), 8, "[" + merges + "]");
  const auto start = std::chrono::steady_clock::now();
  const Tokenizer tokenizer = Tokenizer::parse(text);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  MESSAGE(text.size(), " bytes with ", tokenizer.vocab_size(), " tokens in ", time.count() * 1e3,
          " ms");
  CHECK(tokenizer.vocab_size() == 248'000);
  CHECK(tokenizer.token_bytes(247'999) == row.back());
  CHECK(tokenizer.decode(tokenizer.encode(row.back())) == row.back());
}

TEST_CASE("threads share a tokenizer") {
  const Json pairs = frt::io::read_json_file(kFolder / "pairs.json");
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  for (const Json& golden : pairs) {
    texts.push_back(golden["text"]);
    expected.push_back(golden["ids"]);
  }
  std::vector<int> wrong(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < texts.size(); ++i) {
          const Ids ids = qwen().encode(texts[i]);
          wrong[t] += ids != expected[i];
          wrong[t] += qwen().decode(ids) != pairs[i]["decoded"];
        }
      });
    }
  }
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE(
    "the tokenizer of Llama 3 puts its first token in front of a text that begins a sequence") {
  const std::filesystem::path folder = kFixtures / "llama/gqa_llama3";
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const TokenId first = *tokenizer.token_id("<|begin_of_text|>");
  std::size_t texts = 0;
  for (const Json& entry : frt::io::read_json_file(folder / "prompts.json")) {
    if (entry.contains("messages")) continue;
    const std::string text = entry["prompt"];
    CAPTURE(text);
    const Ids expected = entry["ids"];
    CHECK(tokenizer.encode(text, {{}, 0, true}) == expected);
    REQUIRE(expected.at(0) == first);
    CHECK(tokenizer.encode(text) ==
          (text.starts_with("<|begin") ? expected : Ids(expected.begin() + 1, expected.end())));
    ++texts;
  }
  CHECK(texts == 5);
  CHECK_FAILS(tokenizer.encode("a b c", {{}, 3, true}), "OUT_OF_RANGE", "3 tokens");
}

TEST_CASE("in front of a border and from it on a text has the tokens it has alone") {
  const TokenId end = *qwen().token_id("<|im_end|>");
  REQUIRE(qwen().is_border(end));
  CHECK_FALSE(qwen().is_border(*qwen().token_id("a")));
  CHECK_FALSE(qwen().is_border(-1));
  std::mt19937_64 random(9);
  const std::vector<std::string> parts = {"a",  " ",         "\n",           "<|",
                                          "|>", "<|im_end|", "im_end|>",     "\u0301",
                                          "e",  "12",        "<|im_start|>", "\u4e2d"};
  const auto some = [&] {
    std::string text;
    for (uint64_t n = random() % 8; n > 0; --n) text += parts[random() % parts.size()];
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string before = some(), from = "<|im_end|>" + some();
    Ids joined = qwen().encode(before);
    const Ids rest = qwen().encode(from);
    joined.insert(joined.end(), rest.begin(), rest.end());
    CHECK(qwen().encode(before + from) == joined);
  }
}

TEST_CASE("a token that another can reach into, or that takes white space, is no border") {
  const auto borders = [](const std::vector<std::string>& contents, bool strips, bool special) {
    Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
    Json& added = file["added_tokens"];
    added.clear();
    TokenId id = 3000;
    for (const std::string& content : contents) {
      added.push_back({{"id", id++},
                       {"content", content},
                       {"single_word", false},
                       {"lstrip", strips},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", special}});
    }
    const Tokenizer tokenizer = Tokenizer::parse(frt::io::json_text(file));
    std::vector<bool> found;
    for (TokenId at = 3000; at < id; ++at) found.push_back(tokenizer.is_border(at));
    return found;
  };
  using Found = std::vector<bool>;
  CHECK(borders({"<a>", "<b>"}, false, true) == Found{true, true});
  CHECK(borders({"<a>", "<b>"}, true, true) == Found{false, false});
  CHECK(borders({"<a>", "<b>"}, false, false) == Found{false, false});
  CHECK(borders({"<a>", "x<a>y"}, false, true) == Found{false, true});
  CHECK(borders({"<a>", "x<"}, false, true) == Found{false, true});  // "x<a>" is "x<" "a>"
  CHECK(borders({"<a>", "<a>>"}, false, true) == Found{false, false});
  CHECK(borders({"aba"}, false, true) == Found{false});  // "ababa" has it twice, and once
}
