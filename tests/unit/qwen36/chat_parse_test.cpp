// SPDX-License-Identifier: Apache-2.0
// Generated text as a message: reasoning, content, calls. The rules are in chat_parse.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "chat.hpp"
#include "chat_format.hpp"

using frt::models::Json;
using namespace frt::qwen36;

namespace {

const Json kTools = Json::parse(R"([
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties":
        {"a": {"type": "integer"}, "note": {"type": "string"}, "flag": {"type": "boolean"},
         "list": {"type": "array"}, "b": {"type": "number"}}}}},
    {"type": "function", "function": {"name": "now"}}])");

Json parse(std::string_view text, bool final = false, const Json& tools = kTools) {
  return Chat().parse(text, tools, {}, final);
}

// After the reasoning.
Json parse_content(const std::string& text, bool final = true) {
  return parse("</think>" + text, final);
}

std::string name_of(const Json& message, std::size_t call) {
  return message.at("tool_calls").at(call).at("function").at("name");
}
std::string raw_arguments(const Json& message, std::size_t call) {
  return message.at("tool_calls").at(call).at("function").at("arguments");
}
Json arguments(const Json& message, std::size_t call) {
  return Json::parse(raw_arguments(message, call));
}

std::string call(const std::string& name, const std::string& parameters) {
  return "<tool_call>\n<function=" + name + ">\n" + parameters + "</function>\n</tool_call>";
}
std::string parameter(const std::string& key, const std::string& value) {
  return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
}

}  // namespace

TEST_CASE("generated text splits into reasoning, content and typed tool calls") {
  const Json message =
      parse("let me add\n</think>\n\nSure.\n\n" +
                call("add", parameter("a", "12") + parameter("note", "7") +
                                parameter("flag", "true") + parameter("list", "[1, 2]")),
            true);
  CHECK(message["reasoning_content"] == "let me add");
  CHECK(message["content"] == "Sure.");
  CHECK(message["complete"] == true);
  REQUIRE(message["tool_calls"].size() == 1);
  CHECK(arguments(message, 0) == Json::parse(R"({"a":12,"note":"7","flag":true,"list":[1,2]})"));
}

TEST_CASE("text that may go on reports only what stands") {
  CHECK(parse("still thinking")["complete"] == false);
  CHECK(parse("still thinking")["reasoning_content"] == "still thinking");
  const Json cut = parse("x</think>ok\n<tool_call>\n<function=add>\n<para");
  CHECK(cut["complete"] == false);
  CHECK(cut["content"] == "ok");
  CHECK_FALSE(cut.contains("tool_calls"));
}

TEST_CASE("what a final text leaves open is content, not lost") {
  const std::string open = "<tool_call>\n<function=add>\n<parameter=note>\nhalf";
  const Json message = parse_content("ok\n" + open);
  CHECK(message["content"] == "ok\n" + open);
  CHECK(message["complete"] == false);
  CHECK_FALSE(message.contains("tool_calls"));
}

TEST_CASE("with thinking off the text is content, and a malformed call stays visible") {
  const Json options = {{"enable_thinking", false}};
  CHECK(Chat().parse("Hello.", {}, options, true) ==
        Json{{"content", "Hello."}, {"complete", true}});
  const Json message = Chat().parse("a <tool_call>nonsense</tool_call>", {}, options, true);
  CHECK(message["content"] == "a <tool_call>nonsense</tool_call>");
  CHECK_FALSE(message.contains("tool_calls"));
}

TEST_CASE("a value keeps inner newlines and loses one at each end") {
  const Json message = parse_content(call("add", parameter("note", "\nline 1\nline 2\n")));
  CHECK(arguments(message, 0)["note"] == "\nline 1\nline 2\n");
}

