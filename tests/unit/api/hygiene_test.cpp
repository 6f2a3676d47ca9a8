// SPDX-License-Identifier: Apache-2.0
#include "http/api/request/hygiene.hpp"

#include <doctest/doctest.h>

using frt::host::api::MessageBuilder;
using frt::host::api::stable_system_text;
using Json = nlohmann::ordered_json;

TEST_CASE("a client's version line is removed from a system message") {
  CHECK(stable_system_text("x-anthropic-billing-header: cc_version=2.1.329.d5f; cch=0a1b2;") == "");
  CHECK(stable_system_text("\nx-anthropic-billing-header: cch=1;\nYou help.\n") == "You help.\n");
  CHECK(stable_system_text("You help.\nx-anthropic-billing-header: quoted") ==
        "You help.\nx-anthropic-billing-header: quoted");
}

TEST_CASE("counts of tokens that are left do not change a system message") {
  const std::string text = "You help.";
  const auto marker = [](int left) {
    return "\n<total_tokens>" + std::to_string(left) + " tokens left</total_tokens>";
  };
  CHECK(stable_system_text(text) == text);
  CHECK(stable_system_text(text + marker(200000)) == text);
  CHECK(stable_system_text(text + marker(200000) + marker(190000) + "\n\n" + marker(7)) == text);
  CHECK(stable_system_text(text + marker(5) + "\nMore.") == text + "\nMore.");
}

TEST_CASE("what only looks like a count of tokens stays") {
  const std::string cases[] = {"<total_tokens>", "a <total_tokens> b",
                               "<total_tokens>" + std::string(200, 'x') + "</total_tokens>",
                               "</total_tokens><total_tokens>"};
  for (const std::string& text : cases) {
    CHECK(stable_system_text(text) == text);
  }
}

TEST_CASE("system messages before all others become one") {
  MessageBuilder builder;
  builder.system("One.");
  builder.system("x-anthropic-billing-header: cch=1;");
  builder.system("Two.");
  builder.user("hi");
  CHECK(builder.take() == Json::parse(R"([{"role": "system", "content": "One.\n\nTwo."},
                                          {"role": "user", "content": "hi"}])"));
}

TEST_CASE("a later system message is a note of the user, in its place") {
  MessageBuilder builder;
  builder.system("Rules.");
  builder.user("hi");
  builder.system("The date changed.");
  builder.answer("hello");
  builder.system("<system-reminder>\nBe brief.\n</system-reminder>");
  const Json messages = builder.take();
  REQUIRE(messages.size() == 5);
  CHECK(messages[2]["role"] == "user");
  CHECK(messages[2]["content"] == "<system-reminder>\nThe date changed.\n</system-reminder>");
  CHECK(messages[4]["content"] == "<system-reminder>\nBe brief.\n</system-reminder>");
}

TEST_CASE(
    "a system message behind a tool's result becomes a part of it, so the tool loop goes on") {
  MessageBuilder builder;
  builder.user("go");
  builder.call("a", "f", "{}");
  builder.result("a", "done");
  builder.system("Mind the time.");
  builder.system("<total_tokens>5 tokens left</total_tokens>");
  const Json messages = builder.take();
  REQUIRE(messages.size() == 3);
  CHECK(messages[2]["content"] == "done\n\n<system-reminder>\nMind the time.\n</system-reminder>");
}

TEST_CASE("parts of an assistant's turn are one message as long as their order can be kept") {
  MessageBuilder builder;
  builder.user("go");
  builder.reasoning("hm");
  builder.answer("first");
  builder.call("a", "f", "{}");
  builder.call("b", "g", "{}");
  builder.answer("behind");
  builder.reasoning("again");
  const Json messages = builder.take();
  REQUIRE(messages.size() == 4);
  CHECK(messages[1]["reasoning_content"] == "hm");
  CHECK(messages[1]["content"] == "first");
  CHECK(messages[1]["tool_calls"].size() == 2);
  CHECK(messages[2]["content"] == "behind");
  CHECK(messages[3]["reasoning_content"] == "again");
}

TEST_CASE("results come in the order of their calls") {
  MessageBuilder builder;
  builder.user("go");
  builder.call("a", "f", "{}");
  builder.call("b", "g", "{}");
  builder.call("c", "h", "{}");
  builder.result("c", "3");
  builder.result("unknown", "4");
  builder.result("a", "1");
  builder.result("b", "2");
  builder.user("and?");
  const Json messages = builder.take();
  std::string order;
  for (const Json& message : messages) {
    if (message["role"] == "tool") order += message["content"].get<std::string>();
  }
  CHECK(order == "1234");
  CHECK(messages.back()["content"] == "and?");
}
