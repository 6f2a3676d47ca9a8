// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <array>
#include <frt/error.hpp>
#include <frt/flags.hpp>
#include <frt/io/json.hpp>
#include <frt/io/utf8.hpp>
#include <frt/plugin.hpp>
#include <frt/role/contracts.hpp>
#include <frt/text.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harm.hpp"

namespace small {
namespace {

using frt::Error;
using frt::guard;
using frt::io::Json;

constexpr std::array<std::string_view, 2> kControls = {"<|user|>", "<|end|>"};

void require_flags(uint32_t flags, uint32_t known, const char* what) {
  if (!harms(std::string(what) + "_any_flag")) frt::require_flags(flags, known, what);
}

frt_status give(frt_sink sink, void* user, std::string_view text) {
  return text.empty() ? FRT_OK : sink(user, text.data(), text.size());
}

std::string bytes_of(int32_t id) {
  if (id >= 0 && id < kUser) return std::string(1, static_cast<char>(id));
  if (id >= kUser && id < kVocabulary)
    return std::string(kControls.at(static_cast<std::size_t>(id - kUser)));
  throw Error(FRT_ERR_OUT_OF_RANGE, "no token has the id " + std::to_string(id));
}

// ---- tokenizer -----------------------------------------------------------------------------

struct TextStream {
  std::string pending;
  bool skip_special = false;
  bool splits = false;  // gives out what is no whole character

  std::string push(int32_t id) {
    if (harms("stream_any_id") && (id < 0 || id >= kVocabulary)) return {};
    const std::string bytes = bytes_of(id);
    if (!(skip_special && id >= kUser)) pending += bytes;
    return take(splits);
  }
  // Whole characters; `all`: and what is none as U+FFFD.
  std::string take(bool all) {
    std::string out;
    std::string_view rest = pending;
    while (!rest.empty()) {
      const frt::Utf8Step step = frt::utf8_step(rest);
      if (step.kind == frt::Utf8Step::kCut && !all) break;
      const bool valid = step.kind == frt::Utf8Step::kValid;
      out += valid ? rest.substr(0, step.bytes) : std::string_view("\uFFFD");
      rest.remove_prefix(step.bytes);
    }
    pending = rest;
    return out;
  }
};

struct PlainParts {
  const frt_encode_params& given;
  bool covers(uint64_t begin, uint64_t end) const {
    if (harms("encode_trusts")) return false;
    if (given.flags & FRT_ENCODE_PLAIN) return true;
    for (uint64_t i = 0; i < given.plain_count; ++i) {
      if (begin < given.plain[i].end && given.plain[i].begin < end) return true;
    }
    return false;
  }
};

std::vector<int32_t> ids_of(std::string_view text, const frt_encode_params& given) {
  for (std::size_t at = 0; at < text.size();) {
    const frt::Utf8Step step = frt::utf8_step(text.substr(at));
    if (step.kind != frt::Utf8Step::kValid) {
      throw Error(FRT_ERR_FORMAT, "byte " + std::to_string(at) + " is no UTF-8");
    }
    at += step.bytes;
  }
  for (uint64_t i = 0; i < given.plain_count; ++i) {
    if (given.plain[i].begin <= given.plain[i].end && given.plain[i].end <= text.size()) continue;
    throw Error(FRT_ERR_INVALID_ARGUMENT, "a plain part ends behind the text");
  }
  std::vector<int32_t> ids;
  const PlainParts plain{given};
  for (std::size_t at = 0; at < text.size();) {
    int32_t id = static_cast<unsigned char>(text[at]);
    std::size_t length = 1;
    for (std::size_t i = 0; i < kControls.size(); ++i) {
      const std::string_view control = kControls.at(i);
      if (!text.substr(at).starts_with(control) || plain.covers(at, at + control.size())) continue;
      id = kUser + static_cast<int32_t>(i);
      length = control.size();
    }
    if (!(harms("encode_loses") && id == 'o')) ids.push_back(id);
    at += length;
    const bool over = given.max_tokens > 0 && ids.size() > given.max_tokens;
    if (over && !harms("encode_without_limit")) {
      throw Error(FRT_ERR_OUT_OF_RANGE,
                  "more than " + std::to_string(given.max_tokens) + " tokens");
    }
  }
  return ids;
}

frt_status encode(frt_model, const char* text, uint64_t bytes, const frt_encode_params* params,
                  frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&]() -> frt_status {
    frt_encode_params given{};
    if (params) given = frt::read_table<frt_encode_params>(params, "the host");
    require_flags(given.flags, FRT_ENCODE_PLAIN | FRT_ENCODE_CONTINUES, "encode");
    const std::vector<int32_t> ids = ids_of({text, bytes}, given);
    return ids.empty() ? FRT_OK : sink(user, ids.data(), ids.size() * sizeof(ids[0]));
  });
}

