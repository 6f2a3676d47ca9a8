// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <array>
#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/io/utf8.hpp>
#include <frt/plugin.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "byte_tokenizer.hpp"
#include "defect.hpp"

namespace small {
namespace {

using byte_text::give;
using frt::Error;
using frt::guard;
using frt::io::Json;

struct Rules {
  static constexpr std::array<std::string_view, 2> kControls = {"<|user|>", "<|end|>"};
  static constexpr uint32_t kControlFlags = FRT_TOKEN_CONTROL | FRT_TOKEN_BORDER;
  static bool has_defect(std::string_view name) { return small::has_defect(name); }
};
using Tokenizer = byte_text::ByteTokenizer<Rules>;
static_assert(Tokenizer::kVocabulary == kVocabulary);

// ---- chat ----------------------------------------------------------------------------------

Json parsed(const char* text, const char* what) {
  return frt::io::parse_json(text, what);
}

void check_given(const char* tools, const char* options) {
  if (options && !parsed(options, "options").is_object()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "the options are no object");
  }
  if (tools && !parsed(tools, "tools").is_array()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "the tools are no list");
  }
}

frt_status render(frt_model, const char* messages, const char* tools, const char* options,
                  frt_sink text, frt_sink plain, void* user, frt_error* error) {
  return guard(error, [&]() -> frt_status {
    check_given(tools, options);
    const Json list = parsed(messages, "messages");
    if (!list.is_array() || list.empty()) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "the messages are no list with a message");
    }
    std::string prompt;
    std::vector<frt_text_range> parts;
    for (const Json& message : list) {
      const auto is_text = [&](const char* key) {
        return message.is_object() && message.contains(key) && message.at(key).is_string();
      };
      if (!is_text("role") || !is_text("content") || message.at("role") != "user") {
        const char* place = has_defect("render_names_checkpoint") ? "synthetic:lm: " : "";
        throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(place) + "a message is none of a user");
      }
      const auto content = message.at("content").get<std::string>();
      prompt += Rules::kControls[0];
      parts.push_back({prompt.size(), prompt.size() + content.size()});
      prompt += content;
      prompt += Rules::kControls[1];
    }
    if (has_defect("render_trusts")) parts.clear();
    if (has_defect("render_parts_behind")) parts.back().end = prompt.size() + 1;
    const frt_status status = give(text, user, prompt);
    if (status != FRT_OK || parts.empty()) return status;
    return plain(user, parts.data(), parts.size() * sizeof(parts[0]));
  });
}

frt_status parse(frt_model, const char* text, uint64_t bytes, uint32_t flags, const char* tools,
                 const char* options, frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&] {
    byte_text::require_flags<Rules>(flags, FRT_CHAT_FINAL, "parse");
    check_given(tools, options);
    std::string answer(text, bytes);
    if (!frt::io::is_utf8(answer)) throw Error(FRT_ERR_FORMAT, "the answer is no UTF-8");
    const bool final = (flags & FRT_CHAT_FINAL) != 0;
    if (!final && has_defect("chat_takes_back")) answer += "...";
    const bool complete = final || has_defect("chat_complete_early");
    return give(sink, user, Json{{"content", answer}, {"complete", complete}}.dump());
  });
}

frt_status generation_defaults(frt_model, frt_sink sink, void* user, frt_error*) {
  const char* stop = has_defect("defaults_stop")         ? "1000"
                     : has_defect("defaults_stop_large") ? "4294967301"  // 5 in 32 bits
                                                         : "257";
  return give(sink, user, std::string(R"({"stop_token_ids": [)") + stop + "]}");
}

struct ChatStream {
  bool began = false;
};

frt_status chat_create(frt_model, const char* tools, const char* options, frt_chat_stream* stream,
                       frt_error* error) {
  return guard(error, [&] {
    check_given(tools, options);
    *stream = frt::handle<frt_chat_stream>(new ChatStream);
  });
}
frt_status chat_push(frt_chat_stream stream, const char* text, uint64_t bytes, frt_chat_sink sink,
                     void* user, frt_error*) {
  ChatStream& self = *frt::object<ChatStream>(stream);
  const bool lost = has_defect("chat_loses") && self.began;
  self.began = true;
  if (lost || bytes == 0) return FRT_OK;
  frt_chat_event event{};
  event.struct_size = sizeof(event);
  event.kind = FRT_CHAT_TEXT;
  event.text = text;
  event.bytes = bytes;
  return sink(user, &event);
}
frt_status chat_finish(frt_chat_stream, frt_chat_sink, void*, uint32_t* complete, frt_error*) {
  *complete = 1;
  return FRT_OK;
}
void chat_destroy(frt_chat_stream stream) {
  delete frt::object<ChatStream>(stream);
}

frt_status answer_form(frt_model, const char* options, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&] {
    check_given(nullptr, options);
    return give(sink, user, "{}");
  });
}

}  // namespace

const frt_tokenizer_v1& tokenizer_table() {
  return Tokenizer::table();
}

const frt_chat_v1& chat_table() {
  static constexpr frt_chat_v1 kTable = {sizeof(frt_chat_v1), 0,           render,    parse,
                                         generation_defaults, chat_create, chat_push, chat_finish,
                                         chat_destroy,        answer_form};
  return kTable;
}

}  // namespace small
