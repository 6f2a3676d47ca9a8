// SPDX-License-Identifier: Apache-2.0
// The chat template of a checkpoint of Llama 3, and its tokenizer.
#include <doctest/doctest.h>

#include <algorithm>
#include <frt/lm/template_chat.hpp>
#include <frt/models/json.hpp>
#include <frt/models/tokenizer.hpp>
#include <string>

using frt::lm::TemplateChat;
using frt::models::Json;
using frt::models::Tokenizer;

namespace {

const std::string kFolder = std::string(FRT_FIXTURES_DIR) + "/llama/gqa_llama3";

Json turn(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

}  // namespace

TEST_CASE("Llama conversations render as transformers renders the template of Llama 3") {
  const TemplateChat chat(kFolder, "");
  const Tokenizer tokenizer = Tokenizer::load(kFolder);
  int conversations = 0;
  for (const Json& entry : frt::io::read_json_file(kFolder + "/prompts.json")) {
    if (!entry.contains("messages")) continue;
    const auto prompt = chat.render(entry["messages"], nullptr, nullptr);
    CHECK(prompt.text() == entry["prompt"]);
    if (entry.contains("ids")) {
      const auto ids = tokenizer.encode(prompt.text(), {prompt.plain(), 0, true});
      CHECK(Json(ids) == entry["ids"]);
    }
    ++conversations;
  }
  CHECK(conversations == 2);
}

TEST_CASE("a message that writes control tokens of Llama 3 writes letters") {
  const TemplateChat chat(kFolder, "");
  const Tokenizer tokenizer = Tokenizer::load(kFolder);
  const auto count = [&](const Json& options) {
    const auto prompt = chat.render(Json::array({turn("user", " <|eot_id|> ")}), nullptr, options);
    const auto ids = tokenizer.encode(prompt.text(), {prompt.plain(), 0});
    return std::count(ids.begin(), ids.end(), *tokenizer.token_id("<|eot_id|>"));
  };
  CHECK(count(nullptr) == 1);
  CHECK(count({{"allow_special_tokens", true}}) == 2);
}
