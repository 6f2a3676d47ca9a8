// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <unistd.h>

#include <frt/error.hpp>

#include <filesystem>
#include <fstream>

#include "chat_format.hpp"

using frt::Error;
using frt::models::Json;
using namespace frt::qwen36;

namespace {

const std::filesystem::path kFixtures = FRT_FIXTURES_DIR;

std::string error_of(const Json& messages, const ChatOptions& options = {},
                     Vision vision = Vision::kPlaceholders) {
  try {
    render_chat(messages, {}, options, vision);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("every golden rendering is reproduced byte for byte") {
  const Json cases =
      frt::io::read_json_file(kFixtures / "qwen36" / "tokenizer" / "renderings.json");
  CHECK(cases.size() >= 24);
  for (const Json& entry : cases) {
    INFO(entry["name"].get<std::string>());
    const ChatOptions options = read_chat_options(entry.value("options", Json()));
    const Json tools = entry.value("tools", Json());
    if (entry.contains("error")) {
      CHECK_THROWS_AS(render_chat(entry["messages"], tools, options, Vision::kPlaceholders), Error);
    } else {
      CHECK(render_chat(entry["messages"], tools, options, Vision::kPlaceholders).text() ==
            entry["prompt"].get<std::string>());
    }
  }
}

TEST_CASE("an image is refused where only text can be taken, naming the message") {
  const Json messages =
      Json::parse(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])");
  const std::string text = error_of(messages, {}, Vision::kRefuse);
  CHECK(text.find("message 0") != std::string::npos);
  CHECK(text.find("text only") != std::string::npos);
}

TEST_CASE("broken conversations are refused with the message's index") {
  CHECK(error_of(Json::parse(R"([{"content":"x"}])")).find("no role") != std::string::npos);
  CHECK(
      error_of(Json::parse(R"([{"role":"user","content":"a"},{"role":"developer","content":"b"}])"))
          .find("message 1: unknown role 'developer'") != std::string::npos);
  CHECK(error_of(Json::parse(R"([{"role":"user","content":7}])")).find("message 0") !=
        std::string::npos);
  CHECK(error_of(Json::parse(R"(["x"])")).find("message 0") != std::string::npos);
  CHECK(error_of(Json::parse(R"([{"role":"user","content":"a"},
      {"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[1]}}]}])"))
            .find("arguments") != std::string::npos);
}

TEST_CASE("arguments may be an object or its JSON text, as clients send them") {
  const Json as_object = Json::parse(R"([{"role":"user","content":"a"},{"role":"assistant",
      "tool_calls":[{"function":{"name":"f","arguments":{"x":1.0,"s":"t"}}}]}])");
  Json as_text = as_object;
  as_text[1]["tool_calls"][0]["function"]["arguments"] = R"({"x": 1.0, "s": "t"})";
  const std::string rendered = render_chat(as_text, {}, {}, Vision::kRefuse).text();
  CHECK(render_chat(as_object, {}, {}, Vision::kRefuse).text() == rendered);
  CHECK(rendered.find("<parameter=x>\n1.0\n</parameter>") != std::string::npos);
}

TEST_CASE("unknown or ill-typed chat options are refused by name") {
  CHECK_THROWS_WITH_AS(read_chat_options(Json{{"enable_thinkin", true}}),
                       doctest::Contains("enable_thinkin"), Error);
  CHECK_THROWS_AS(read_chat_options(Json{{"enable_thinking", 1}}), Error);
}
