// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

using namespace frt::test;
using namespace frt::host;

namespace {

ApiCall tool_call() {
  ApiCall call;
  call.tool_names = {{.name = "read", .client_name = "read", .space = {}},
                     {.name = "patch", .client_name = "patch", .space = {}, .custom = true}};
  return call;
}

// A chunk's only choice.
Json choice_of(const Record& record) {
  return record.data["choices"][0];
}

}  // namespace

TEST_CASE("a whole chat reply has reasoning, text, usage and the frt member") {
  const Json reply =
      whole_reply(chat_completions(), {}, {{reasoning("h"), reasoning("m"), text("a"), text("b")}});
  CHECK(reply == Json::parse(R"({"id": "chatcmpl-0af1", "object": "chat.completion",
    "created": 1700000000, "model": "frt",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "ab", "refusal": null,
                 "reasoning_content": "hm"}, "logprobs": null, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27,
              "prompt_tokens_details": {"cached_tokens": 12},
              "completion_tokens_details": {"reasoning_tokens": 3}},
    "frt": {"prefix_action": "restore"}})"));
}

TEST_CASE("a chat stream is a role, pieces, a finish_reason, the frt member, [DONE]") {
  const auto records = streamed_reply(chat_completions(), {}, {{reasoning("h"), text("a")}});
  REQUIRE(records.size() == 5);
  CHECK(choice_of(records[0])["delta"] == Json{{"role", "assistant"}, {"content", ""}});
  CHECK(choice_of(records[1])["delta"] == Json{{"reasoning_content", "h"}});
  CHECK(choice_of(records[2])["delta"] == Json{{"content", "a"}});
  CHECK(choice_of(records[2])["finish_reason"].is_null());
  CHECK(choice_of(records[3])["delta"] == Json::object());
  CHECK(choice_of(records[3])["finish_reason"] == "stop");
  CHECK(records[3].data["frt"]["prefix_action"] == "restore");
  CHECK(!records[3].data.contains("usage"));
  CHECK(records[4].data == "[DONE]");
}

TEST_CASE("a chat stream ends with a chunk of usage if the client asked for one") {
  ApiCall call;
  call.include_usage = true;
  const auto records = streamed_reply(chat_completions(), call, {{text("a")}});
  REQUIRE(records.size() == 5);
  CHECK(records[1].data["usage"].is_null());
  CHECK(records[3].data["choices"] == Json::array());
  CHECK(records[3].data["usage"]["prompt_tokens_details"]["cached_tokens"] == 12);
  CHECK(records[3].data["frt"]["prefix_action"] == "restore");
}

TEST_CASE("a streamed call begins with id, name and empty arguments, then come pieces") {
  const Story story({text("t"), tool_begin(0, "read"), tool_arguments(0, "{\"a\""),
                     tool_arguments(0, ":1}"), tool_end(0), tool_begin(1, "patch"),
                     tool_arguments(1, "{\"input\": \"x\\ny\"}"), tool_end(1)});
  const auto records = streamed_reply(chat_completions(), tool_call(), story);
  REQUIRE(records.size() == 9);
  const auto call = [&](std::size_t i) { return choice_of(records[i])["delta"]["tool_calls"][0]; };
  CHECK(call(2) == Json::parse(R"({"index": 0, "id": "call_0af1_0", "type": "function",
                                   "function": {"name": "read", "arguments": ""}})"));
  CHECK(call(3) == Json::parse(R"({"index": 0, "function": {"arguments": "{\"a\""}})"));
  CHECK(call(4) == Json::parse(R"({"index": 0, "function": {"arguments": ":1}"}})"));
  CHECK(call(5) == Json::parse(R"({"index": 1, "id": "call_0af1_1", "type": "custom",
                                   "custom": {"name": "patch", "input": ""}})"));
  CHECK(call(6) == Json::parse(R"({"index": 1, "custom": {"input": "x\ny"}})"));
  CHECK(choice_of(records[7])["finish_reason"] == "tool_calls");

  const Json message = whole_reply(chat_completions(), tool_call(), story)["choices"][0]["message"];
  CHECK(message["content"] == "t");
  CHECK(message["tool_calls"] == Json::parse(R"([
    {"id": "call_0af1_0", "type": "function",
     "function": {"name": "read", "arguments": "{\"a\":1}"}},
    {"id": "call_0af1_1", "type": "custom", "custom": {"name": "patch", "input": "x\ny"}}])"));
}

TEST_CASE("an answer of calls alone has no content, and one that was cut is of length") {
  const Story story({tool_begin(0, "read"), tool_arguments(0, "{}"), tool_end(0, true)},
                    {.finish = Finish::kLength});
  const Json choice = whole_reply(chat_completions(), tool_call(), story)["choices"][0];
  CHECK(choice["message"]["content"].is_null());
  CHECK(choice["finish_reason"] == "length");
}

