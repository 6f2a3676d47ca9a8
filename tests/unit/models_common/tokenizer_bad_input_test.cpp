// SPDX-License-Identifier: Apache-2.0
// Every way a tokenizer.json can be broken or ask for something that is not done here.
#include <frt/models/tokenizer.hpp>

#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

const std::filesystem::path kFolder = kFixtures / "qwen36/tokenizer";

const Json& good() {
  static const Json file = frt::io::read_json_file(kFolder / "tokenizer.json");
  return file;
}

// The good file with `value` at `pointer` (a JSON pointer).
Tokenizer with(const char* pointer, Json value) {
  Json file = good();
  file[Json::json_pointer(pointer)] = std::move(value);
  return Tokenizer::parse(file.dump());
}

Tokenizer without(const char* pointer, const char* key) {
  Json file = good();
  file[Json::json_pointer(pointer)].erase(key);
  return Tokenizer::parse(file.dump());
}

Tokenizer with_config(const std::string& config) {
  return Tokenizer::parse(good().dump(), config);
}

Json parsed(const char* text) {
  return Json::parse(text);
}

}  // namespace

TEST_CASE("files that are missing or no JSON are named") {
  const ScratchFolder folder;
  CHECK_FAILS(Tokenizer::load(folder.path()), "NOT_FOUND", "tokenizer.json");
  write_file(folder / "tokenizer.json", "{\"model\": \n nonsense");
  CHECK_FAILS(Tokenizer::load(folder.path()), "FORMAT", "tokenizer.json:2:");
  CHECK_FAILS(Tokenizer::load(folder / "tokenizer.json"), "FORMAT", "tokenizer.json:2:");
  CHECK_FAILS(Tokenizer::parse("", ""), "FORMAT", "tokenizer.json:1:1");
  CHECK_FAILS(Tokenizer::parse("[]"), "FORMAT", "no JSON object");
  CHECK_FAILS(Tokenizer::parse("{}"), "FORMAT", "tokenizer.json.version", "string");
  const std::string whole = read_file(kFolder / "tokenizer.json");
  CHECK_FAILS(Tokenizer::parse(whole.substr(0, whole.size() / 2)), "FORMAT", "tokenizer.json:");
  CHECK_FAILS(Tokenizer::parse(std::string(100000, '[')), "FORMAT", "nested deeper");
}

TEST_CASE("a missing or broken tokenizer_config.json: absent is fine, broken is not") {
  const ScratchFolder folder;
  std::filesystem::copy_file(kFolder / "tokenizer.json", folder / "tokenizer.json");
  CHECK(Tokenizer::load(folder.path()).vocab_size() == 1833);
  write_file(folder / "tokenizer_config.json", "{");
  CHECK_FAILS(Tokenizer::load(folder.path()), "FORMAT", "tokenizer_config.json:1:");
  CHECK_FAILS(with_config("[]"), "FORMAT", "tokenizer_config.json", "object");
  CHECK_FAILS(with_config(R"({"added_tokens_decoder": []})"), "FORMAT", "added_tokens_decoder");
  CHECK_FAILS(with_config(R"({"added_tokens_decoder": {"x": {"content": "y"}}})"), "FORMAT", "'x'",
              "is no id");
  CHECK_FAILS(with_config(R"({"added_tokens_decoder": {"-1": {"content": "y"}}})"), "FORMAT",
              "'-1'");
  CHECK_FAILS(with_config(R"({"added_tokens_decoder": {"99999999": {"content": "y"}}})"), "FORMAT");
  CHECK_FAILS(with_config(R"({"added_tokens_decoder": {"1900": 1}})"), "FORMAT", "'1900'",
              "object");
  CHECK_FAILS(with_config(R"({"added_tokens_decoder": {"1900": {}}})"), "FORMAT", "content");
  CHECK_FAILS(with_config(R"({"added_tokens_decoder": {"1802": {"content": "other"}}})"), "FORMAT",
              "'other' with id 1802", "'<|im_end|>' of the same id");
  CHECK_FAILS(with_config(R"({"added_tokens_decoder": {"1900": {"content": "<|im_end|>"}}})"),
              "FORMAT", "'<|im_end|>' with id 1900", "with id 1802");
}

