// SPDX-License-Identifier: Apache-2.0
// defect_text.hpp - a tokenizer, whose tokens are letters, and a chat format,
// which says "hi".
#pragma once

#include <frt/chat.h>
#include <frt/tokenizer.h>
#include <frt/role/contracts.hpp>

#include <cstring>
#include <vector>

#include "defect_parts.hpp"
#include "defects.hpp"

namespace defects {

inline char any_stream;  // streams have no state

inline frt_status send(frt_sink sink, void* user, std::string_view text) {
  return sink(user, text.data(), text.size());
}

inline frt_status encode(frt_model, const char* text, uint64_t bytes,
                         const frt_encode_params* params, frt_sink sink, void* user,
                         frt_error* error) {
  return frt::guard(error, [&] {
    frt_encode_params known{};
    if (params) known = frt::read_table<frt_encode_params>(params, "the host");
    if (known.max_tokens && bytes > known.max_tokens) {
      throw frt::Error(FRT_ERR_OUT_OF_RANGE, "too many letters");
    }
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < bytes; ++i) ids.push_back(text[i] - 'a');
    frt::check(sink(user, ids.data(), ids.size() * sizeof(int32_t)), "the sink");
  });
}

inline frt_status decode(frt_model, const int32_t* ids, uint64_t count, uint32_t, frt_sink sink,
                         void* user, frt_error*) {
  std::string text;
  for (uint64_t i = 0; i < count; ++i) text += static_cast<char>('a' + ids[i]);
  return send(sink, user, text);
}

inline frt_tokenizer_v1 tokenizer() {
  frt_tokenizer_v1 table{};
  table.struct_size = sizeof(table);
  table.vocabulary = [](frt_model) { return kVocabulary; };
  table.encode = encode;
  table.decode = decode;
  table.token_id = [](frt_model, const char*) { return int32_t{-1}; };
  table.stream_create = [](frt_model, uint32_t, frt_text_stream* stream, frt_error*) -> frt_status {
    *stream = reinterpret_cast<frt_text_stream>(&any_stream);
    return FRT_OK;
  };
  table.stream_push = [](frt_text_stream, int32_t id, frt_sink sink, void* user, frt_error* error) {
    return decode(nullptr, &id, 1, 0, sink, user, error);
  };
  table.stream_flush = [](frt_text_stream, frt_sink, void*, frt_error*) -> frt_status {
    return FRT_OK;
  };
  table.stream_destroy = [](frt_text_stream) {};
  return table;
}

inline frt_chat_v1 chat() {
  frt_chat_v1 table{};
  table.struct_size = sizeof(table);
  table.render = [](frt_model, const char*, const char*, const char*, frt_sink text, frt_sink,
                    void* user, frt_error*) { return send(text, user, "hi"); };
  table.parse = [](frt_model, const char*, uint64_t, uint32_t, const char*, const char*,
                   frt_sink sink, void* user, frt_error*) {
    return send(sink, user, "{\"content\": \"hi\", \"complete\": true}");
  };
  table.generation_defaults = [](frt_model, frt_sink sink, void* user, frt_error*) {
    return send(sink, user, "{\"top_k\": 3}");
  };
  table.stream_create = [](frt_model, const char*, const char*, frt_chat_stream* stream,
                           frt_error*) -> frt_status {
    *stream = reinterpret_cast<frt_chat_stream>(&any_stream);
    return FRT_OK;
  };
  table.stream_push = [](frt_chat_stream, const char* text, uint64_t bytes, frt_chat_sink sink,
                         void* user, frt_error*) {
    frt_chat_event event{};
    event.struct_size = sizeof(event);
    event.kind = FRT_CHAT_TEXT;
    event.text = text;
    event.bytes = bytes;
    return sink(user, &event);
  };
  table.stream_finish = [](frt_chat_stream, frt_chat_sink, void*, uint32_t* complete,
                           frt_error*) -> frt_status {
    *complete = 1;
    return FRT_OK;
  };
  table.stream_destroy = [](frt_chat_stream) {};
  return table;
}

inline const void* text_extension(std::string_view id) {
  if (id == FRT_EXT_TOKENIZER) {
    return with_defect(tokenizer(), "tokenizer", [](frt_tokenizer_v1& table) {
      if (is("tokenizer_no_decode")) table.decode = nullptr;
      if (is("tokenizer_no_stream_destroy")) table.stream_destroy = nullptr;
    });
  }
  if (id == FRT_EXT_CHAT) {
    return with_defect(chat(), "chat", [](frt_chat_v1& table) {
      if (is("chat_no_parse")) table.parse = nullptr;
      if (is("chat_no_generation_defaults")) table.generation_defaults = nullptr;
    });
  }
  return nullptr;
}

}  // namespace defects
