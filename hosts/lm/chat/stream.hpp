// SPDX-License-Identifier: Apache-2.0
// stream.hpp - the text of one answer, piece by piece, as reasoning, text and tool calls.
//
// An event is certain: no later text takes it back. What may yet be a tag waits, and so does a
// value of a call until its end is known: a call whose first value is cut off is text. The pieces
// of one call's arguments concatenate to one valid JSON object, typed by the tool's schema. The
// cost is linear in the text, however it is cut.
#pragma once

#include <frt/chat.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lm/chat/event.hpp"
#include "lm/text_model.hpp"

namespace frt::host {

// One thread at a time, any thread. A member that throws leaves a stream that only its destructor
// may be called on.
class ChatStream {
 public:
  // `tools` and `options` as for TextModel::render(); null for none. `model` outlives this object.
  // FRT_ERR_UNSUPPORTED for a model without a chat format, FRT_ERR_INVALID_ARGUMENT for options
  // that the format refuses.
  ChatStream(const TextModel& model, const nlohmann::ordered_json& tools,
             const nlohmann::ordered_json& options);
  ~ChatStream();
  ChatStream(ChatStream&&) noexcept;
  ChatStream& operator=(ChatStream&&) noexcept;

  // The next piece of the answer: UTF-8, whole characters. FRT_ERR_MISMATCH if the model's plugin
  // reports what cannot be.
  std::vector<ChatEvent> push(std::string_view text);
  // All was pushed: the rest of the events. What is no whole call is text. Called once.
  std::vector<ChatEvent> finish();
  // The events in one, at any time, as TextModel::parse() gives them: {"content",
  // "reasoning_content"?, "tool_calls"?, "complete"}. "arguments" are JSON text. A call that goes
  // on is left out. "complete" is true after finish() if nothing was cut off.
  nlohmann::ordered_json message() const;

 private:
  class Source;         // turns text into events
  class TableSource;    // by the format's streaming functions
  class ParsingSource;  // by its parse function, for a format without those

  static std::unique_ptr<Source> make_source(const TextModel& model,
                                             const nlohmann::ordered_json& tools,
                                             const nlohmann::ordered_json& options);
  std::vector<ChatEvent> checked(std::vector<ChatEvent> events);

  std::string sender_;  // of the events, for errors
  std::unique_ptr<Source> source_;
  std::string content_, reasoning_;
  struct Call {
    std::string name, arguments;
    bool ended = false;
  };
  std::vector<Call> calls_;
  bool complete_ = false;
};

}  // namespace frt::host
