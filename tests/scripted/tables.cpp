// SPDX-License-Identifier: Apache-2.0
#include "tables.hpp"

#include <frt/lm/chat_functions.hpp>
#include <frt/plugin.hpp>

#include <array>
#include <string_view>

#include "byte_tokenizer.hpp"
#include "chat.hpp"
#include "script.hpp"

namespace scripted {

using frt::guard;

namespace {

struct Rules {
  static constexpr std::array<std::string_view, 3> kControls = {"<|im_start|>", "<|im_end|>",
                                                                "<|endoftext|>"};
  static constexpr uint32_t kControlFlags = FRT_TOKEN_CONTROL;
  static bool has_defect(std::string_view) { return false; }
};
using Tokenizer = byte_text::ByteTokenizer<Rules>;
static_assert(Tokenizer::kFirstControl == kTurnStart && Tokenizer::kVocabulary == kVocabulary);

// ---- chat ----------------------------------------------------------------------------------

const frt::qwen36::Chat kFormat;

frt_status render(frt_model, const char* messages, const char* tools, const char* options,
                  frt_sink text, frt_sink plain, void* user, frt_error* error) {
  return guard(error, [&] {
    return frt::lm::render_chat(kFormat, messages, tools, options, text, plain, user);
  });
}

frt_status parse(frt_model, const char* text, uint64_t bytes, uint32_t flags, const char* tools,
                 const char* options, frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&] {
    return frt::lm::parse_chat(kFormat, text, bytes, flags, tools, options, sink, user);
  });
}

frt_status chat_stream_create(frt_model, const char* tools, const char* options,
                              frt_chat_stream* stream, frt_error* error) {
  return guard(error, [&] { *stream = frt::lm::create_chat_stream(kFormat, tools, options); });
}

frt_status answer_form(frt_model, const char* options, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&] { return frt::lm::give_answer_form(kFormat, options, sink, user); });
}

frt_status generation_defaults(frt_model, frt_sink sink, void* user, frt_error*) {
  return byte_text::give(sink, user, R"({"temperature": 0, "stop_token_ids": [257, 258]})");
}

}  // namespace

const frt_tokenizer_v1& tokenizer_table() noexcept {
  return Tokenizer::table();
}

const frt_chat_v1& chat_table() noexcept {
  static constexpr frt_chat_v1 kTable = {sizeof(frt_chat_v1),
                                         0,
                                         render,
                                         parse,
                                         generation_defaults,
                                         chat_stream_create,
                                         frt::lm::push_chat_stream,
                                         frt::lm::finish_chat_stream,
                                         frt::lm::destroy_chat_stream,
                                         answer_form};
  return kTable;
}

}  // namespace scripted
