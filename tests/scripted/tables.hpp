// SPDX-License-Identifier: Apache-2.0
// tables.hpp - the scripted model's text functions: one token per byte and control tokens; the
// conversation format is Qwen3.6's.
#pragma once

#include <frt/chat.h>
#include <frt/tokenizer.h>

namespace scripted {

const frt_tokenizer_v1& tokenizer_table() noexcept;
const frt_chat_v1& chat_table() noexcept;

}  // namespace scripted
