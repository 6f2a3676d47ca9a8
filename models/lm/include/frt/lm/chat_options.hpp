// SPDX-License-Identifier: Apache-2.0
// frt/lm/chat_options.hpp - the options that every conversation format takes (frt/chat.h), and text
// as chat templates treat it. [any]
#pragma once

#include <frt/models/json.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

namespace frt::lm {

struct ChatOptions {
  bool add_generation_prompt = true;
  bool enable_thinking = true;     // false: the prompt closes the reasoning at once
  bool preserve_thinking = false;  // true: keep the reasoning of earlier turns
  // Contents may write control tokens, too. Only for conversations that nobody else writes in.
  bool allow_special_tokens = false;
};

// Reads {"enable_thinking": false, ...} into `options` and the format's own flags in `more`; null
// changes nothing. FRT_ERR_INVALID_ARGUMENT for unknown keys and values that are no booleans.
void read_chat_options(const models::Json& options, ChatOptions& result,
                       std::span<const std::pair<std::string_view, bool*>> more = {});

// The text without white space at its ends, as Python's str.strip() and Jinja's trim see it.
std::string_view strip(std::string_view text);
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
// Bytes of the white space character that `text` begins with; 0 if there is none.
std::size_t leading_space(std::string_view text);

}  // namespace frt::lm
