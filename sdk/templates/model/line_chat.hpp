// SPDX-License-Identifier: Apache-2.0
// A conversation format: a line per message, "role: content". The end token ends an answer.
#pragma once

#include <frt/chat.h>

namespace acme {

// Works for every model object: it does not look at it.
extern const frt_chat_v1 kLineChat;

}  // namespace acme
