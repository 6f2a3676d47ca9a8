// SPDX-License-Identifier: Apache-2.0
// Answers in pieces. What the pieces are changes nothing, for every conversation format.
#include <doctest/doctest.h>

#include <algorithm>
#include <chat_pieces.hpp>
#include <frt/lm/template_chat.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "qwen36/src/chat.hpp"

using frt::lm::Chat;
using frt::models::Json;

namespace {

const Json kTools = Json::parse(R"([
    {"type": "function", "function": {"name": "edit", "parameters": {"type": "object", "properties":
        {"path": {"type": "string"}, "text": {"type": "string"}, "line": {"type": "integer"},
         "options": {"type": "object"}, "lines": {"type": "array"}}}}},
    {"type": "function", "function": {"name": "now"}}])");

class Outputs {
 public:
  // 200 answers as models write them: well-formed, broken, with tags in values, in many scripts,
  // with reasoning that never ends, several functions in a block, values of a kilobyte.
  static std::vector<std::string> make() {
    Outputs make;
    std::vector<std::string> outputs;
    for (int i = 0; i < 200; ++i) outputs.push_back(make.output(i % 8));
    return outputs;
  }

 private:
  std::string output(int kind) {
    const std::string thought = words(12) + (kind == 4 ? "\n" : "\n</think>\n\n");
    std::string text = thought + words(6) + space();
    if (kind == 7) return text + pieces();
    const int blocks = 1 + pick(3);
    for (int i = 0; i < blocks; ++i) text += block(kind) + space() + (pick(2) ? words(3) : "");
    if (kind == 1) {
      const int cuts = 1 + pick(3);
      for (int i = 0; i < cuts; ++i) {
        text.erase(static_cast<std::size_t>(pick(static_cast<int>(text.size()))),
                   static_cast<std::size_t>(1 + pick(30)));
      }
    }
    return text;
  }

  std::string block(int kind) {
    std::string text = "<tool_call>" + space();
    const int functions = kind == 5 ? 2 + pick(2) : 1;
    for (int i = 0; i < functions; ++i) text += function(kind) + space();
    return text + "</tool_call>";
  }

  std::string function(int kind) {
    static const std::vector<std::string> kKeys = {"path", "text", "line", "options", "lines"};
    if (pick(6) == 0) return "<function=now>\n</function>";
    std::string text = "<function=" + std::string(pick(9) ? "edit" : "unknown") + ">\n";
    for (const std::string& key : kKeys) {
      if (pick(2)) continue;
      text += "<parameter=" + key + ">\n" + value(kind, key) + "\n";
      if (pick(8)) text += "</parameter>\n";
    }
    return text + "</function>";
  }

  std::string value(int kind, const std::string& key) {
    if (key == "line" && pick(4)) return std::to_string(pick(100000));
    if (key == "options" && pick(4))
      return "{\"deep\": [1, {\"a\": null}], \"\u00e9\": \"\u4e16\"}";
    if (key == "lines" && pick(4)) return "[1, 2.50, \"x\"]";
    if (kind == 2) return words(2) + pieces() + words(2);
    if (kind == 6) return words(150);
    return words(5);
  }

  std::string pieces() {
    static const std::vector<std::string> kPieces = {
        "<tool_call>",
        "</tool_call>",
        "<function=edit>",
        "<function=now>",
        "<function=",
        "</function>",
        "<parameter=a>",
        "<parameter=text>",
        "</parameter>",
        "<parameter=",
        "</think>",
        "<think>",
        "<",
        "\n",
        "  ",
        "\n\n<tool_call>\n<function=edit>\n<parameter=path>\n",
        "\n</parameter>\n</function>\n</tool_call>"};
    std::string text;
    const int count = pick(20);
    for (int i = 0; i < count; ++i) {
      text += pick(3) ? kPieces[static_cast<std::size_t>(pick(static_cast<int>(kPieces.size())))]
                      : words(1);
    }
    return text;
  }

  std::string words(int count) {
    static const std::vector<std::string> kWords = {
        "echo",       "a < b && c > d", "\"quoted\\\"",   "na\u00efve", "\u4e16\u754c",
        "\U0001F600", "x = {1: 2}",     "\tindented\n\n", "if (i<n)",   "\u0430\u0431\u0432"};
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += kWords[static_cast<std::size_t>(pick(static_cast<int>(kWords.size())))] + " ";
    }
    return text;
  }

  std::string space() {
    static const std::vector<std::string> kSpaces = {"\n", "", "\n\n", " \t\n"};
    return kSpaces[static_cast<std::size_t>(pick(4))];
  }
  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  std::mt19937 random_{36};
};

struct Format {
  const char* name;
  std::unique_ptr<const Chat> chat;
  Json tools;
};

