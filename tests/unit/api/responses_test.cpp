// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

using namespace frt::test;
using namespace frt::host;

namespace {

const Json kBase = {{"model", "m"}, {"input", "hi"}};

std::string refused(const char* member, const Json& value) {
  return refusal_with(responses(), kBase, member, value);
}

ApiCall call_with(const char* member, const Json& value) {
  Json body = kBase;
  body[member] = value;
  return parse(responses(), body);
}

ApiCall tool_call() {
  ApiCall call;
  call.tool_names = {{.name = "ns__read", .client_name = "read", .space = "ns"},
                     {.name = "patch", .client_name = "patch", .space = {}, .custom = true}};
  return call;
}

Story long_story() {
  return {{reasoning("h"), reasoning("m"), text("a"), text("b"), tool_begin(0, "ns__read"),
           tool_arguments(0, "{\"p\""), tool_arguments(0, ":1}"), tool_end(0),
           tool_begin(1, "patch"), tool_arguments(1, "{\"input\":\"x\\ny\"}"), tool_end(1)}};
}

}  // namespace

TEST_CASE("the smallest Responses request is one message of the user") {
  const ApiCall call = parse(responses(), kBase);
  CHECK(call.messages == Json::parse(R"([{"role": "user", "content": "hi"}])"));
  CHECK(call.chat_options == Json::object());
  CHECK(call_with("instructions", "Be brief.").messages[0]["content"] == "Be brief.");
}

TEST_CASE("fields of a Responses request reach the call") {
  CHECK(call_with("max_output_tokens", 5).max_tokens == 5);
  CHECK(call_with("temperature", 0.5).sampling.temperature == 0.5f);
  CHECK(call_with("reasoning", {{"effort", "none"}}).chat_options["enable_thinking"] == false);
  CHECK(call_with("prompt_cache_key", "k").session == "k");
  CHECK(call_with("top_logprobs", 2).log_probabilities);
  CHECK(call_with("include", {"message.output_text.logprobs"}).log_probabilities);
  CHECK(call_with("text", {{"format", {{"type", "json_object"}}}}).response_format ==
        Json{{"type", "json_object"}});
  CHECK(call_with("text", Json::parse(R"({"format": {"type": "json_schema", "name": "n",
                                          "schema": {"type": "object"}}})"))
            .response_format["schema"] == Json{{"type", "object"}});
  CHECK(call_with("store", true).messages.size() == 1);
}

TEST_CASE("a field of a Responses request that cannot be served is refused by its name") {
  const std::pair<const char*, Json> cases[] = {
      {"input", nullptr},
      {"input", 1},
      {"input", Json::array()},
      {"input", {1}},
      {"instructions", 1},
      {"max_output_tokens", 0},
      {"top_logprobs", 21},
      {"reasoning", "high"},
      {"reasoning", {{"effort", "huge"}}},
      {"text", {{"format", {{"type", "xml"}}}}},
      {"previous_response_id", "resp_1"},
      {"conversation", "conv_1"},
      {"background", true},
      {"prompt", {{"id", "pmpt_1"}}},
      {"tools", Json::array({{{"name", "x"}}})},
      {"tools", Json::array({{{"type", "function"}}})},
      {"tools", Json::array({{{"type", "namespace"}}})},
      {"tool_choice", "any"},
      {"tool_choice", {{"type", "web_search"}}},
      {"tool_choice", {{"type", "function"}, {"name", "none"}}},
      {"stream", "true"},
  };
  for (const auto& entry : cases) {
    const char* name = entry.first;
    const Json& value = entry.second;
    CAPTURE(name);
    CAPTURE(value.dump());
    CHECK(refused(name, value).starts_with(name));
  }
  CHECK(refused("previous_response_id", "resp_1") ==
        "previous_response_id is not supported: this server stores nothing; send the whole "
        "conversation as input");
  const auto item = [](const char* text) {
    return refused("input", Json::array({Json::parse(text)}));
  };
  CHECK(item(R"({"type": "item_reference", "id": "msg_1"})").find("send the item itself") !=
        std::string::npos);
  CHECK(item(R"({"type": "web_search_call"})") ==
        "input has no message: give at least one of the user");
  CHECK(item(R"({"type": "mystery"})").starts_with("input[0].type is 'mystery'"));
  CHECK(item(R"({"role": "user", "content": [{"type": "input_image"}]})") ==
        "input[0].content[0].image_url is an image: this server takes text only");
  CHECK(item(R"({"type": "function_call", "name": "f", "arguments": "{}"})")
            .starts_with("input[0].call_id"));
  CHECK(item(R"({"type": "function_call_output", "output": "x"})").starts_with("input[0].call_id"));
}

