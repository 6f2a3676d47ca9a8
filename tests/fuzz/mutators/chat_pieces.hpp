// SPDX-License-Identifier: Apache-2.0
// chat_pieces.hpp - an answer pushed in pieces: its events, put together by hand, must be one
// message, whatever the pieces.
#pragma once

#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/lm/chat.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace frt::test {

// Pushes `text`, cut into pieces of `lengths` bytes in turn (again and again; 0 counts as 1), and
// finishes. The message has what Chat::parse reports. Throws FRT_ERR_INTERNAL for events that
// frt/chat.h does not allow.
inline models::Json message_of_pieces(lm::ChatReader& reader, std::string_view text,
                                      std::span<const std::size_t> lengths) {
  using models::Json;
  const auto wrong = [](const std::string& what) { throw Error(FRT_ERR_INTERNAL, what); };
  std::string content, reasoning, name, arguments;
  Json calls = Json::array();
  bool open = false;
  const auto take = [&](const lm::ChatEvents& events) {
    for (const lm::ChatEvent& event : events) {
      const bool of_call = event.kind >= FRT_CHAT_CALL_BEGIN && event.kind <= FRT_CHAT_CALL_END;
      if (event.kind == FRT_CHAT_REASONING) reasoning += event.text;
      if (event.kind == FRT_CHAT_TEXT) content += event.text;
      if (event.kind > FRT_CHAT_CALL_END) wrong("an event of no known kind");
      if (event.text.empty() != (event.kind == FRT_CHAT_CALL_END)) wrong("an event's text");
      if (!of_call) continue;
      if (event.call != calls.size()) wrong("the number of a call");
      if (open == (event.kind == FRT_CHAT_CALL_BEGIN)) wrong("calls do not follow one another");
      open = event.kind != FRT_CHAT_CALL_END;
      if (event.kind == FRT_CHAT_CALL_BEGIN) name = event.text;
      if (event.kind == FRT_CHAT_CALL_BEGIN) arguments.clear();
      if (event.kind == FRT_CHAT_CALL_ARGUMENTS) arguments += event.text;
      if (open) continue;
      if (!io::parse_json(arguments, "arguments").is_object()) wrong("arguments are no object");
      calls.push_back(
          {{"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
    }
  };
  for (std::size_t at = 0, turn = 0; at < text.size(); ++turn) {
    const std::size_t length = lengths.empty() ? text.size() : lengths[turn % lengths.size()];
    const std::string_view piece = text.substr(at, length == 0 ? 1 : length);
    lm::ChatEvents events;
    reader.push(piece, events);
    take(events);
    at += piece.size();
  }
  lm::ChatEvents rest;
  const bool complete = reader.finish(rest);
  take(rest);
  if (open) wrong("the last call does not end");
  Json message = {{"content", content}};
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = calls;
  message["complete"] = complete;
  return message;
}

}  // namespace frt::test
