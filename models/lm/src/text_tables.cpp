// SPDX-License-Identifier: Apache-2.0
// Text functions of a model: its tokenizer and its conversation format.
#include <cstring>
#include <frt/error.hpp>
#include <frt/flags.hpp>
#include <frt/io/json_text.hpp>
#include <frt/models/json.hpp>
#include <frt/role/contracts.hpp>
#include <string_view>

#include <frt/lm/chat_functions.hpp>
#include <frt/lm/generation_defaults.hpp>
#include <frt/lm/tables.hpp>

namespace frt::lm {
namespace {

struct TextStream {
  const Model& model;
  models::StreamDecoder decoder;
};

const models::Tokenizer& tokenizer_of(frt_model model) {
  return *model_of(model).model.tokenizer();
}

frt_status give(frt_sink sink, void* user, std::string_view text) {
  return text.empty() ? FRT_OK : sink(user, text.data(), text.size());
}

// Ids up to the size of the embedding table may come out of the model; those that no token has
// are no text.
void check_id(const Model& model, std::int32_t id) {
  if (id >= 0 && id < model.config().vocabulary) return;
  throw Error(FRT_ERR_OUT_OF_RANGE, "token id " + std::to_string(id) + " is outside 0 .. " +
                                        std::to_string(model.config().vocabulary - 1));
}

uint32_t vocabulary(frt_model model) {
  return static_cast<uint32_t>(tokenizer_of(model).vocab_size());
}

frt_status encode(frt_model model, const char* text, uint64_t bytes,
                  const frt_encode_params* params, frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&]() -> frt_status {
    frt_encode_params given{};
    if (params) given = read_table<frt_encode_params>(params, "encode: the host");
    require_flags(given.flags, FRT_ENCODE_PLAIN | FRT_ENCODE_CONTINUES, "encode");
    std::vector<models::TextRange> plain;
    for (uint64_t i = 0; i < given.plain_count; ++i) {
      plain.push_back({given.plain[i].begin, given.plain[i].end});
    }
    if (given.flags & FRT_ENCODE_PLAIN) plain.assign(1, {0, bytes});
    const models::EncodeOptions options{plain, given.max_tokens,
                                        !(given.flags & FRT_ENCODE_CONTINUES)};
    std::vector<models::TokenId> ids;
    try {
      ids = tokenizer_of(model).encode(std::string_view(text, bytes), options);
    } catch (const Error& failure) {
      if (failure.status() != FRT_ERR_INVALID_ARGUMENT) throw;
      throw Error(FRT_ERR_FORMAT, failure.what());
    }
    return ids.empty() ? FRT_OK : sink(user, ids.data(), ids.size() * sizeof(ids[0]));
  });
}

frt_status decode(frt_model model, const int32_t* ids, uint64_t count, uint32_t flags,
                  frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&] {
    require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "decode");
    for (uint64_t i = 0; i < count; ++i) check_id(model_of(model).model, ids[i]);
    return give(sink, user,
                tokenizer_of(model).decode({ids, count}, (flags & FRT_DECODE_SKIP_SPECIAL) != 0));
  });
}

int32_t token_id(frt_model model, const char* token) {
  int32_t id = -1;
  guard(nullptr, [&] { id = tokenizer_of(model).token_id(token).value_or(-1); });
  return id;
}

frt_status stream_create(frt_model model, uint32_t flags, frt_text_stream* stream,
                         frt_error* error) {
  return guard(error, [&] {
    require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "stream_create");
    const bool skip = (flags & FRT_DECODE_SKIP_SPECIAL) != 0;
    *stream = handle<frt_text_stream>(
        new TextStream{model_of(model).model, models::StreamDecoder(tokenizer_of(model), skip)});
  });
}

frt_status stream_push(frt_text_stream stream, int32_t id, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&] {
    auto& self = *object<TextStream>(stream);
    check_id(self.model, id);
    return give(sink, user, self.decoder.push(id));
  });
}

frt_status stream_flush(frt_text_stream stream, frt_sink sink, void* user, frt_error* error) {
  return guard(error,
               [&] { return give(sink, user, object<TextStream>(stream)->decoder.finish()); });
}

void stream_destroy(frt_text_stream stream) {
  delete object<TextStream>(stream);
}

frt_status token_bytes(frt_model model, int32_t id, uint32_t* flags, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&] {
    check_id(model_of(model).model, id);
    const models::Tokenizer& tokenizer = tokenizer_of(model);
    *flags = (tokenizer.is_special(id) ? FRT_TOKEN_CONTROL : 0) |
             (tokenizer.is_border(id) ? FRT_TOKEN_BORDER : 0);
    return tokenizer.has_token(id) ? give(sink, user, tokenizer.token_bytes(id)) : FRT_OK;
  });
}

// ---- chat ----------------------------------------------------------------------------------

const Chat& chat_of(frt_model model) {
  model_of(model).model.chat_template().require_known();
  return model_of(model).model.architecture().chat();
}

frt_status render(frt_model model, const char* messages, const char* tools, const char* options,
                  frt_sink text, frt_sink plain, void* user, frt_error* error) {
  return guard(error, [&] {
    return render_chat(chat_of(model), messages, tools, options, text, plain, user);
  });
}

frt_status parse(frt_model model, const char* text, uint64_t bytes, uint32_t flags,
                 const char* tools, const char* options, frt_sink sink, void* user,
                 frt_error* error) {
  return guard(error, [&] {
    return parse_chat(chat_of(model), text, bytes, flags, tools, options, sink, user);
  });
}

frt_status chat_stream_create(frt_model model, const char* tools, const char* options,
                              frt_chat_stream* stream, frt_error* error) {
  return guard(error, [&] { *stream = create_chat_stream(chat_of(model), tools, options); });
}

frt_status answer_form(frt_model model, const char* options, frt_sink sink, void* user,
                       frt_error* error) {
  return guard(error, [&] { return give_answer_form(chat_of(model), options, sink, user); });
}

frt_status generation_defaults(frt_model model, frt_sink sink, void* user, frt_error* error) {
  return guard(error, [&] {
    const Model& self = model_of(model).model;
    const models::Json defaults =
        read_generation_defaults(self.checkpoint(), self.config().end_ids);
    for (const models::Json& id : defaults.at("stop_token_ids")) {
      if (id.get<std::int64_t>() >= 0 && id.get<std::int64_t>() < self.config().vocabulary)
        continue;
      throw Error(FRT_ERR_FORMAT, self.checkpoint() + ": eos_token_id " + io::json_text(id) +
                                      " of generation_config.json or config.json is no token of a "
                                      "vocabulary of " +
                                      std::to_string(self.config().vocabulary) +
                                      ", so it would never end a text; correct it");
    }
    return give(sink, user, io::json_text(defaults));
  });
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
                                         push_chat_stream,
                                         finish_chat_stream,
                                         destroy_chat_stream,
                                         answer_form};
  return kTable;
}

}  // namespace frt::lm
