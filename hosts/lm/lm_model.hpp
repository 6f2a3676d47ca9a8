// SPDX-License-Identifier: Apache-2.0
// lm_model.hpp - a language model as a host sees it: the tables of one frt_model, typed.
//
// Wraps the role, tokenizer and chat extensions; owns nothing: the model and its context outlive
// it. Text functions throw FRT_ERR_UNSUPPORTED, naming the model, when the model has no tokenizer
// or no chat format (a synthetic checkpoint, say). All members are [any] unless tagged.
#pragma once

#include <frt/chat.h>
#include <frt/model.h>
#include <frt/role/lm.h>
#include <frt/tokenizer.h>
#include <frt/capsule.hpp>
#include <frt/exec.hpp>

#include <cstdint>
#include <nlohmann/json.hpp>
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

class LmModel {
 public:
  // `name` is the user's name of the model, for messages. Throws FRT_ERR_UNSUPPORTED if the model
  // does not have the role.  [setup]
  LmModel(const Context& context, const frt_state_v1* states, const frt_capsules_v1* capsules,
          const frt_model_v1* table, frt_model model, std::string name);

  const std::string& name() const noexcept { return name_; }
  const Context& context() const noexcept { return context_; }
  const frt_lm_info& info() const noexcept { return info_; }

  // ---- running ----
  frt_shape_key prefill_key(uint32_t rows) const;
  // `entries` becomes the number of entries the variant has.
  frt_shape_key decode_key(uint32_t batch, uint32_t& entries) const;
  // Throws FRT_ERR_INVALID_ARGUMENT for an id outside the vocabulary: "`what` 3 is id 70000".
  void check_ids(std::span<const int32_t> ids, const char* what) const;
  // The verbs on the model's slots.
  Capsules capsules() const { return Capsules(capsules_, context_, info_.state); }
  // What they consist of; null if the model does not say. Lives as long as the model.  [setup]
  const frt_capsule_layout* capsule_layout() const;
  // Makes a slot as new, in order on `stream`.  [hot]
  void clear_slot(uint32_t slot, const Stream& stream) const;
  // Rows [first, end) of a slot may be written by what `stream` gets from now on.  [hot]
  void reserve_rows(uint32_t slot, uint64_t first, uint64_t end, const Stream& stream) const;

  // ---- text ----
  bool has_tokenizer() const noexcept { return tokenizer_ != nullptr; }
  bool has_chat() const noexcept { return chat_ != nullptr; }
  // `flags`: FRT_ENCODE_*. FRT_ERR_OUT_OF_RANGE for more tokens than the context has room for,
  // without the work of counting them.
  std::vector<int32_t> encode(std::string_view text, uint32_t flags = 0) const;
  std::vector<int32_t> encode(const ChatPrompt& prompt) const;
  // With another limit; 0: none.
  std::vector<int32_t> encode(const ChatPrompt& prompt, uint64_t max_tokens) const;
  // `flags`: FRT_DECODE_*.
  std::string decode(std::span<const int32_t> ids, uint32_t flags = 0) const;
  // -1 if there is no such token.
  int32_t token_id(const std::string& token) const;
  // The prompt of a conversation (frt/chat.h); `tools` and `options` may be null.
  ChatPrompt render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                    const nlohmann::ordered_json& options) const;
  // The assistant message that `text` says, which is all that was generated.
  nlohmann::ordered_json parse(const std::string& text, const nlohmann::ordered_json& tools,
                               const nlohmann::ordered_json& options) const;
  // What the checkpoint says about generation; an empty object if it says nothing.
  nlohmann::ordered_json generation_defaults() const;

  const frt_tokenizer_v1& tokenizer() const;
  frt_model handle() const noexcept { return model_; }

 private:
  const frt_chat_v1& chat() const;
  std::vector<int32_t> encode(std::string_view text, const frt_encode_params& params) const;

  Context context_;
  const frt_state_v1* states_;
  const frt_capsules_v1* capsules_;
  frt_model model_;
  std::string name_;
  const frt_role_lm_v1* role_ = nullptr;
  const frt_tokenizer_v1* tokenizer_ = nullptr;
  const frt_chat_v1* chat_ = nullptr;
  const frt_capsule_v1* capsule_ = nullptr;
  frt_lm_info info_{};
};

// Decodes ids one by one and gives out complete characters only.
class TextStream {
 public:
  // `flags`: FRT_DECODE_*.
  TextStream(const LmModel& model, uint32_t flags);
  ~TextStream();
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  std::string push(int32_t id);  // what is complete now
  std::string flush();           // the rest

 private:
  const frt_tokenizer_v1& table_;
  frt_text_stream stream_ = nullptr;
};

}  // namespace frt::host
