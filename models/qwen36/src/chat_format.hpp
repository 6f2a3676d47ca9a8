// SPDX-License-Identifier: Apache-2.0
// chat_format.hpp - the conversation format of Qwen3.6: messages to a prompt, generated text to a
// message. JSON shapes: frt/chat.h.
//
// Errors: FRT_ERR_INVALID_ARGUMENT for a conversation the format cannot say, with the message's
// index; FRT_ERR_UNSUPPORTED for images and videos where only text can be taken. All functions are
// [any].
#pragma once

#include <frt/lm/chat.hpp>
#include <frt/lm/chat_options.hpp>
#include <frt/models/json.hpp>
#include <frt/models/prompt_text.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace frt::qwen36 {

struct ChatOptions : lm::ChatOptions {
  bool add_vision_id = false;  // "Picture 1: " before each image
};

// Reads {"enable_thinking": false, ...}; null gives the defaults. Unknown keys and values that are
// no booleans are refused.
ChatOptions read_chat_options(const models::Json& options);

// Whether images and videos may stand in a prompt, as placeholders.
enum class Vision { kRefuse, kPlaceholders };

// `messages`: an array, not empty; `tools`: an array or null. Contents, reasoning, names, arguments
// and descriptions of tools are text from outside.
models::PromptText render_chat(const models::Json& messages, const models::Json& tools,
                               const ChatOptions& options, Vision vision);

// Reads what the model writes after a prompt rendered with `options`; chat_parse.cpp and
// call_reader.cpp have the rules.
std::unique_ptr<lm::ChatReader> read_answer(const models::Json& tools, const ChatOptions& options);

}  // namespace frt::qwen36
