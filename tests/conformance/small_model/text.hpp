// SPDX-License-Identifier: Apache-2.0
// text.hpp - a tokenizer of bytes with two control tokens, and a conversation format without
// reasoning and calls.
#pragma once

#include <frt/chat.h>
#include <frt/tokenizer.h>

namespace small {

inline constexpr int32_t kVocabulary = 258;

const frt_tokenizer_v1& tokenizer_table();
const frt_chat_v1& chat_table();

}  // namespace small
