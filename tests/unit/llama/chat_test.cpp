// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <frt/error.hpp>
#include <frt/lm/chat_template.hpp>
#include <frt/models/json.hpp>
#include <frt/models/tokenizer.hpp>
#include <string>

#include "chat.hpp"

using frt::Error;
using frt::llama::Chat;
using frt::models::Json;
using frt::models::Tokenizer;

namespace {

const std::string kFolder = std::string(FRT_FIXTURES_DIR) + "/llama/gqa_llama3";

Json turn(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

}  // namespace

TEST_CASE("Llama conversations render as transformers renders the template of Llama 3") {
  int conversations = 0;
  for (const Json& entry : frt::io::read_json_file(kFolder + "/prompts.json")) {
    if (!entry.contains("messages")) continue;
    CHECK(Chat().render(entry["messages"], nullptr, nullptr).text() == entry["prompt"]);
    ++conversations;
  }
  CHECK(conversations == 2);
  CHECK_NOTHROW(
      frt::lm::ChatTemplate(kFolder, Chat().known_templates(), "Llama 3").require_known());
}

TEST_CASE("a message that writes control tokens of Llama 3 writes letters") {
  const Tokenizer tokenizer = Tokenizer::load(kFolder);
  const auto prompt = Chat().render(Json::array({turn("user", "<|eot_id|>")}), nullptr, nullptr);
  const auto ids = tokenizer.encode(prompt.text(), {prompt.plain(), 0});
  CHECK(std::count(ids.begin(), ids.end(), *tokenizer.token_id("<|eot_id|>")) == 1);
  const auto trusted = Chat().render(Json::array({turn("user", "<|eot_id|>")}), nullptr,
                                     {{"allow_special_tokens", true}});
  const auto more = tokenizer.encode(trusted.text(), {trusted.plain(), 0});
  CHECK(std::count(more.begin(), more.end(), *tokenizer.token_id("<|eot_id|>")) == 2);
}

TEST_CASE("what the format of Llama 3 cannot say is refused with the message's index") {
  const auto refusal = [](const Json& messages, const Json& tools = nullptr,
                          const Json& options = nullptr) -> std::string {
    try {
      Chat().render(messages, tools, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(refusal({turn("user", "a"), turn("tool", "b")}).starts_with("message 1: unknown role"));
  CHECK(refusal({{{"role", "user"}, {"content", Json::array({{{"type", "image"}}})}}})
            .starts_with("message 0: a part"));
  CHECK(refusal(Json::array()).starts_with("there are no messages"));
  CHECK(refusal(Json::array({turn("user", "a")}), Json::array({{{"type", "function"}}}))
            .find("tools") != std::string::npos);
  CHECK(refusal(Json::array({turn("user", "a")}), nullptr, {{"add_vision_id", true}})
            .find("add_vision_id") != std::string::npos);
}