TEST_CASE("a whole Responses reply has an item for each part") {
  const Json reply = whole_reply(responses(), tool_call(), long_story());
  CHECK(reply["id"] == "resp_0af1");
  CHECK(reply["status"] == "completed");
  CHECK(reply["output"] == Json::parse(R"([
    {"id": "rs_0af1_0", "type": "reasoning", "status": "completed",
     "summary": [{"type": "summary_text", "text": "hm"}]},
    {"id": "msg_0af1_1", "type": "message", "status": "completed", "role": "assistant",
     "content": [{"type": "output_text", "text": "ab", "annotations": [], "logprobs": []}]},
    {"id": "fc_0af1_2", "type": "function_call", "status": "completed", "call_id": "call_0af1_2",
     "name": "read", "arguments": "{\"p\":1}", "namespace": "ns"},
    {"id": "ctc_0af1_3", "type": "custom_tool_call", "status": "completed",
     "call_id": "call_0af1_3", "name": "patch", "input": "x\ny"}])"));
  CHECK(reply["usage"] == Json::parse(R"({"input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 12}, "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 27})"));
  CHECK(reply["frt"]["prefix_action"] == "restore");
}

TEST_CASE("the items of a Responses stream, ids included, are those of the whole reply") {
  const auto records = streamed_reply(responses(), tool_call(), long_story());
  const Json whole = whole_reply(responses(), tool_call(), long_story());
  REQUIRE(records.size() > 4);
  CHECK(records[0].event == "response.created");
  CHECK(records[1].event == "response.in_progress");
  CHECK(records.back().event == "response.completed");
  CHECK(records.back().data["response"] == whole);
  std::map<std::string, std::string> pieces, ends;
  Json items = Json::array();
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Json& data = records[i].data;
    CHECK(data["type"] == records[i].event);
    CHECK(data["sequence_number"] == i);
    const std::string& event = records[i].event;
    if (event == "response.output_item.added") {
      CHECK(data["output_index"] == items.size());
      CHECK(data["item"]["id"] == whole["output"][items.size()]["id"]);
      CHECK(data["item"]["status"] == "in_progress");
    }
    if (event.ends_with(".delta")) pieces[data["item_id"]] += data["delta"];
    for (const char* field : {"text", "arguments", "input"}) {
      if (event.ends_with(".done") && data.contains(field)) ends[data["item_id"]] = data[field];
    }
    if (event == "response.output_item.done") items.push_back(data["item"]);
  }
  CHECK(items == whole["output"]);
  CHECK(pieces == ends);
  CHECK(pieces.size() == 4);
}

TEST_CASE("an answer that was cut is incomplete, and so is its last item") {
  const Story story({text("a")}, {.finish = Finish::kLength});
  const Json reply = whole_reply(responses(), {}, story);
  CHECK(reply["status"] == "incomplete");
  CHECK(reply["incomplete_details"]["reason"] == "max_output_tokens");
  CHECK(reply["output"][0]["status"] == "incomplete");
  CHECK(streamed_reply(responses(), {}, story).back().event == "response.incomplete");
}

TEST_CASE("a Responses stream is kept alive by events, and fails with one that is tried again") {
  ApiCall call;
  call.stream = true;
  const auto writer = responses().reply(call, {.id = "0af1", .created = 0, .model = "frt"});
  writer->start({});
  const auto beat = records_of(writer->heartbeat());
  REQUIRE(beat.size() == 1);
  CHECK(beat[0].event == "response.in_progress");
  CHECK(beat[0].data["sequence_number"] == 2);
  const auto failed = records_of(writer->error({ApiErrorKind::kOverloaded, "full"}));
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].event == "response.failed");
  CHECK(failed[0].data["response"]["error"]["code"] == "server_error");
}

TEST_CASE("a Responses stream that fails closes the open item, and shows what there was") {
  ApiCall call;
  call.stream = true;
  const auto writer = responses().reply(call, {.id = "0af1", .created = 0, .model = "frt"});
  writer->start({});
  writer->event(0, text("half"));
  const auto failed = records_of(writer->error({ApiErrorKind::kInternal, "broken"}));
  REQUIRE(failed.size() == 4);
  CHECK(failed[2].event == "response.output_item.done");
  CHECK(failed[2].data["item"]["status"] == "incomplete");
  CHECK(failed[3].event == "response.failed");
  CHECK(failed[3].data["response"]["output"][0]["content"][0]["text"] == "half");
}

TEST_CASE("items of a provider's own tools are left out of a Responses history") {
  const ApiCall call = parse(responses(), {{"model", "m"}, {"input", Json::parse(R"([
      {"role": "user", "content": "look"}, {"type": "web_search_call", "id": "w"},
      {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{\"x\""},
      {"type": "function_call_output", "call_id": "a", "output": [
        {"type": "input_image", "image_url": "data:"}]}])")}});
  REQUIRE(call.messages.size() == 3);
  CHECK(call.messages[1]["tool_calls"][0]["function"]["arguments"] == "{\"input\":\"{\\\"x\\\"\"}");
  CHECK(call.messages[2]["content"] == "[an image was left out: this model reads text]");
}