TEST_CASE("every call of a block and every block counts, and so does the text around them") {
  const std::string inner = "<function=add>\n" + parameter("a", "1") + "</function>\n";
  const Json message = parse_content(
      "before\n<tool_call>\n" + inner + "<function=now>\n</function>\n</tool_call>\nbetween\n" +
      call("add", parameter("a", "3")) + "\n" + call("now", "") + " after");
  REQUIRE(message["tool_calls"].size() == 4);
  CHECK(name_of(message, 0) == "add");
  CHECK(name_of(message, 1) == "now");
  CHECK(raw_arguments(message, 1) == "{}");
  CHECK(arguments(message, 2) == Json{{"a", 3}});
  CHECK(name_of(message, 3) == "now");
  CHECK(message["content"] == "before\nbetween\nafter");
  CHECK(message["complete"] == true);
}

TEST_CASE("a value may hold the tags of the format") {
  for (const char* value :
       {"a</parameter>b", "x </tool_call> y", "</function> z", "<tool_call><function=add>",
        "use <parameter=note> so", "print(\"</parameter>\")\n</parameter> is a tag\nend",
        "</parameter></function> and more", "</think>", "<|im_end|>"}) {
    INFO(value);
    const Json message =
        parse_content(call("add", parameter("note", value) + parameter("a", "2")) + "\nrest");
    REQUIRE(message.contains("tool_calls"));
    CHECK(arguments(message, 0) == Json{{"note", value}, {"a", 2}});
    CHECK(message["content"] == "rest");
  }
}

TEST_CASE("a missing </parameter>, </tool_call> or newline fails no call") {
  const std::string forgotten = "<parameter=a>\n1\n<parameter=note>\nx\n";
  Json message = parse_content(call("add", forgotten));
  CHECK(arguments(message, 0) == Json{{"a", 1}, {"note", "x"}});
  message =
      parse_content("<tool_call><function=add><parameter=a>1</parameter></function></tool_call>");
  CHECK(arguments(message, 0) == Json{{"a", 1}});
  message = parse_content("<tool_call>\n<function=now>\n</function>\n");
  CHECK(name_of(message, 0) == "now");
  CHECK(message["content"] == "");
  // A line that looks like a tag but is none of the function's parameters belongs to the value.
  message = parse_content(call("add", "<parameter=note>\nx\n<parameter=other>\ny\n</parameter>\n"));
  CHECK(arguments(message, 0) == Json{{"note", "x\n<parameter=other>\ny"}});
}

TEST_CASE("numbers keep every digit, and JSON is not rewritten") {
  const std::string big = "123456789012345678901234567890";
  Json message = parse_content(call("add", parameter("a", big)));
  CHECK(raw_arguments(message, 0) == "{\"a\": " + big + "}");
  message = parse_content(call("add", parameter("b", "0.10000000000000000001e5") +
                                          parameter("list", "[1.0,  -" + big + "]")));
  CHECK(raw_arguments(message, 0) ==
        "{\"b\": 0.10000000000000000001e5, \"list\": [1.0,  -" + big + "]}");
  // The next turn renders the digits again.
  const Json turn = Json::parse(R"([{"role": "user", "content": "?"}])");
  Json next = turn;
  next.push_back({{"role", "assistant"}, {"tool_calls", message["tool_calls"]}});
  CHECK(render_chat(next, {}, {}, Vision::kRefuse).text().find("[1.0, -" + big + "]") !=
        std::string::npos);
}

TEST_CASE("a value that is no JSON of its type stays text") {
  for (const char* value : {"twelve", "1 2", "{\"a\": 1, \"a\": 2}", "NaN", "True", "1e999"}) {
    INFO(value);
    CHECK(arguments(parse_content(call("add", parameter("a", value))), 0) == Json{{"a", value}});
  }
  const std::string deep(100'000, '[');
  const Json message = parse_content(call("add", parameter("list", deep)));
  CHECK(arguments(message, 0) == Json{{"list", deep}});
}

TEST_CASE("a value has the type that its schema refers to") {
  const Json tools =
      Json::parse(R"([{"type": "function", "function": {"name": "add", "parameters": {
      "type": "object", "properties": {"a": {"$ref": "#/$defs/count"}, "b": {"$ref": "#/$defs/name"},
      "c": {"$ref": "#/$defs/circle"}, "d": {"$ref": "#/$defs/none"}},
      "$defs": {"count": {"$ref": "#/$defs/number"}, "number": {"type": "integer"},
      "name": {"type": "string"}, "circle": {"anyOf": [{"$ref": "#/$defs/circle"},
      {"$ref": "#/$defs/circle"}]}}}}}])");
  const Json message =
      parse("</think>" + call("add", parameter("a", "12") + parameter("b", "7") +
                                         parameter("c", "3") + parameter("d", "4")),
            true, tools);
  CHECK(arguments(message, 0) == Json::parse(R"({"a": 12, "b": "7", "c": "3", "d": "4"})"));
}

