// SPDX-License-Identifier: Apache-2.0
// frt/lm/chat.hpp - the conversation format of an architecture: messages to a prompt, generated
// text to a message. JSON shapes: frt/chat.h. Contents, names, arguments and descriptions of tools
// are text from outside: they never become control tokens.
#pragma once

#include <frt/chat.h>

#include <frt/models/json.hpp>
#include <frt/models/prompt_text.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::lm {

// frt_chat_event.
struct ChatEvent {
  std::uint32_t kind = FRT_CHAT_TEXT;
  std::uint32_t call = 0;
  std::string text;
  std::uint32_t flags = 0;
};
using ChatEvents = std::vector<ChatEvent>;

// The text of one answer as it comes. One thread at a time; behind an exception only the destructor
// may be called.
class ChatReader {
 public:
  virtual ~ChatReader() = default;
  // Appends what `text` makes certain. How the answer is cut into pieces changes nothing but where
  // the pieces of the events lie.
  virtual void push(std::string_view text, ChatEvents& events) = 0;
  // The answer is over: appends the rest. True if nothing was cut off. Called once.
  virtual bool finish(ChatEvents& events) = 0;
};

class Chat {
 public:
  virtual ~Chat() = default;

  // Its name in messages.
  virtual std::string_view name() const = 0;
  // Whether it renders the template that the checkpoint has. A format that is built in does not: it
  // is compared with `known_templates`, SHA-256 in hex of those it was checked against.
  virtual bool follows_checkpoint() const { return false; }
  virtual std::span<const std::string_view> known_templates() const { return {}; }

  // `messages`: an array, not empty; `tools` and `options`: as given, or null.
  // FRT_ERR_INVALID_ARGUMENT for a conversation the format cannot say, with the message's index.
  //   [any]
  virtual models::PromptText render(const models::Json& messages, const models::Json& tools,
                                    const models::Json& options) const = 0;
  // Of what the model writes after a prompt rendered with `options`. Keeps no reference to its
  // arguments.  [any]
  virtual std::unique_ptr<ChatReader> reader(const models::Json& tools,
                                             const models::Json& options) const = 0;

  // How an answer to a prompt rendered with `options` is written: frt_chat_v1::answer_form. As it
  // stands: no reasoning, no calls.  [any]
  virtual models::Json answer_form(const models::Json& options) const;

  // All of a reader's events as one message: {"content", "reasoning_content"?, "tool_calls"?,
  // "complete"}. A text that is not `final` may go on: what is open is left out.  [any]
  models::Json parse(std::string_view text, const models::Json& tools, const models::Json& options,
                     bool final) const;
};

}  // namespace frt::lm
