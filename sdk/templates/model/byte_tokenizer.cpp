// SPDX-License-Identifier: Apache-2.0
#include "byte_tokenizer.hpp"

#include <frt/error.hpp>
#include <frt/flags.hpp>
#include <frt/plugin.hpp>
#include <frt/role/contracts.hpp>
#include <frt/text.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace acme {
namespace {

constexpr std::string_view kEndText = "<|end|>";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

void require_token(int32_t id) {
  if (id >= 0 && id < static_cast<int32_t>(kVocabulary)) return;
  throw frt::Error(FRT_ERR_OUT_OF_RANGE,
                   "token id " + std::to_string(id) + " is not in the vocabulary, 0 to 256");
}

// Bytes of tokens, given out as whole characters.
struct TextStream {
  std::string waiting;
  bool skip_special = false;

  void push(int32_t id, std::string& out) {
    require_token(id);
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
      const frt::Utf8Step next = frt::utf8_step(waiting);
      if (next.kind == frt::Utf8Step::kCut && !all) return;
      out += next.kind == frt::Utf8Step::kValid ? std::string_view(waiting).substr(0, next.bytes)
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
      const frt::Utf8Step next = frt::utf8_step(all.substr(at));
      if (next.kind != frt::Utf8Step::kValid) {
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

frt_status token_bytes(frt_model, int32_t id, uint32_t* flags, frt_sink sink, void* user,
                       frt_error* error) {
  return frt::guard(error, [&] {
    require_token(id);
    *flags = id == kEndToken ? FRT_TOKEN_CONTROL | FRT_TOKEN_BORDER : 0;
    const char byte = static_cast<char>(id);
    return send(sink, user, id == kEndToken ? kEndText : std::string_view(&byte, 1));
  });
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
                                         token_bytes};

}  // namespace acme
