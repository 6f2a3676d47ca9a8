// SPDX-License-Identifier: Apache-2.0
// text_model.hpp - the text functions of a model: its tokenizer and its conversation format, typed.
//
// They need no weights: a model that was made with FRT_MODEL_WITHOUT_WEIGHTS has them, too. Owns
// nothing: the model outlives this object. Functions throw FRT_ERR_UNSUPPORTED, naming the model,
// when the model has no tokenizer or no chat format (a synthetic checkpoint, say). All members are
// [any] unless tagged.
#pragma once

#include <frt/chat.h>
#include <frt/model.h>
#include <frt/tokenizer.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::host {

// A rendered conversation, and which parts of it came from outside: those write no control tokens.
struct ChatPrompt {
  std::string text;
  std::vector<frt_text_range> plain;
};

class TextModel {
 public:
  // `name` is the user's name of the model and `sender` the model in errors about its tables. Takes
  // checked copies of them. FRT_ERR_ABI for one that cannot be read.  [setup]
  TextModel(const frt_model_v1& table, frt_model model, std::string name, std::string sender);

  const std::string& name() const noexcept { return name_; }
  // The model in errors: "model 'chat' (plugin acme.fast)".
  const std::string& sender() const noexcept { return sender_; }
  frt_model handle() const noexcept { return model_; }
  bool has_tokenizer() const noexcept { return tokenizer_.has_value(); }
  bool has_chat() const noexcept { return chat_.has_value(); }

  // `flags`: FRT_ENCODE_*. FRT_ERR_OUT_OF_RANGE for more than `max_tokens` (0: no limit), without
  // the work of counting them.
  std::vector<int32_t> encode_text(std::string_view text, uint32_t flags,
                                   uint64_t max_tokens) const;
  std::vector<int32_t> encode_prompt(const ChatPrompt& prompt, uint64_t max_tokens) const;
  // `flags`: FRT_DECODE_*.
  std::string decode(std::span<const int32_t> ids, uint32_t flags = 0) const;
  // The bytes a token adds to a text (frt_tokenizer_v1::token_bytes); `flags` becomes FRT_TOKEN_*.
  // FRT_ERR_UNSUPPORTED where the tokenizer does not say.
  std::string token_bytes(int32_t id, uint32_t& flags) const;
  // -1 if there is no such token.
  int32_t token_id(const std::string& token) const;
  // The prompt of a conversation (frt/chat.h); `tools` and `options` may be null.
  ChatPrompt render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                    const nlohmann::ordered_json& options) const;
  // The assistant message that `text` says. `flags`: FRT_CHAT_FINAL, or 0 for a text that may go
  // on.
  nlohmann::ordered_json parse(const std::string& text, const nlohmann::ordered_json& tools,
                               const nlohmann::ordered_json& options,
                               uint32_t flags = FRT_CHAT_FINAL) const;
  // How an answer to a prompt with `options` is written (frt_chat_v1::answer_form). Throws
  // FRT_ERR_UNSUPPORTED where the format does not say.
  nlohmann::ordered_json answer_form(const nlohmann::ordered_json& options) const;
  // What the checkpoint says about generation; an empty object if it says nothing.
  nlohmann::ordered_json generation_defaults() const;

  // As frt_tokenizer_v1::encode.
  std::vector<int32_t> encode(std::string_view text, const frt_encode_params& params) const;

  const frt_tokenizer_v1& tokenizer() const;
  const frt_chat_v1& chat() const;

 private:
  frt_model model_;
  std::string name_, sender_;
  std::optional<frt_tokenizer_v1> tokenizer_;
  std::optional<frt_chat_v1> chat_;
};

// Decodes ids one by one and gives out complete characters only.
class TextStream {
 public:
  // `flags`: FRT_DECODE_*.
  TextStream(const TextModel& model, uint32_t flags);
  ~TextStream();
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  std::string push(int32_t id);  // what is complete now
  std::string flush();           // the rest

 private:
  frt_tokenizer_v1 table_;
  std::string sender_;
  frt_text_stream stream_ = nullptr;
};

}  // namespace frt::host