TEST_CASE("keys that are not known are refused, not ignored") {
  CHECK_FAILS(with("/surprise", 1), "UNSUPPORTED", "'surprise'");
  CHECK_FAILS(with("/model/surprise", 1), "UNSUPPORTED", "model", "'surprise'");
  CHECK_FAILS(with("/decoder/surprise", 1), "UNSUPPORTED", "decoder", "'surprise'");
  CHECK_FAILS(with("/added_tokens/0/surprise", 1), "UNSUPPORTED", "added_tokens[0]", "'surprise'");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers/0/surprise", 1), "UNSUPPORTED",
              "pre_tokenizer.pretokenizers[0]", "'surprise'");
  CHECK_FAILS(with("/version", "2.0"), "UNSUPPORTED", "version '2.0'");
  CHECK_FAILS(with("/truncation", parsed(R"({"max_length": 5})")), "UNSUPPORTED", "truncation");
  CHECK_FAILS(with("/padding", parsed(R"({"strategy": "BatchLongest"})")), "UNSUPPORTED",
              "padding");
}

TEST_CASE("components that are not done here are named") {
  CHECK_FAILS(with("/model/type", "WordPiece"), "UNSUPPORTED", "model: type 'WordPiece'");
  CHECK_FAILS(with("/model/dropout", 0.1), "UNSUPPORTED", "dropout");
  CHECK_NOTHROW(with("/model/dropout", 0.0));
  CHECK_FAILS(with("/model/byte_fallback", true), "UNSUPPORTED", "byte_fallback");
  CHECK_FAILS(with("/model/continuing_subword_prefix", "##"), "UNSUPPORTED",
              "continuing_subword_prefix");
  CHECK_FAILS(with("/model/end_of_word_suffix", "</w>"), "UNSUPPORTED", "end_of_word_suffix");
  CHECK_FAILS(with("/normalizer", parsed(R"({"type": "NFKC"})")), "UNSUPPORTED",
              "normalizer: type 'NFKC'");
  CHECK_FAILS(with("/normalizer", parsed(R"({"type": "Sequence", "normalizers": [{"type": "NFC"},
              {"type": "Lowercase"}]})")),
              "UNSUPPORTED", "normalizer.normalizers[1]", "'Lowercase'");
  CHECK_FAILS(with("/pre_tokenizer", parsed(R"({"type": "Metaspace"})")), "UNSUPPORTED",
              "pre_tokenizer: type 'Metaspace'");
  CHECK_FAILS(with("/pre_tokenizer", nullptr), "UNSUPPORTED", "without pre_tokenizer");
  CHECK_FAILS(with("/pre_tokenizer", parsed(R"({"type": "Sequence", "pretokenizers": []})")),
              "UNSUPPORTED", "ByteLevel");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers/2", good()["pre_tokenizer"]["pretokenizers"][0]),
              "UNSUPPORTED", "pretokenizers[2]", "'Split' after ByteLevel");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers/0/behavior", "Removed"), "UNSUPPORTED",
              "behavior 'Removed'");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers/0/invert", true), "UNSUPPORTED", "invert");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers/0/pattern/Regex", R"(\bword)"), "UNSUPPORTED",
              "pretokenizers[0].pattern", "\\b");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a"), "UNSUPPORTED", "offset");
  CHECK_FAILS(with("/post_processor", parsed(R"({"type": "BertProcessing"})")), "UNSUPPORTED",
              "post_processor: type 'BertProcessing'");
  CHECK_FAILS(with("/decoder", nullptr), "UNSUPPORTED", "without decoder");
  CHECK_FAILS(with("/decoder/type", "WordPiece"), "UNSUPPORTED", "decoder: type 'WordPiece'");
}