TEST_CASE("a nested value that is handed on can be rendered in the next turn") {
  for (const std::size_t depth : {100, 120, 121, 122, 126, 127, 128, 129, 1000}) {
    CAPTURE(depth);
    const Json message = parse_content(
        call("add", parameter("list", std::string(depth, '[') + std::string(depth, ']'))));
    Json conversation = Json::parse(R"([{"role": "user", "content": "?"}])");
    conversation.push_back({{"role", "assistant"}, {"tool_calls", message["tool_calls"]}});
    std::string text;
    CHECK_NOTHROW(text = render_chat(frt::io::parse_json(conversation.dump(), "messages"), {}, {},
                                     Vision::kRefuse)
                             .text());
    CHECK(text.find(std::string(depth, '[')) != std::string::npos);
  }
}

TEST_CASE("a parameter that the call has already is part of the value before it") {
  const Json message = parse_content(
      call("add", parameter("note", "1") + parameter("note", "2") + parameter("a", "3")));
  CHECK(arguments(message, 0) == Json{{"note", "1\n</parameter>\n<parameter=note>\n2"}, {"a", 3}});
}

TEST_CASE("an undeclared name and prose begin no call") {
  for (const std::string& text :
       {call("remove", parameter("a", "1")), std::string("call <tool_call> <function=add> so"),
        std::string("a <tool_call> and </tool_call>"), std::string("<tool_call>\n{\"name\": 1}")}) {
    INFO(text);
    const Json message = parse_content(text);
    CHECK(message["content"] == text);
    CHECK_FALSE(message.contains("tool_calls"));
  }
  // Without tools any name is taken, as nobody says which there are.
  CHECK(parse("</think>" + call("remove", ""), true, {})["tool_calls"].size() == 1);
  // Prose does not hide the call that follows it.
  const Json message =
      parse_content("Say <tool_call> <function=add>. Now:\n" + call("add", parameter("a", "5")));
  CHECK(arguments(message, 0) == Json{{"a", 5}});
  CHECK(message["content"] == "Say <tool_call> <function=add>. Now:");
}

TEST_CASE("a call in reasoning counts if the reasoning is never closed") {
  const std::string text = "I must add\n" + call("add", parameter("a", "5"));
  const Json open = parse(text, true);
  CHECK(arguments(open, 0) == Json{{"a", 5}});
  CHECK(open["reasoning_content"] == "I must add");
  CHECK(open["content"] == "");
  CHECK(open["complete"] == true);

  const Json closed = parse(text + "\nno\n</think>\n\nDone.", true);
  CHECK_FALSE(closed.contains("tool_calls"));
  CHECK(closed["reasoning_content"] == text + "\nno");
  CHECK(closed["content"] == "Done.");

  const Json before = parse(text);  // both may still come
  CHECK_FALSE(before.contains("tool_calls"));
  CHECK(before["reasoning_content"] == "I must add");
  CHECK(before["complete"] == false);
  CHECK_FALSE(parse(text, true, {}).contains("tool_calls"));
}

TEST_CASE("zero bytes are text like others") {
  const std::string text("</think>a\0b", 11);
  CHECK(parse(text, true)["content"] == std::string("a\0b", 3));
}

