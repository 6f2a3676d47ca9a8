// SPDX-License-Identifier: Apache-2.0
// frt/lm/chat_functions.hpp - the functions of a frt_chat_v1 table over a conversation format, for
// every plugin that has one. Arguments as in frt/chat.h; those that take a format throw.
#pragma once

#include <frt/lm/chat.hpp>

namespace frt::lm {

frt_status render_chat(const Chat& chat, const char* messages, const char* tools,
                       const char* options, frt_sink text, frt_sink plain, void* user);
frt_status parse_chat(const Chat& chat, const char* text, std::uint64_t bytes, std::uint32_t flags,
                      const char* tools, const char* options, frt_sink sink, void* user);
frt_status give_answer_form(const Chat& chat, const char* options, frt_sink sink, void* user);
// `chat` need not outlive the stream.
frt_chat_stream create_chat_stream(const Chat& chat, const char* tools, const char* options);

// For the table as they are.
frt_status push_chat_stream(frt_chat_stream stream, const char* text, std::uint64_t bytes,
                            frt_chat_sink sink, void* user, frt_error* error) noexcept;
frt_status finish_chat_stream(frt_chat_stream stream, frt_chat_sink sink, void* user,
                              std::uint32_t* complete, frt_error* error) noexcept;
void destroy_chat_stream(frt_chat_stream stream) noexcept;

}  // namespace frt::lm