TEST_CASE("a TemplateProcessing that is broken, or puts tokens behind a text, is refused") {
  const auto processor = [](const char* single, const char* special) {
    return with("/post_processor",
                parsed((std::string(R"({"type": "TemplateProcessing", "single": )") + single +
                        R"(, "pair": [], "special_tokens": )" + special + "}")
                           .c_str()));
  };
  constexpr const char* kText = R"({"Sequence": {"id": "A", "type_id": 0}})";
  constexpr const char* kToken = R"({"SpecialToken": {"id": "b", "type_id": 0}})";
  const auto both = [](const char* first, const char* second) {
    return "[" + std::string(first) + "," + second + "]";
  };
  constexpr const char* kIds = R"({"b": {"id": "b", "ids": [1800], "tokens": ["b"]}})";
  CHECK_NOTHROW(processor(both(kToken, kText).c_str(), kIds));
  CHECK_FAILS(processor(both(kText, kToken).c_str(), kIds), "UNSUPPORTED", "post_processor.single",
              "behind the text");
  CHECK_FAILS(processor("[]", kIds), "FORMAT", "post_processor.single", "no Sequence");
  CHECK_FAILS(processor("[{}]", kIds), "FORMAT", "post_processor.single");
  CHECK_FAILS(processor(both(kToken, kText).c_str(), "{}"), "FORMAT", "no entry 'b'");
  CHECK_FAILS(processor(both(kToken, kText).c_str(), "[]"), "FORMAT", "special_tokens");
  for (const char* ids : {"[-1]", "[\"x\"]", "[99999999999]", "7"}) {
    const std::string special = std::string(R"({"b": {"ids": )") + ids + "}}";
    CHECK_FAILS(processor(both(kToken, kText).c_str(), special.c_str()), "FORMAT",
                "special_tokens");
  }
  CHECK_FAILS(processor(both(kToken, kText).c_str(), R"({"b": {"ids": [5000]}})"), "FORMAT",
              "no token has the id 5000");
  CHECK_FAILS(processor(both(kToken, kText).c_str(),
                        R"({"b": {"ids": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}})"),
              "UNSUPPORTED", "more than 16 tokens");
}

TEST_CASE("values of the wrong kind are named") {
  CHECK_FAILS(with("/model", 1), "FORMAT", "model: expected an object");
  CHECK_FAILS(without("", "model"), "FORMAT", "no model");
  CHECK_FAILS(with("/model/type", 1), "FORMAT", "model.type");
  CHECK_FAILS(with("/model/ignore_merges", 1), "FORMAT", "model.ignore_merges", "true or false");
  CHECK_FAILS(with("/normalizer", "NFC"), "FORMAT", "normalizer");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers", 5), "FORMAT", "pretokenizers", "array");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers/0", 5), "FORMAT", "pretokenizers[0]", "object");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers/0/pattern", "x"), "FORMAT", "pattern", "object");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers/0/pattern", Json::object()), "FORMAT", "pattern",
              "Regex or String");
  CHECK_FAILS(with("/pre_tokenizer/pretokenizers/0/pattern/Regex", ""), "FORMAT", "is empty");
  CHECK_FAILS(without("/pre_tokenizer/pretokenizers/0", "pattern"), "FORMAT", "no pattern");
  CHECK_FAILS(with("/added_tokens", Json::object()), "FORMAT", "added_tokens", "array");
  CHECK_FAILS(with("/added_tokens/1", 5), "FORMAT", "added_tokens[1]", "object");
  CHECK_FAILS(with("/added_tokens/1/id", -1), "FORMAT", "added_tokens[1]", "no id");
  CHECK_FAILS(with("/added_tokens/1/id", 1 << 23), "FORMAT", "added_tokens[1]", "no id");
  CHECK_FAILS(with("/added_tokens/1/content", 3), "FORMAT", "added_tokens[1].content", "string");
  CHECK_FAILS(with("/added_tokens/1/content", ""), "FORMAT", "added_tokens[1]", "empty");
  CHECK_FAILS(with("/added_tokens/1/special", "yes"), "FORMAT", "added_tokens[1].special");
}

