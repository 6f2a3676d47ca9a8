// SPDX-License-Identifier: Apache-2.0
#include "byte_tokenizer.hpp"

#include <frt/error.hpp>
#include <frt/flags.hpp>
#include <frt/plugin.hpp>
#include <frt/role/contracts.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace acme {
namespace {

constexpr std::string_view kEndText = "<|end|>";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8 : uint8_t { kComplete, kUnfinished, kInvalid };
struct Character {
  Utf8 kind;
  std::size_t bytes;  // kInvalid: of the part that no character begins with
};

// The first character of a text that is not empty, as Unicode's table 3-7 has it.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8::kComplete, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8::kInvalid, 1};
  const std::size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < bytes; ++i) {
    if (i == text.size()) return {Utf8::kUnfinished, i};
    const unsigned char low = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Utf8::kInvalid, i};
  }
  return {Utf8::kComplete, bytes};
}

// Bytes of tokens, given out as whole characters.
struct TextStream {
  std::string waiting;
  bool skip_special = false;

  void push(int32_t id, std::string& out) {
    if (id < 0 || id >= static_cast<int32_t>(kVocabulary)) {
      throw frt::Error(FRT_ERR_OUT_OF_RANGE,
                       "token id " + std::to_string(id) + " is not in the vocabulary, 0 to 256");
    }
    if (id == kEndToken) {
      flush(out);
      if (!skip_special) out += kEndText;
      return;
    }
    waiting += static_cast<char>(id);
    give(out, false);
  }
  void flush(std::string& out) { give(out, true); }

 private:
  void give(std::string& out, bool all) {
    while (!waiting.empty()) {
      const Character next = first_character(waiting);
      if (next.kind == Utf8::kUnfinished && !all) return;
      out += next.kind == Utf8::kComplete ? std::string_view(waiting).substr(0, next.bytes)
                                          : kReplacement;
      waiting.erase(0, next.bytes);
    }
  }
};

frt_status send(frt_sink sink, void* user, std::string_view text) {
  return text.empty() ? FRT_OK : sink(user, text.data(), text.size());
}

uint32_t vocabulary(frt_model) {
  return kVocabulary;
}

frt_status encode(frt_model, const char* text, uint64_t bytes, const frt_encode_params* params,
                  frt_sink sink, void* user, frt_error* error) {
  return frt::guard(error, [&]() -> frt_status {
    frt_encode_params given{};
    if (params) given = frt::read_table<frt_encode_params>(params, "encode: the host");
    frt::require_flags(given.flags, FRT_ENCODE_PLAIN | FRT_ENCODE_CONTINUES, "encode");
    const std::string_view all(text, bytes);
    const bool plain_all = given.flags & FRT_ENCODE_PLAIN;
    const uint64_t limit = given.max_tokens ? given.max_tokens : UINT64_MAX;
    const frt_text_range* plain = given.plain;
    const frt_text_range* const plain_end = plain ? plain + given.plain_count : nullptr;
    for (const frt_text_range* part = plain; part != plain_end; ++part) {
      if (part->begin <= part->end && part->end <= bytes) continue;
      throw frt::Error(FRT_ERR_INVALID_ARGUMENT,
                       "plain part " + std::to_string(part - given.plain) +
                           " is no range of the text; give begin <= end <= bytes");
    }
    std::vector<int32_t> ids;
    for (std::size_t at = 0; at < all.size();) {
      if (ids.size() >= limit) {
        throw frt::Error(FRT_ERR_OUT_OF_RANGE,
                         "the text has more than " + std::to_string(limit) + " tokens");
      }
      while (plain != plain_end && plain->end <= at) ++plain;
      const bool control = all.substr(at, kEndText.size()) == kEndText && !plain_all &&
                           (plain == plain_end || plain->begin >= at + kEndText.size());
      if (control) {
        ids.push_back(kEndToken);
        at += kEndText.size();
        continue;
      }
      const Character next = first_character(all.substr(at));
      if (next.kind != Utf8::kComplete) {
        throw frt::Error(FRT_ERR_FORMAT, "the text is not UTF-8 at byte " + std::to_string(at));
      }
      for (const std::size_t end = at + next.bytes; at < end; ++at) {
        ids.push_back(static_cast<unsigned char>(all[at]));
      }
    }
    if (ids.size() > limit) {
      throw frt::Error(FRT_ERR_OUT_OF_RANGE,
                       "the text has more than " + std::to_string(limit) + " tokens");
    }
    return ids.empty() ? FRT_OK : sink(user, ids.data(), ids.size() * sizeof(int32_t));
  });
}

frt_status decode(frt_model, const int32_t* ids, uint64_t count, uint32_t flags, frt_sink sink,
                  void* user, frt_error* error) {
  return frt::guard(error, [&] {
    frt::require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "decode");
    TextStream stream;
    stream.skip_special = flags & FRT_DECODE_SKIP_SPECIAL;
    std::string text;
    for (uint64_t i = 0; i < count; ++i) stream.push(ids[i], text);
    stream.flush(text);
    return send(sink, user, text);
  });
}

int32_t token_id(frt_model, const char* token) {
  const std::string_view text(token);
  if (text == kEndText) return kEndToken;
  return text.size() == 1 ? static_cast<unsigned char>(text[0]) : -1;
}

frt_status stream_create(frt_model, uint32_t flags, frt_text_stream* stream, frt_error* error) {
  return frt::guard(error, [&] {
    frt::require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "stream_create");
    auto* made = new TextStream;
    made->skip_special = flags & FRT_DECODE_SKIP_SPECIAL;
    *stream = frt::handle<frt_text_stream>(made);
  });
}

frt_status stream_push(frt_text_stream stream, int32_t id, frt_sink sink, void* user,
                       frt_error* error) {
  return frt::guard(error, [&] {
    std::string text;
    frt::object<TextStream>(stream)->push(id, text);
    return send(sink, user, text);
  });
}

frt_status stream_flush(frt_text_stream stream, frt_sink sink, void* user, frt_error* error) {
  return frt::guard(error, [&] {
    std::string text;
    frt::object<TextStream>(stream)->flush(text);
    return send(sink, user, text);
  });
}

void stream_destroy(frt_text_stream stream) {
  delete frt::object<TextStream>(stream);
}

}  // namespace

const frt_tokenizer_v1 kByteTokenizer = {sizeof(frt_tokenizer_v1),
                                         0,
                                         vocabulary,
                                         encode,
                                         decode,
                                         token_id,
                                         stream_create,
                                         stream_push,
                                         stream_flush,
                                         stream_destroy,
                                         nullptr};

}  // namespace acme
