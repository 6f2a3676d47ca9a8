// SPDX-License-Identifier: Apache-2.0
// hygiene.hpp - builds the messages of a call (frt/chat.h) so that the prompt of one turn is the
// beginning of the next turn's.
//
//   system messages   Those before all others become one. Later ones stay where they are, because
//                     moving them to the front would change the prompt from its beginning, and
//                     formats refuse them elsewhere: they become notes of the user. A note behind a
//                     tool's result becomes a part of the result, so that formats still see a tool
//                     loop there, whose reasoning they keep.
//   changing lines    A line with a client's version and a count of tokens that are left change
//                     from request to request and are of no use to a model. They are removed from
//                     system messages.
//   contents          Lists of text parts become text, parts apart by a line feed: clients send the
//                     same message in both forms.
//   results           The results of one message's calls come in the order of the calls: formats
//                     without ids tell them apart by their order.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace frt::host::api {

using Json = nlohmann::ordered_json;

// A system message's text without lines that change with each request.  [any]
std::string stable_system_text(std::string_view text);

// Appends a part to a content: a line feed between parts that are not empty.  [any]
void append_part(std::string& content, std::string_view part);

// One thread at a time.
class MessageBuilder {
 public:
  // Of role "system" or "developer".
  void system(std::string_view text);
  void user(std::string text);
  // What follows of an assistant: reasoning, text and calls extend the last message as long as they
  // come in this order, else they begin another one.
  void reasoning(std::string_view text);
  void answer(std::string_view text);
  // `arguments` is the JSON text of an object.
  void call(std::string id, std::string name, std::string arguments);
  // An assistant message begins, whatever comes.
  void begin_assistant();
  void result(std::string call_id, std::string content);

  bool has_reasoning() const noexcept { return has_reasoning_; }
  bool ends_with_assistant() const;
  // The messages. The builder is empty then.
  Json take();

 private:
  Json& assistant();
  void order_results();

  std::string leading_system_;
  bool has_system_ = false, has_reasoning_ = false;
  Json messages_ = Json::array();
};

}  // namespace frt::host::api
