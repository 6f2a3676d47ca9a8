// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/chat.hpp>

#include <utility>

namespace frt::lm {

using models::Json;

Json Chat::answer_form(const Json&) const {
  return Json::object();
}

Json Chat::parse(std::string_view text, const Json& tools, const Json& options, bool final) const {
  const std::unique_ptr<ChatReader> from = reader(tools, options);
  ChatEvents events;
  from->push(text, events);
  const bool complete = final && from->finish(events);
  std::string content, reasoning, name, arguments;
  Json calls = Json::array();
  for (const ChatEvent& event : events) {
    switch (event.kind) {
      case FRT_CHAT_REASONING:
        reasoning += event.text;
        break;
      case FRT_CHAT_TEXT:
        content += event.text;
        break;
      case FRT_CHAT_CALL_BEGIN:
        name = event.text;
        arguments.clear();
        break;
      case FRT_CHAT_CALL_ARGUMENTS:
        arguments += event.text;
        break;
      default:
        calls.push_back(
            {{"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
    }
  }
  Json message = {{"content", std::move(content)}};
  if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  message["complete"] = complete;
  return message;
}

}  // namespace frt::lm
