// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

using namespace frt::test;
using namespace frt::host;

namespace {

const Json kBase = {{"model", "m"},
                    {"max_tokens", 100},
                    {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};

std::string refused(const char* member, const Json& value) {
  return refusal_with(messages(), kBase, member, value);
}

ApiCall call_with(const char* member, const Json& value) {
  Json body = kBase;
  body[member] = value;
  return parse(messages(), body);
}

const Json kTool = Json::parse(R"({"name": "read", "description": "Reads.",
                                   "input_schema": {"type": "object", "properties": {}}})");

Story tool_story() {
  return {{reasoning("h"), reasoning("m"), text("a"), text("b"), tool_begin(0, "read"),
           tool_arguments(0, "{\"p\""), tool_arguments(0, ":1}"), tool_end(0)}};
}

}  // namespace

TEST_CASE("the smallest Messages request does not reason unless it asks for it") {
  const ApiCall call = parse(messages(), kBase);
  CHECK(call.messages == kBase["messages"]);
  CHECK(call.max_tokens == 100);
  CHECK(call.chat_options == Json{{"enable_thinking", false}});
  CHECK(call_with("thinking", {{"type", "adaptive"}}).chat_options["enable_thinking"] == true);
  CHECK(call_with("thinking", {{"type", "enabled"}, {"budget_tokens", 2000}})
            .chat_options["enable_thinking"] == true);
  CHECK(call_with("thinking", {{"type", "disabled"}}).chat_options["enable_thinking"] == false);
}

TEST_CASE("fields of a Messages request reach the call") {
  CHECK(call_with("stop_sequences", {"a", "b"}).stop.size() == 2);
  CHECK(call_with("temperature", 0.5).sampling.temperature == 0.5f);
  CHECK(call_with("top_k", 5).sampling.top_k == 5);
  CHECK(call_with("metadata", {{"user_id", "u"}}).session == "u");
  CHECK(call_with("stream", true).stream);
  Json body = kBase;
  body["tools"] = Json::array({kTool});
  body["tool_choice"] = {{"type", "auto"}, {"disable_parallel_tool_use", true}};
  CHECK(!parse(messages(), body).parallel_tool_calls);
  body["tool_choice"] = {{"type", "any"}};
  CHECK(parse(messages(), body).tool_choice.mode == ApiToolChoice::kRequired);
  body["tool_choice"] = {{"type", "tool"}, {"name", "read"}};
  CHECK(parse(messages(), body).tool_choice.name == "read");
  body["tool_choice"] = {{"type", "none"}};
  CHECK(parse(messages(), body).tool_choice.mode == ApiToolChoice::kNone);
  const Json schema = {{"type", "json_schema"}, {"schema", {{"type", "object"}}}};
  CHECK(call_with("output_config", {{"format", schema}}).response_format == schema);
  CHECK(call_with("output_config", {{"effort", "high"}}).response_format.is_null());
}

TEST_CASE("a field of a Messages request of another type or range is refused by its name") {
  const std::pair<const char*, Json> cases[] = {
      {"max_tokens", nullptr},
      {"max_tokens", 0},
      {"max_tokens", "1"},
      {"model", 1},
      {"stream", 1},
      {"temperature", 3},
      {"stop_sequences", {"", "a"}},
      {"system", 1},
      {"system", Json::array({{{"type", "image"}}})},
      {"thinking", {{"type", "much"}}},
      {"thinking", true},
      {"tools", {1}},
      {"tools", Json::array({{{"input_schema", Json::object()}}})},
      {"tools", Json::array({kTool, kTool})},
      {"tool_choice", "auto"},
      {"tool_choice", {{"type", "some"}}},
      {"tool_choice", {{"type", "any"}}},
      {"tool_choice", {{"type", "tool"}, {"name", "none"}}},
      {"metadata", 1},
      {"metadata", {{"user_id", 1}}},
      {"mcp_servers", Json::array({{{"url", "x"}}})},
      {"output_config", {{"format", {{"type", "xml"}}}}},
      {"messages", nullptr},
      {"messages", Json::array()},
      {"messages", Json::array({{{"role", "tool"}, {"content", "x"}}})},
      {"messages", Json::array({{{"role", "user"}, {"content", 1}}})},
      {"messages", Json::array({{{"role", "assistant"}, {"content", "Sure, "}}})},
  };
  for (const auto& entry : cases) {
    const char* name = entry.first;
    const Json& value = entry.second;
    CAPTURE(name);
    CAPTURE(value.dump());
    CHECK(refused(name, value).starts_with(name));
  }
  const auto block = [](const char* text) {
    return refused(
        "messages",
        Json::array({{{"role", "user"}, {"content", Json::array({Json::parse(text)})}}}));
  };
  CHECK(block(R"({"type": "image", "source": {}})") ==
        "messages[0].content[0].source is an image: this server takes text only");
  CHECK(block(R"({"type": "document", "source": {"type": "base64"}})") ==
        "messages[0].content[0].type is 'document': this server takes text only");
  CHECK(block(R"({"type": "tool_result"})") ==
        "messages[0].content[0].tool_use_id is missing: give a text");
  CHECK(block(R"({"type": "document", "source": {"type": "text", "data": "x"}})") == "");
}