namespace {

// Texts of tags, pieces of tags, and words that occur once each.
std::string random_text(std::mt19937& random, std::vector<std::string>& words) {
  static const std::vector<std::string> kPieces = {
      "<tool_call>",
      "</tool_call>",
      "<function=add>",
      "<function=now>",
      "<function=no>",
      "</function>",
      "<parameter=a>",
      "<parameter=b>",
      "<parameter=note>",
      "</parameter>",
      "<parameter=",
      "\n",
      "\n",
      " ",
      "</think>",
      "<tool_call>\n<function=add>\n<parameter=note>\n",
      "\n</parameter>\n</function>\n</tool_call>",
      "<",
      "<think>"};
  std::string text;
  const int count = 1 + static_cast<int>(random() % 24);
  for (int i = 0; i < count; ++i) {
    if (random() % 3 == 0) {
      words.push_back("w" + std::to_string(words.size()) + "w");
      text += words.back();
    } else {
      text += kPieces[random() % kPieces.size()];
    }
  }
  return text;
}

std::string text_of(const Json& message, const char* key) {
  return message.contains(key) ? message[key].get<std::string>() : std::string();
}

// Names, keys and values of a message's calls.
std::string text_of_calls(const Json& message) {
  std::string text;
  if (!message.contains("tool_calls")) return text;
  for (std::size_t i = 0; i < message["tool_calls"].size(); ++i) {
    text += name_of(message, i) + arguments(message, i).dump();
  }
  return text;
}

}  // namespace

TEST_CASE("no word of a random text is lost or doubled") {
  std::mt19937 random(18);
  int calls = 0;
  for (int run = 0; run < 20'000; ++run) {
    std::vector<std::string> words;
    const std::string text = random_text(random, words);
    const Json message = parse(text, true);
    calls += message.contains("tool_calls");
    const std::string all = text_of(message, "content") + " " +
                            text_of(message, "reasoning_content") + " " + text_of_calls(message);
    for (const std::string& word : words) {
      const std::size_t at = all.find(word);
      const bool once = at != all.npos && all.find(word, at + 1) == all.npos;
      if (!once) {
        FAIL_CHECK(word << " of " << Json(text).dump() << " in " << message.dump());
      }
    }
  }
  CHECK(calls > 500);
}

TEST_CASE("what is reported of a prefix only grows") {
  std::mt19937 random(19);
  for (int run = 0; run < 1'000; ++run) {
    std::vector<std::string> words;
    const std::string text = random_text(random, words);
    const Json whole = parse(text, true);
    Json last = parse("");
    for (std::size_t length = 1; length <= text.size(); ++length) {
      const Json message = parse(std::string_view(text).substr(0, length));
      for (const Json* later : {&message, &whole}) {
        INFO(Json(text).dump(), " cut after ", length, ": ", last.dump(), " then ", later->dump());
        CHECK(text_of(*later, "content").starts_with(text_of(last, "content")));
        CHECK(text_of(*later, "reasoning_content").starts_with(text_of(last, "reasoning_content")));
        const Json& calls = last.value("tool_calls", Json::array());
        for (std::size_t i = 0; i < calls.size(); ++i) {
          CHECK(later->at("tool_calls").at(i) == calls[i]);
        }
      }
      last = message;
    }
  }
}

TEST_CASE("a long text of tags is read in linear time") {
  for (const char* piece :
       {"<tool_call>", "<tool_call><function=add><parameter=note>", "</parameter>", "<",
        "<tool_call>\n<function=add>\n", "</parameter>\n</function>\n", "\n<parameter=note>\n",
        "<tool_call>\n<function=now>\n</function>\n", " "}) {
    std::string text = "</think>";
    while (text.size() < 1'000'000) text += piece;
    INFO(piece);
    for (const bool final : {false, true}) {
      const Json message = parse(text, final);  // a quadratic reader takes minutes
      CHECK(message.contains("content"));
    }
  }
}

TEST_CASE("with an empty list of tools no call is one, without a list any is") {
  const std::string text = "a\n<tool_call>\n<function=add>\n</function>\n</tool_call>";
  const Json none = Chat().parse("</think>" + text, Json::array(), {}, true);
  CHECK(none["content"] == text);
  CHECK(!none.contains("tool_calls"));
  CHECK(Chat().parse("</think>" + text, nullptr, {}, true)["tool_calls"].size() == 1);
}