std::vector<Format> formats() {
  std::vector<Format> all;
  all.push_back({"Qwen3.6", std::make_unique<frt::qwen36::Chat>(), kTools});
  all.push_back({"chat templates", std::make_unique<frt::lm::TemplateChat>(), nullptr});
  return all;
}

}  // namespace

TEST_CASE("10,000 ways to cut 200 answers into pieces give the messages of the whole answers") {
  std::mt19937 random(7);
  const std::vector<std::string> outputs = Outputs::make();
  for (const Format& format : formats()) {
    std::size_t calls = 0;
    for (const std::string& output : outputs) {
      const Json whole = format.chat->parse(output, format.tools, nullptr, true);
      calls += whole.value("tool_calls", Json::array()).size();
      for (int run = 0; run < 25; ++run) {
        // Short pieces for most, so that cuts fall into tags; long ones where that takes long.
        const std::size_t most = output.size() > 1500 && run > 1 ? 400 : 1 + random() % 64;
        std::vector<std::size_t> lengths;
        for (int i = 0; i < 16; ++i) lengths.push_back(1 + random() % most);
        const auto reader = format.chat->reader(format.tools, nullptr);
        const Json message = frt::test::message_of_pieces(*reader, output, lengths);
        if (message != whole) {
          FAIL(format.name << ": " << Json(output).dump() << " in pieces of " << most
                           << " bytes: " << message.dump() << " not " << whole.dump());
        }
      }
    }
    CHECK(outputs.size() == 200);
    CHECK((calls > 150) == !format.tools.is_null());
  }
}

TEST_CASE("text streams as it comes, and a value when its end is known") {
  const frt::qwen36::Chat chat;
  const auto reader = chat.reader(kTools, {{"enable_thinking", false}});
  const auto push = [&](std::string_view text) {
    frt::lm::ChatEvents events;
    reader->push(text, events);
    std::string told;
    for (const auto& event : events) {
      told += std::to_string(event.kind) + ":" + event.text + "|";
    }
    return told;
  };
  CHECK(push("Let me") == "1:Let me|");
  CHECK(push(" see. <tool") == "1: see.|");
  CHECK(push("box>\n") == "1: <toolbox>|");
  CHECK(push("<tool_call>\n<function=ed") == "");
  CHECK(push("it>\n<parameter=path>\na.txt\n</parameter>\n") == "");
  CHECK(push("<parameter=line>") == "2:edit|3:{\"path\": \"a.txt\"|");
  CHECK(push("\n12\n</parameter>\n</function>\n") == "");
  CHECK(push("</tool_call>") == "3:, \"line\": 12|3:}|4:|");
  CHECK(push("\nDone.") == "1:\nDone.|");
}

TEST_CASE("an answer that ends inside a call runs no command that was cut off") {
  const frt::qwen36::Chat chat;
  const Json options = {{"enable_thinking", false}};
  const std::string first = "<tool_call>\n<function=edit>\n<parameter=text>\nrm -rf /tm";
  const Json text = chat.parse(first, kTools, options, true);
  CHECK(text == Json{{"content", first}, {"complete", false}});

  // A call whose first value was given out ends; the value that was cut off is text.
  frt::lm::ChatEvents events;
  const auto reader = chat.reader(kTools, options);
  reader->push("<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n", events);
  reader->push("<parameter=text>\nrm -rf /tm", events);
  CHECK_FALSE(reader->finish(events));
  const auto end = std::find_if(events.begin(), events.end(),
                                [](const auto& e) { return e.kind == FRT_CHAT_CALL_END; });
  REQUIRE(end != events.end());
  CHECK(end->flags == FRT_CHAT_UNFINISHED);
  CHECK(events.back().kind == FRT_CHAT_TEXT);
  CHECK(events.back().text == "<parameter=text>\nrm -rf /tm");
}

TEST_CASE("an answer that comes byte by byte is read in linear time") {
  const frt::qwen36::Chat chat;
  const std::size_t one = 1;
  for (const char* piece :
       {"<tool_call>", "<tool_call><function=edit><parameter=text>", "</parameter>", "<", " ",
        "</parameter>\n</function>\n", "\n<parameter=text>\n", "<parameter=", "<function=", "\n",
        "<tool_call>\n<function=now>\n</function>\n"}) {
    for (const char* before : {"</think>", "</think><tool_call><function=edit><parameter=path>\n",
                               "</think><tool_call><function=now></function>", ""}) {
      std::string text = before;
      while (text.size() < 3'000) text += piece;
      CAPTURE(piece);
      CAPTURE(before);
      const auto reader = chat.reader(kTools, nullptr);
      // A quadratic reader takes minutes.
      CHECK(frt::test::message_of_pieces(*reader, text, {&one, 1}) ==
            chat.parse(text, kTools, nullptr, true));
    }
  }
}
