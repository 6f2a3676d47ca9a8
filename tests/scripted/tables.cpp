// SPDX-License-Identifier: Apache-2.0
#include "tables.hpp"

#include <frt/error.hpp>
#include <frt/flags.hpp>
#include <frt/io/utf8.hpp>
#include <frt/lm/chat_functions.hpp>
#include <frt/plugin.hpp>
#include <frt/role/contracts.hpp>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat.hpp"
#include "script.hpp"

namespace scripted {

using frt::Error;
using frt::guard;
using frt::handle;
using frt::object;

namespace {

constexpr std::array<std::string_view, 3> kControl = {"<|im_start|>", "<|im_end|>",
                                                      "<|endoftext|>"};
constexpr int32_t kFirstControl = kTurnStart;

frt_status give(frt_sink sink, void* user, std::string_view text) {
  return text.empty() ? FRT_OK : sink(user, text.data(), text.size());
}

// The control token at the start of `text`, or -1.
int32_t control_at(std::string_view text) {
  for (std::size_t i = 0; i < kControl.size(); ++i) {
    if (text.starts_with(kControl[i])) return kFirstControl + static_cast<int32_t>(i);
  }
  return -1;
}

// Bytes of tokens, given out as whole characters.
struct TextStream {
  std::string pending;
  bool skip_control = false;

  void push(int32_t id, std::string& out) {
    if (id < 0 || id >= static_cast<int32_t>(kVocabulary)) {
      throw Error(FRT_ERR_OUT_OF_RANGE, "token id " + std::to_string(id) + " is outside 0 .. " +
                                            std::to_string(kVocabulary - 1));
    }
    if (id < kFirstControl) {
      const char byte = static_cast<char>(id);
      frt::io::append_lossy(pending, {&byte, 1}, out);
      return;
    }
    flush(out);
    if (!skip_control) out += kControl[static_cast<std::size_t>(id - kFirstControl)];
  }
  void flush(std::string& out) { frt::io::finish_lossy(pending, out); }
};

uint32_t vocabulary(frt_model) {
  return kVocabulary;
}

frt_status encode(frt_model, const char* text, uint64_t bytes, const frt_encode_params* params,
                  frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&]() -> frt_status {
    const std::string_view all(text, bytes);
    if (const auto bad = frt::io::first_invalid_utf8(all)) {
      throw Error(FRT_ERR_FORMAT, "the text is not UTF-8 at byte " + std::to_string(*bad));
    }
    frt_encode_params given{};
    if (params) given = frt::read_table<frt_encode_params>(params, "encode: the host");
    frt::require_flags(given.flags, FRT_ENCODE_PLAIN | FRT_ENCODE_CONTINUES, "encode");
    const bool plain_all = (given.flags & FRT_ENCODE_PLAIN) != 0;
    const uint64_t most = given.max_tokens ? given.max_tokens : UINT64_MAX;
    std::span<const frt_text_range> plain(given.plain, given.plain_count);
    std::vector<int32_t> ids;
    for (std::size_t at = 0; at < all.size();) {
      while (!plain.empty() && plain[0].end <= at) plain = plain.subspan(1);
      int32_t id = plain_all ? -1 : control_at(all.substr(at));
      const std::size_t length =
          id < 0 ? 1 : kControl[static_cast<std::size_t>(id - kFirstControl)].size();
      if (id >= 0 && !plain.empty() && plain[0].begin < at + length) id = -1;
      ids.push_back(id < 0 ? static_cast<unsigned char>(all[at]) : id);
      at += id < 0 ? 1 : length;
      if (ids.size() > most) {
        throw Error(FRT_ERR_OUT_OF_RANGE,
                    "the text has more than " + std::to_string(most) + " tokens; shorten it");
      }
    }
    return ids.empty() ? FRT_OK : sink(user, ids.data(), ids.size() * sizeof(ids[0]));
  });
}

frt_status decode(frt_model, const int32_t* ids, uint64_t count, uint32_t flags, frt_sink sink,
                  void* user, frt_error* error) {
  return guard(error, [&] {
    frt::require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "decode");
    TextStream stream{{}, (flags & FRT_DECODE_SKIP_SPECIAL) != 0};
    std::string text;
    for (uint64_t i = 0; i < count; ++i) stream.push(ids[i], text);
    stream.flush(text);
    return give(sink, user, text);
  });
}

int32_t token_id(frt_model, const char* token) {
  const std::string_view text(token);
  const int32_t control = control_at(text);
  if (control >= 0) {
    return kControl[static_cast<std::size_t>(control - kFirstControl)] == text ? control : -1;
  }
  return text.size() == 1 ? static_cast<unsigned char>(text[0]) : -1;
}

frt_status stream_create(frt_model, uint32_t flags, frt_text_stream* stream, frt_error* error) {
  return guard(error, [&] {
    frt::require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "stream_create");
    *stream = handle<frt_text_stream>(new TextStream{{}, (flags & FRT_DECODE_SKIP_SPECIAL) != 0});
  });
}

frt_status stream_push(frt_text_stream stream, int32_t id, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&] {
    std::string text;
    object<TextStream>(stream)->push(id, text);
    return give(sink, user, text);
  });
}

frt_status stream_flush(frt_text_stream stream, frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&] {
    std::string text;
    object<TextStream>(stream)->flush(text);
    return give(sink, user, text);
  });
}

void stream_destroy(frt_text_stream stream) {
  delete object<TextStream>(stream);
}

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

frt_status token_bytes(frt_model, int32_t id, uint32_t* flags, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&]() -> frt_status {
    std::string text;
    TextStream{{}, false}.push(id, text);  // refuses what is no id
    *flags = id >= kFirstControl ? FRT_TOKEN_CONTROL : 0;
    const char byte = static_cast<char>(id);
    return id >= kFirstControl ? give(sink, user, text) : sink(user, &byte, 1);
  });
}

frt_status answer_form(frt_model, const char* options, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&] { return frt::lm::give_answer_form(kFormat, options, sink, user); });
}

frt_status generation_defaults(frt_model, frt_sink sink, void* user, frt_error*) {
  return give(sink, user, R"({"temperature": 0, "stop_token_ids": [257, 258]})");
}

}  // namespace

const frt_tokenizer_v1& tokenizer_table() noexcept {
  static constexpr frt_tokenizer_v1 kTable = {sizeof(frt_tokenizer_v1),
                                              0,
                                              vocabulary,
                                              encode,
                                              decode,
                                              token_id,
                                              stream_create,
                                              stream_push,
                                              stream_flush,
                                              stream_destroy,
                                              token_bytes};
  return kTable;
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
