// SPDX-License-Identifier: Apache-2.0
// Requests with damage, and answers of any events.
#include <frt/io/json.hpp>
#include <json_mutation.hpp>
#include <random>

#include "cases.hpp"
#include "wire.hpp"

using namespace frt::test;
using namespace frt::host;

namespace {

const Protocol* const kProtocols[] = {&chat_completions(), &completions(), &responses(),
                                      &messages()};

ApiCall answered_call(std::mt19937_64& random) {
  ApiCall call;
  call.prompts = {"x"};
  call.include_usage = random() % 2;
  call.log_probabilities = random() % 2;
  call.parallel_tool_calls = random() % 4 != 0;
  if (random() % 8 == 0) call.tool_choice.mode = ApiToolChoice::kNone;
  call.tool_names = {{.name = "f", .client_name = "f", .space = {}},
                     {.name = "s__g", .client_name = "g", .space = "s"},
                     {.name = "c", .client_name = "c", .space = {}, .custom = true}};
  return call;
}

// Events as ChatStream gives them: calls one after the other, whole JSON in each.
Story random_story(std::mt19937_64& random) {
  static const char* const kTexts[] = {"a",  "\n",           "é",           "\xff",
                                       "\"", "</tool_call>", "\xE2\x80\xA8"};
  static const char* const kNames[] = {"f", "s__g", "c", "unknown"};
  Story story;
  story.told.clear();
  uint32_t calls = 0;
  for (std::size_t i = random() % 8; i > 0; --i) {
    const std::string piece = kTexts[random() % std::size(kTexts)];
    switch (random() % 3) {
      case 0:
        story.told.push_back({0, reasoning(piece), {}});
        break;
      case 1:
        story.told.push_back({0, text(piece), ApiTokenProbability{piece, -1.0f}});
        break;
      default:
        story.told.push_back({0, tool_begin(calls, kNames[random() % std::size(kNames)]), {}});
        story.told.push_back({0, tool_arguments(calls, "{\"input\":"), {}});
        story.told.push_back({0, tool_arguments(calls, "\"x\"}"), {}});
        story.told.push_back({0, tool_end(calls, random() % 8 == 0), {}});
        ++calls;
    }
  }
  story.finishes = {{0, {.finish = random() % 4 ? Finish::kStop : Finish::kLength}}};
  return story;
}

void append(Json& to, const char* field, const Json& delta) {
  if (!delta.contains(field)) return;
  if (!to.contains(field) || to[field].is_null()) to[field] = "";
  to[field] = to[field].get<std::string>() + delta[field].get<std::string>();
}

// A chat stream's chunks as a client joins them.
Json joined_chat(const std::vector<Record>& records) {
  Json message = {{"role", "assistant"}, {"content", ""}};
  Json choice;
  for (const Record& record : records) {
    if (record.data == "[DONE]" || record.data["choices"].empty()) continue;
    const Json& one = record.data["choices"][0];
    const Json& delta = one["delta"];
    append(message, "content", delta);
    append(message, "reasoning_content", delta);
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      Json& calls = message["tool_calls"];
      if (call.contains("id")) {
        calls.push_back(call);
        calls.back().erase("index");
        continue;
      }
      Json& open = calls.at(call["index"].get<std::size_t>());
      if (call.contains("function")) append(open["function"], "arguments", call["function"]);
      if (call.contains("custom")) append(open["custom"], "input", call["custom"]);
    }
    if (one["finish_reason"].is_string()) choice["finish_reason"] = one["finish_reason"];
  }
  if (message["content"] == "" && message.contains("tool_calls")) message["content"] = nullptr;
  choice["message"] = message;
  return choice;
}

}  // namespace

TEST_CASE("a damaged request of any agent is a call or a refusal") {
  std::mt19937_64 random(1);
  std::vector<std::pair<const Protocol*, Json>> bodies;
  for (const char* agent : {"codex", "claude_code", "qwen_code", "cline"}) {
    const Json file =
        frt::io::read_json_file(std::string(FRT_FIXTURES_DIR "/agents/") + agent + ".json");
    const bool is_chat = file["path"] == "/v1/chat/completions";
    bodies.emplace_back(is_chat                           ? &chat_completions()
                        : file["path"] == "/v1/responses" ? &responses()
                                                          : &messages(),
                        file["turns"][1]);
  }
  bodies.emplace_back(&completions(),
                      Json{{"prompt", {"x", "y"}}, {"logprobs", 1}, {"stop", {"a"}}});
  uint64_t calls = 0, refusals = 0;
  for (uint64_t i = number_from("FRT_API_CASES", 1500); i > 0; --i) {
    auto [own, body] = bodies[random() % bodies.size()];
    for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) mutate(body, random);
    std::string bytes = body.dump();
    if (random() % 8 == 0 && !bytes.empty())
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const Protocol& protocol = random() % 8 ? *own : *kProtocols[random() % std::size(kProtocols)];
    try {
      const ApiCall call = protocol.parse(bytes, {}, {});
      CHECK((call.kind == ApiCall::Kind::kText ? !call.prompts.empty() : !call.messages.empty()));
      CHECK(call.tool_names.size() == (call.tools.is_null() ? 0 : call.tools.size()));
      ++calls;
    } catch (const ApiError& error) {
      CHECK(Json::parse(protocol.error_body(error)).contains("error"));
      ++refusals;
    }
  }
  CHECK(calls > 0);
  CHECK(refusals > 0);
}

TEST_CASE("a stream joined by its client is the whole reply, whatever the answer consists of") {
  std::mt19937_64 random(2);
  for (uint64_t i = number_from("FRT_API_CASES", 1500) / 5; i > 0; --i) {
    const ApiCall call = answered_call(random);
    const Story story = random_story(random);
    CAPTURE(i);

    Json choice = whole_reply(chat_completions(), call, story)["choices"][0];
    choice["message"].erase("refusal");
    const Json joined = joined_chat(streamed_reply(chat_completions(), call, story));
    CHECK(joined["finish_reason"] == choice["finish_reason"]);
    CHECK(joined["message"].size() == choice["message"].size());
    for (const auto& [key, value] : choice["message"].items())
      CHECK(joined["message"][key] == value);

    CHECK(streamed_reply(responses(), call, story).back().data["response"] ==
          whole_reply(responses(), call, story));

    const Json whole = whole_reply(messages(), call, story);
    std::size_t blocks = 0;
    for (const Record& record : streamed_reply(messages(), call, story)) {
      if (record.event == "content_block_start") {
        CHECK(record.data["content_block"]["type"] == whole["content"][blocks]["type"]);
        CHECK(record.data["content_block"].value("id", "") ==
              whole["content"][blocks].value("id", ""));
        ++blocks;
      }
    }
    CHECK(blocks == whole["content"].size());
  }
}
