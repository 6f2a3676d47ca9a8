// SPDX-License-Identifier: Apache-2.0
// chat_format.hpp - the conversation format of Qwen3.6: messages to a prompt, generated text to a
// message, and the checkpoint's generation defaults. JSON shapes: frt/chat.h.
//
// Errors: FRT_ERR_INVALID_ARGUMENT for a conversation the format cannot say, with the message's
// index; FRT_ERR_UNSUPPORTED for images and videos where only text can be taken. All functions are
// [any].
#pragma once

#include <frt/models/json.hpp>
#include <frt/models/prompt_text.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace frt::qwen36 {

struct ChatOptions {
  bool add_generation_prompt = true;
  bool enable_thinking = true;     // false: the prompt closes the reasoning at once
  bool preserve_thinking = false;  // true: keep the reasoning of earlier turns
  bool add_vision_id = false;      // "Picture 1: " before each image
  // Contents may write control tokens, too. Only for conversations that nobody else writes in.
  bool allow_special_tokens = false;
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

// What the model wrote after a prompt rendered with `options`, as one message:
// {"content", "reasoning_content"?, "tool_calls"?, "complete"}; chat_parse.cpp has the rules. A
// final text is all that the model wrote; a text that is not may go on: what it leaves open is left
// out, and content, reasoning and calls only ever grow with it.
models::Json parse_chat(std::string_view text, const models::Json& tools,
                        const ChatOptions& options, bool final);

// generation_config.json of `folder` as frt_chat_v1::generation_defaults reports it; without the
// file only stop_token_ids from `end_ids`.
models::Json read_generation_defaults(const std::filesystem::path& folder,
                                      const std::vector<std::int32_t>& end_ids);

}  // namespace frt::qwen36