TEST_CASE("calls that the client ruled out are left out") {
  const Story story({text("t"), tool_begin(0, "read"), tool_arguments(0, "{}"), tool_end(0),
                     tool_begin(1, "read"), tool_arguments(1, "{}"), tool_end(1)});
  ApiCall none = tool_call(), one = tool_call();
  none.tool_choice.mode = ApiToolChoice::kNone;
  one.parallel_tool_calls = false;
  const Json silent = whole_reply(chat_completions(), none, story)["choices"][0];
  CHECK(!silent["message"].contains("tool_calls"));
  CHECK(silent["finish_reason"] == "stop");
  CHECK(whole_reply(chat_completions(), one, story)["choices"][0]["message"]["tool_calls"].size() ==
        1);
  CHECK(streamed_reply(chat_completions(), one, story).size() == 6);
}

TEST_CASE("several choices are told apart, and only the last finish waits for the end") {
  ApiCall call = tool_call();
  call.choices = 2;
  Story story;
  story.told = {{1, text("b"), {}}, {0, tool_begin(0, "read"), {}}, {1, tool_begin(0, "read"), {}}};
  story.finishes = {{0, {}}, {1, {.finish = Finish::kLength}}};
  const Json reply = whole_reply(chat_completions(), call, story);
  CHECK(reply["choices"][0]["message"]["tool_calls"][0]["id"] == "call_0af1_0");
  CHECK(reply["choices"][1]["message"]["tool_calls"][0]["id"] == "call_0af1_0_1");
  CHECK(reply["choices"][1]["message"]["content"] == "b");
  const auto records = streamed_reply(chat_completions(), call, story);
  REQUIRE(records.size() == 8);
  CHECK(!records[5].data.contains("frt"));
  CHECK(records[6].data.contains("frt"));
  CHECK(choice_of(records[6])["index"] == 1);
}

TEST_CASE("log probabilities go out with the text they belong to") {
  ApiCall call;
  call.log_probabilities = true;
  Story story;
  story.told = {
      {0, text("é"), ApiTokenProbability{"\xC3", -0.5f, {{"\xC3", -0.5f}, {"x", -INFINITY}}}}};
  const Json expected = Json::parse(R"({"content": [{"token": "\uFFFD", "logprob": -0.5,
    "bytes": [195], "top_logprobs": [{"token": "\uFFFD", "logprob": -0.5, "bytes": [195]},
                                     {"token": "x", "logprob": -9999.0, "bytes": [120]}]}],
    "refusal": null})");
  CHECK(whole_reply(chat_completions(), call, story)["choices"][0]["logprobs"] == expected);
  CHECK(choice_of(streamed_reply(chat_completions(), call, story)[1])["logprobs"] == expected);
  call.log_probabilities = false;
  CHECK(whole_reply(chat_completions(), call, story)["choices"][0]["logprobs"].is_null());
}

TEST_CASE("no text breaks a line of the stream, whatever bytes it has") {
  std::string bytes =
      "a\r\nb\x0b\x1e\x7f \xC2\x85\xE2\x80\xA8\xE2\x80\xA9\xff\xc3\"\\</s>\xf0\x9f\x98\x80";
  bytes += '\0';
  const std::string whole_text =
      whole_reply(chat_completions(), {}, {{text(bytes)}})["choices"][0]["message"]["content"];
  ApiCall call;
  call.stream = true;
  const std::string stream = reply_of(chat_completions(), call, {{text(bytes)}});
  for (const char* separator : {"\r", "\x0b", "\x1e", "\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"}) {
    CHECK(stream.find(separator) == stream.npos);
  }
  CHECK(choice_of(records_of(stream)[1])["delta"]["content"] == whole_text);
  CHECK(whole_text.find("\xEF\xBF\xBD") != std::string::npos);
}

TEST_CASE("an error ends a chat stream as a record, and is the body of a whole reply") {
  ApiCall call;
  const ApiError error(ApiErrorKind::kOverloaded, "full");
  const Json expected = Json::parse(R"({"error": {"message": "full", "type": "server_error",
                                        "param": null, "code": "overloaded"}})");
  CHECK(Json::parse(chat_completions().reply(call, {})->error(error)) == expected);
  CHECK(Json::parse(chat_completions().error_body(error)) == expected);
  call.stream = true;
  const auto records = records_of(chat_completions().reply(call, {})->error(error));
  REQUIRE(records.size() == 1);
  CHECK(records[0].data == expected);
}

TEST_CASE("a chat stream's heartbeat is a comment, and a whole reply has none") {
  ApiCall call;
  CHECK(chat_completions().reply(call, {})->heartbeat() == "");
  call.stream = true;
  CHECK(chat_completions().reply(call, {})->heartbeat().starts_with(":"));
}