TEST_CASE("a broken vocabulary is named") {
  CHECK_FAILS(without("/model", "vocab"), "FORMAT", "model", "no vocab");
  CHECK_FAILS(with("/model/vocab", Json::array()), "FORMAT", "no vocab");
  CHECK_FAILS(with("/model/vocab/zz", "x"), "FORMAT", "model.vocab: 'zz' is a string");
  CHECK_FAILS(with("/model/vocab/zz", -1), "FORMAT", "'zz' is a negative number");
  CHECK_FAILS(with("/model/vocab/zz", 1.5), "FORMAT", "'zz' is 1.5");
  CHECK_FAILS(with("/model/vocab/zz", Json::object()), "FORMAT", "'zz' is an object");
  CHECK_FAILS(with("/model/vocab/zz", Json::array()), "FORMAT", "'zz' is an array");
  CHECK_FAILS(with("/model/vocab/zz", 4294967296), "FORMAT", "'zz'", "4294967296");
  CHECK_FAILS(with("/model/vocab/zz", 5), "FORMAT", "two tokens have the id 5");
  std::string twice = good().dump();
  twice.insert(twice.find("\"vocab\":{") + 9, "\"!\":0,");
  CHECK_FAILS(Tokenizer::parse(twice), "FORMAT", "two tokens have the id 0");
  twice = good().dump();
  twice.insert(twice.find("\"vocab\":{") + 9, "\"!\":3000,");
  CHECK_FAILS(Tokenizer::parse(twice), "FORMAT", "'!' stands twice");
  CHECK_FAILS(with("/model/vocab", parsed("{}")), "UNSUPPORTED", "model.vocab",
              "without the byte 0");
  CHECK_FAILS(without("/model/vocab", "\u0120"), "UNSUPPORTED", "byte 32", "\u0120");
  CHECK_FAILS(with("/model/vocab/zz", 1802), "FORMAT", "the id 1802 belongs to 'zz'");
  CHECK_FAILS(with("/model/vocab/<|im_end|>", 3000), "FORMAT", "'<|im_end|>' has the id 1802",
              "gives it 3000");
  CHECK_NOTHROW(with("/model/vocab/<|im_end|>", 1802));
}

TEST_CASE("vocabulary entries that stand for no bytes are known by name only") {
  const Tokenizer tokenizer = with("/model/vocab/a b", 5000);
  CHECK(tokenizer.token_id("a b") == 5000);
  CHECK(tokenizer.token_bytes(5000) == "a b");
  CHECK(tokenizer.vocab_size() == 5001);
  CHECK_FALSE(tokenizer.has_token(4999));
  for (const TokenId id : tokenizer.encode("a b")) CHECK(id != 5000);
}

TEST_CASE("broken merges are named by their number") {
  CHECK_FAILS(without("/model", "merges"), "FORMAT", "model", "no merges");
  CHECK_FAILS(with("/model/merges", 1), "FORMAT", "no merges");
  CHECK_FAILS(with("/model/merges/2", "abc"), "FORMAT", "model.merges: entry 2 is 'abc'");
  CHECK_FAILS(with("/model/merges/2", "a b c"), "FORMAT", "entry 2 is 'a b c'");
  CHECK_FAILS(with("/model/merges/2", " b"), "FORMAT", "entry 2", "no bytes");
  CHECK_FAILS(with("/model/merges/2", parsed(R"(["a"])")), "FORMAT", "has 1 parts");
  CHECK_FAILS(with("/model/merges/2", parsed(R"(["a", "b", "c"])")), "FORMAT", "has 3 parts");
  CHECK_FAILS(with("/model/merges/2", parsed(R"(["a", ""])")), "FORMAT", "entry 2", "''");
  CHECK_FAILS(with("/model/merges/2", parsed(R"(["a", ["b"]])")), "FORMAT", "an array");
  CHECK_FAILS(with("/model/merges/2", parsed(R"([1, 2])")), "FORMAT", "entry 2 is a number");
  CHECK_FAILS(with("/model/merges/2", parsed(R"(["a", "b c"])")), "FORMAT", "entry 2", "'b c'");
  CHECK_FAILS(with("/model/merges/2", "qqqqq zzzzz"), "FORMAT", "entry 2 ('qqqqq', 'zzzzz')",
              "'qqqqq' is not in the vocabulary");
  CHECK_FAILS(with("/model/merges/2", "~ ~"), "FORMAT", "'~~' is not in the vocabulary");
}