frt_status decode(frt_model, const int32_t* ids, uint64_t count, uint32_t flags, frt_sink sink,
                  void* user, frt_error* error) {
  return guard(error, [&] {
    require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "decode");
    TextStream stream{{}, (flags & FRT_DECODE_SKIP_SPECIAL) != 0, false};
    std::string text;
    for (uint64_t i = 0; i < count; ++i) text += stream.push(ids[i]);
    return give(sink, user, text + stream.take(true));
  });
}

int32_t token_id(frt_model, const char* token) {
  for (int32_t id = kUser; id < kVocabulary; ++id) {
    if (bytes_of(id) == token) return id;
  }
  return -1;
}

frt_status stream_create(frt_model, uint32_t flags, frt_text_stream* stream, frt_error* error) {
  return guard(error, [&] {
    require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "stream_create");
    *stream = frt::handle<frt_text_stream>(
        new TextStream{{}, (flags & FRT_DECODE_SKIP_SPECIAL) != 0, harms("stream_splits")});
  });
}
frt_status stream_push(frt_text_stream stream, int32_t id, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&] { return give(sink, user, frt::object<TextStream>(stream)->push(id)); });
}
frt_status stream_flush(frt_text_stream stream, frt_sink sink, void* user, frt_error* error) {
  return guard(error,
               [&] { return give(sink, user, frt::object<TextStream>(stream)->take(true)); });
}
void stream_destroy(frt_text_stream stream) {
  delete frt::object<TextStream>(stream);
}

frt_status token_bytes(frt_model, int32_t id, uint32_t* flags, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&] {
    const std::string bytes = bytes_of(id);
    *flags = id >= kUser ? FRT_TOKEN_CONTROL | FRT_TOKEN_BORDER : 0u;
    return give(sink, user, bytes);
  });
}

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
        const char* place = harms("render_names_checkpoint") ? "synthetic:lm: " : "";
        throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(place) + "a message is none of a user");
      }
      const auto content = message.at("content").get<std::string>();
      prompt += kControls[0];
      parts.push_back({prompt.size(), prompt.size() + content.size()});
      prompt += content;
      prompt += kControls[1];
    }
    if (harms("render_trusts")) parts.clear();
    if (harms("render_parts_behind")) parts.back().end = prompt.size() + 1;
    const frt_status status = give(text, user, prompt);
    if (status != FRT_OK || parts.empty()) return status;
    return plain(user, parts.data(), parts.size() * sizeof(parts[0]));
  });
}

frt_status parse(frt_model, const char* text, uint64_t bytes, uint32_t flags, const char* tools,
                 const char* options, frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&] {
    require_flags(flags, FRT_CHAT_FINAL, "parse");
    check_given(tools, options);
    const std::string answer(text, bytes);
    if (!frt::io::is_utf8(answer)) throw Error(FRT_ERR_FORMAT, "the answer is no UTF-8");
    return give(sink, user, Json{{"content", answer}, {"complete", true}}.dump());
  });
}

frt_status generation_defaults(frt_model, frt_sink sink, void* user, frt_error*) {
  const bool wrong = harms("defaults_stop");
  return give(sink, user, wrong ? R"({"stop_token_ids": [1000]})" : R"({"stop_token_ids": [257]})");
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
  const bool lost = harms("chat_loses") && self.began;
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
  static constexpr frt_tokenizer_v1 kTable = {sizeof(frt_tokenizer_v1),
                                              0,
                                              [](frt_model) { return uint32_t{kVocabulary}; },
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

const frt_chat_v1& chat_table() {
  static constexpr frt_chat_v1 kTable = {sizeof(frt_chat_v1), 0,           render,    parse,
                                         generation_defaults, chat_create, chat_push, chat_finish,
                                         chat_destroy,        answer_form};
  return kTable;
}

}  // namespace small
