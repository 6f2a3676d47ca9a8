// SPDX-License-Identifier: Apache-2.0
// The parsers of untrusted files under thousands of small damages, always the same ones: each file
// is accepted or refused with an frt::Error, nothing else (sanitizers watch the rest). The fuzz
// targets of tests/fuzz look further from the same seeds.
#include <frt/models/safetensors.hpp>
#include <frt/models/tokenizer.hpp>

#include <random>

#include "cases.hpp"
#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

const std::filesystem::path kSeeds = std::filesystem::path(FRT_SOURCE_DIR) / "tests/fuzz/seeds";

// What tends to break parsers of JSON and of sizes.
const std::string kTokens[] = {"{",
                               "}",
                               "[",
                               "]",
                               "\"",
                               ",",
                               ":",
                               "null",
                               "true",
                               "-1",
                               "1e99",
                               "0",
                               "18446744073709551615",
                               "18446744073709551616",
                               "\\",
                               "\\u0000",
                               "\xff",
                               std::string(1, '\0'),
                               "\"a\":",
                               "[[",
                               "9",
                               "(",
                               "*",
                               "{2,9}"};

std::string damaged(std::string text, std::mt19937& random) {
  const auto place = [&] { return text.empty() ? 0 : random() % text.size(); };
  for (unsigned n = 1 + random() % 3; n > 0; --n) {
    switch (random() % 6) {
      case 0:
        text.insert(place(), kTokens[random() % std::size(kTokens)]);
        break;
      case 1:
        text.erase(place(), 1 + random() % 8);
        break;
      case 2:
        text.resize(place());
        break;
      case 3:
        text.insert(place(), text.substr(place(), random() % 64));
        break;
      case 4:
        if (!text.empty()) text[place()] = static_cast<char>(random());
        break;
      case 5: {
        const std::string& token = kTokens[random() % std::size(kTokens)];
        text.replace(place(), token.size(), token);
      }
    }
  }
  return text;
}

// How many damaged versions of `seed` the parser accepted, of a share of all cases.
template <class Parse>
int accepted(const std::string& seed, double share, const Parse& parse) {
  const double cases = static_cast<double>(frt::test::number_from("FRT_MUTATIONS", 20000));
  const int count = static_cast<int>(cases * share);
  std::mt19937 random(2024);
  int good = 0;
  for (int i = 0; i < count; ++i) {
    const std::string text = damaged(seed, random);
    try {
      parse(text);
      ++good;
    } catch (const frt::Error& error) {
      CHECK(std::string_view(error.what()).size() > 10);
    }
  }
  return good;
}

}  // namespace

TEST_CASE("damaged safetensors files are accepted or refused, never more") {
  int good = 0;
  for (const char* name : {"two.safetensors", "empty.safetensors"}) {
    const std::string seed = read_file(kSeeds / "safetensors" / name);
    const auto parse = [](const std::string& bytes) {
      validate_safetensors(std::as_bytes(std::span(bytes)), "x");
    };
    CHECK_NOTHROW(parse(seed));
    good += accepted(seed, 1, parse);
  }
  CHECK(good > 0);  // some damage is harmless: the loop reaches past the syntax
}

TEST_CASE("damaged tokenizer.json files are accepted or refused, never more") {
  int good = 0;
  for (const char* name : {"qwen.json", "gpt2.json"}) {
    const std::string seed = read_file(kSeeds / "tokenizer" / name);
    const auto parse = [](const std::string& text) {
      const Tokenizer tokenizer = Tokenizer::parse(text);
      const auto ids = tokenizer.encode("ab abc<|end|> 12\n caf\u00e9 <s> \u4e2d");
      CHECK_FALSE(tokenizer.decode(ids).empty());
    };
    CHECK_NOTHROW(parse(seed));
    good += accepted(seed, 0.15, parse);
  }
  CHECK(good > 0);
}

TEST_CASE("damaged indices and configurations are accepted or refused, never more") {
  const std::string config = read_file(kFixtures / "qwen36/tokenizer/tokenizer_config.json");
  const std::string tokenizer = read_file(kSeeds / "tokenizer/qwen.json");
  accepted(config.substr(0, config.find("\"bos_token\"")) + "\"x\":1}", 0.015,
           [&](const std::string& text) { Tokenizer::parse(tokenizer, text); });
  const ScratchFolder folder;
  std::filesystem::copy_file(kSeeds / "safetensors/two.safetensors", folder / "one.safetensors");
  const std::string index =
      R"({"metadata":{},"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})";
  const int good = accepted(index, 0.05, [&](const std::string& text) {
    write_file(folder / "model.safetensors.index.json", text);
    Checkpoint::open(folder.path());
  });
  CHECK(good > 0);
}
