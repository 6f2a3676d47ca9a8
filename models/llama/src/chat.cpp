// SPDX-License-Identifier: Apache-2.0
// The prompt begins with <|begin_of_text|>. One turn is
// "<|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>", contents trimmed as Python's
// str.strip() does. Only what the format itself writes can become control tokens (PromptText).
#include "chat.hpp"

#include <array>
#include <frt/error.hpp>
#include <frt/lm/chat_options.hpp>
#include <string>

namespace frt::llama {

using models::Json;
using models::PromptText;

namespace {

// Rendered with Jinja, it gives the prompts of tests/fixtures/llama: the template of Llama 3
// Instruct, with the condition on add_generation_prompt.
constexpr std::array<std::string_view, 1> kKnown = {
    "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122"};

[[noreturn]] void refuse(std::size_t index, const std::string& what,
                         frt_status status = FRT_ERR_INVALID_ARGUMENT) {
  throw Error(status, "message " + std::to_string(index) + ": " + what);
}

std::string content_of(const Json& message, std::size_t index) {
  const auto found = message.find("content");
  if (found == message.end() || found->is_null()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) refuse(index, "content must be text or a list of parts");
  std::string content;
  for (const Json& part : *found) {
    const auto text = part.is_object() ? part.find("text") : part.end();
    if (text == part.end() || !text->is_string()) {
      refuse(index, "a part of its content is no text; the format of Llama 3 has text only",
             FRT_ERR_UNSUPPORTED);
    }
    content += text->get_ref<const std::string&>();
  }
  return content;
}

std::string role_of(const Json& message, std::size_t index) {
  if (!message.is_object()) refuse(index, "expected an object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) refuse(index, "has no role");
  if (const auto calls = message.find("tool_calls");
      calls != message.end() && !calls->is_null() && !calls->empty()) {
    refuse(index, "the format of Llama 3 has no tool calls", FRT_ERR_UNSUPPORTED);
  }
  if (*role == "system" || *role == "user" || *role == "assistant") return *role;
  refuse(index, "unknown role " + role->dump() + "; known: system, user, assistant");
}

lm::ChatOptions read_options(const Json& options) {
  lm::ChatOptions result;
  lm::read_chat_options(options, result);
  return result;
}

// All is content.
class Reader final : public lm::ChatReader {
 public:
  void push(std::string_view text, lm::ChatEvents& events) override {
    if (!text.empty()) events.push_back({FRT_CHAT_TEXT, 0, std::string(text), 0});
  }
  bool finish(lm::ChatEvents&) override { return true; }
};

}  // namespace

std::span<const std::string_view> Chat::known_templates() const {
  return kKnown;
}

PromptText Chat::render(const Json& messages, const Json& tools, const Json& options) const {
  const lm::ChatOptions chosen = read_options(options);
  if (!messages.is_array() || messages.empty()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "there are no messages; give at least one of the user");
  }
  if (!tools.is_null() && !tools.empty()) {
    throw Error(FRT_ERR_UNSUPPORTED, "the format of Llama 3 has no tools; give none");
  }
  PromptText prompt;
  prompt.format("<|begin_of_text|>");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string role = role_of(messages[i], i);
    prompt.format("<|start_header_id|>" + role + "<|end_header_id|>\n\n")
        .plain(lm::strip(content_of(messages[i], i)))
        .format("<|eot_id|>");
  }
  if (chosen.add_generation_prompt) {
    prompt.format("<|start_header_id|>assistant<|end_header_id|>\n\n");
  }
  if (chosen.allow_special_tokens) prompt.trust();
  return prompt;
}

std::unique_ptr<lm::ChatReader> Chat::reader(const Json&, const Json& options) const {
  read_options(options);
  return std::make_unique<Reader>();
}

}  // namespace frt::llama