TEST_CASE("tokens can be counted without saying how many to write") {
  Json body = kBase;
  body.erase("max_tokens");
  CHECK(refusal_of(messages(), body.dump()).starts_with("max_tokens is missing"));
  CHECK(parse_count_tokens(body.dump(), {}, {}).messages == kBase["messages"]);
  body["messages"].push_back({{"role", "assistant"}, {"content", "Sure, "}});
  CHECK(parse_count_tokens(body.dump(), {}, {}).messages == body["messages"]);
  CHECK(count_tokens_body(12345) == "{\"input_tokens\":12345}");
}

TEST_CASE("a whole Messages reply has a block for each part and counts cached tokens apart") {
  const Json reply = whole_reply(messages(), {}, tool_story());
  CHECK(reply == Json::parse(R"({"id": "msg_0af1", "type": "message", "role": "assistant",
    "model": "frt", "content": [
      {"type": "thinking", "thinking": "hm", "signature": "ZnJ0"}, {"type": "text", "text": "ab"},
      {"type": "tool_use", "id": "toolu_0af1_0", "name": "read", "input": {"p": 1}}],
    "stop_reason": "tool_use", "stop_sequence": null,
    "usage": {"input_tokens": 8, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 12,
              "output_tokens": 7},
    "frt": {"prefix_action": "restore"}})"));
}

TEST_CASE("the blocks of a Messages stream are those of the whole reply") {
  const auto records = streamed_reply(messages(), {}, tool_story());
  Json message;
  std::string order;
  for (const Record& record : records) {
    const Json& data = record.data;
    CHECK(data["type"] == record.event);
    order += record.event + " ";
    if (record.event == "message_start") message = data["message"];
    if (record.event == "content_block_start") {
      CHECK(data["index"] == message["content"].size());
      message["content"].push_back(data["content_block"]);
    }
    if (record.event == "content_block_delta") {
      CHECK(data["index"] == message["content"].size() - 1);
      Json& block = message["content"].back();
      const Json& delta = data["delta"];
      if (delta["type"] == "text_delta")
        block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
      if (delta["type"] == "thinking_delta")
        block["thinking"] =
            block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
      if (delta["type"] == "signature_delta") block["signature"] = delta["signature"];
      if (delta["type"] == "input_json_delta")
        block["json"] = block.value("json", "") + delta["partial_json"].get<std::string>();
    }
    if (record.event == "content_block_stop" && message["content"].back().contains("json")) {
      Json& block = message["content"].back();
      block["input"] = Json::parse(block["json"].get<std::string>());
      block.erase("json");
    }
    if (record.event == "message_delta") {
      message.update(data["delta"]);
      message["usage"].update(data["usage"]);
      message["frt"] = data["frt"];
    }
  }
  CHECK(message == whole_reply(messages(), {}, tool_story()));
  CHECK(order.starts_with("message_start content_block_start content_block_delta"));
  CHECK(order.ends_with("content_block_stop message_delta message_stop "));
}

TEST_CASE("a Messages reply says why it ended") {
  const auto reason = [](const ApiFinish& finish) {
    const Json reply = whole_reply(messages(), {}, {{text("a")}, finish});
    return reply["stop_reason"].get<std::string>() + "/" + reply["stop_sequence"].dump();
  };
  CHECK(reason({}) == "end_turn/null");
  CHECK(reason({.finish = Finish::kLength}) == "max_tokens/null");
  CHECK(reason({.finish = Finish::kContext}) == "model_context_window_exceeded/null");
  CHECK(reason({.finish = Finish::kStop, .stop_string = "END"}) == "stop_sequence/\"END\"");
}

TEST_CASE("a Messages stream keeps its client alive with pings and ends with an error's event") {
  ApiCall call;
  call.stream = true;
  const auto writer = messages().reply(call, {});
  CHECK(writer->heartbeat() == "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  const ApiError error(ApiErrorKind::kOverloaded, "full");
  const auto records = records_of(writer->error(error));
  REQUIRE(records.size() == 1);
  CHECK(records[0].event == "error");
  CHECK(records[0].data == Json::parse(R"({"type": "error", "error": {"type": "overloaded_error",
                                           "message": "full"}})"));
  CHECK(Json::parse(messages().error_body(error)) == records[0].data);
}

TEST_CASE("a prompt that is too long says so in the words clients look for") {
  const ApiError error = context_length_error(5000, 4096);
  CHECK(error.status() == 400);
  CHECK(std::string(error.what()).starts_with("prompt is too long: 5000 tokens > 4096 maximum"));
  CHECK(Json::parse(openai_error(error))["error"]["code"] == "context_length_exceeded");
}

TEST_CASE("an image in a tool's result and a provider's own blocks do not end an agent's talk") {
  Json body = kBase;
  body["messages"] = Json::parse(R"([{"role": "user", "content": "look"},
      {"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "a", "name": "read", "input": {"p": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [
        {"type": "image", "source": {"type": "base64", "data": "AA=="}},
        {"type": "tool_reference", "tool_name": "x"}]}]}])");
  const Json messages_read = parse(messages(), body).messages;
  REQUIRE(messages_read.size() == 3);
  CHECK(messages_read[1]["content"] == "I look.");
  CHECK(messages_read[1]["tool_calls"].size() == 1);
  CHECK(messages_read[2]["content"] ==
        "[an image was left out: this model reads text]\n"
        "[a part of type 'tool_reference' was left out: this model reads text]");
}
