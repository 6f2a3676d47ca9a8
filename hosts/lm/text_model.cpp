// SPDX-License-Identifier: Apache-2.0
// Variable-length results arrive through sinks that append to a string or a vector; a sink that
// cannot allocate, or gets no whole number of entries, stops the producer.
#include "lm/text_model.hpp"

#include <cstring>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <frt/reading.hpp>
#include <frt/role/contracts.hpp>
#include <utility>

namespace frt::host {
namespace {

// `Entry` is what the container holds.
template <class Entry, class Container>
frt_status append(Container& out, const void* data, uint64_t bytes) noexcept {
  if (bytes == 0) return FRT_OK;
  if (!data || bytes % sizeof(Entry) != 0) return FRT_ERR_INVALID_ARGUMENT;
  return guard(nullptr, [&] {
    const auto* entries = static_cast<const Entry*>(data);
    out.insert(out.end(), entries, entries + bytes / sizeof(Entry));
  });
}

frt_status append_text(void* user, const void* data, uint64_t bytes) noexcept {
  return append<char>(*static_cast<std::string*>(user), data, bytes);
}

frt_status append_ids(void* user, const void* data, uint64_t bytes) noexcept {
  return append<int32_t>(*static_cast<std::vector<int32_t>*>(user), data, bytes);
}

frt_status append_prompt_text(void* user, const void* data, uint64_t bytes) noexcept {
  return append_text(&static_cast<ChatPrompt*>(user)->text, data, bytes);
}

frt_status append_prompt_plain(void* user, const void* data, uint64_t bytes) noexcept {
  return append<frt_text_range>(static_cast<ChatPrompt*>(user)->plain, data, bytes);
}

std::string text_or_empty(const io::Json& value) {
  return value.is_null() ? std::string() : io::json_text(value);
}

const char* text_or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

}  // namespace

TextModel::TextModel(const frt_model_v1& table, frt_model model, std::string name,
                     std::string sender)
    : model_(model),
      name_(std::move(name)),
      sender_(std::move(sender)),
      tokenizer_(find_extension<frt_tokenizer_v1>(table, model, FRT_EXT_TOKENIZER, sender_)),
      chat_(find_extension<frt_chat_v1>(table, model, FRT_EXT_CHAT, sender_)) {}

const frt_tokenizer_v1& TextModel::tokenizer() const {
  if (tokenizer_) return *tokenizer_;
  throw Error(FRT_ERR_UNSUPPORTED, sender_ +
                                       " has no tokenizer for this checkpoint; give token ids "
                                       "instead of text");
}

const frt_chat_v1& TextModel::chat() const {
  if (chat_) return *chat_;
  throw Error(FRT_ERR_UNSUPPORTED,
              sender_ + " has no chat format for this checkpoint; give a plain prompt instead");
}

std::vector<int32_t> TextModel::encode(std::string_view text,
                                       const frt_encode_params& params) const {
  std::vector<int32_t> ids;
  frt_error error{};
  const frt_status status =
      tokenizer().encode(model_, text.data(), text.size(), &params, append_ids, &ids, &error);
  if (status == FRT_ERR_OUT_OF_RANGE) {
    throw Error(status,
                sender_ + ": the prompt is too long for the context: " +
                    std::string(error.message, ::strnlen(error.message, sizeof(error.message))) +
                    "; shorten it, or raise the option max_context");
  }
  check(status, error, sender_);
  return ids;
}

std::vector<int32_t> TextModel::encode_text(std::string_view text, uint32_t flags,
                                            uint64_t max_tokens) const {
  return encode(text, {sizeof(frt_encode_params), flags, nullptr, 0, max_tokens});
}

std::vector<int32_t> TextModel::encode_prompt(const ChatPrompt& prompt, uint64_t max_tokens) const {
  return encode(prompt.text, {sizeof(frt_encode_params), 0, prompt.plain.data(),
                              prompt.plain.size(), max_tokens});
}

std::string TextModel::decode(std::span<const int32_t> ids, uint32_t flags) const {
  std::string text;
  frt_error error{};
  check(tokenizer().decode(model_, ids.data(), ids.size(), flags, append_text, &text, &error),
        error, sender_);
  return text;
}

std::string TextModel::token_bytes(int32_t id, uint32_t& flags) const {
  const frt_tokenizer_v1& table = tokenizer();
  if (!table.token_bytes) {
    throw Error(FRT_ERR_UNSUPPORTED,
                sender_ +
                    " does not say which bytes its tokens stand for, so no form can be forced "
                    "on its answers; its plugin needs frt_tokenizer_v1::token_bytes");
  }
  std::string bytes;
  frt_error error{};
  check(table.token_bytes(model_, id, &flags, append_text, &bytes, &error), error, sender_);
  return bytes;
}

int32_t TextModel::token_id(const std::string& token) const {
  return tokenizer().token_id(model_, token.c_str());
}

ChatPrompt TextModel::render(const nlohmann::ordered_json& messages,
                             const nlohmann::ordered_json& tools,
                             const nlohmann::ordered_json& options) const {
  const std::string tools_text = text_or_empty(tools);
  const std::string options_text = text_or_empty(options);
  ChatPrompt prompt;
  frt_error error{};
  check(chat().render(model_, io::json_text(messages).c_str(), text_or_null(tools_text),
                      text_or_null(options_text), append_prompt_text, append_prompt_plain, &prompt,
                      &error),
        error, sender_);
  return prompt;
}

nlohmann::ordered_json TextModel::parse(const std::string& text,
                                        const nlohmann::ordered_json& tools,
                                        const nlohmann::ordered_json& options,
                                        uint32_t flags) const {
  const std::string tools_text = text_or_empty(tools);
  const std::string options_text = text_or_empty(options);
  std::string message;
  frt_error error{};
  check(chat().parse(model_, text.data(), text.size(), flags, text_or_null(tools_text),
                     text_or_null(options_text), append_text, &message, &error),
        error, sender_);
  return io::parse_json(message, sender_ + ": the parsed answer");
}

nlohmann::ordered_json TextModel::answer_form(const nlohmann::ordered_json& options) const {
  const frt_chat_v1& table = chat();
  if (!table.answer_form) {
    throw Error(FRT_ERR_UNSUPPORTED,
                sender_ +
                    " does not say how its answers are written, so no form can be forced on "
                    "them; its plugin needs frt_chat_v1::answer_form");
  }
  const std::string options_text = text_or_empty(options);
  std::string text;
  frt_error error{};
  check(table.answer_form(model_, text_or_null(options_text), append_text, &text, &error), error,
        sender_);
  return io::parse_json(text, sender_ + ": the form of an answer");
}

nlohmann::ordered_json TextModel::generation_defaults() const {
  if (!chat_) return nlohmann::ordered_json::object();
  std::string text;
  frt_error error{};
  check(chat_->generation_defaults(model_, append_text, &text, &error), error, sender_);
  return text.empty() ? io::Json::object()
                      : io::parse_json(text, sender_ + ": generation defaults");
}

TextStream::TextStream(const TextModel& model, uint32_t flags)
    : table_(model.tokenizer()), sender_(model.sender()) {
  frt_error error{};
  check(table_.stream_create(model.handle(), flags, &stream_, &error), error, sender_);
}

TextStream::~TextStream() {
  table_.stream_destroy(stream_);
}

std::string TextStream::push(int32_t id) {
  std::string text;
  frt_error error{};
  check(table_.stream_push(stream_, id, append_text, &text, &error), error, sender_);
  return text;
}

std::string TextStream::flush() {
  std::string text;
  frt_error error{};
  check(table_.stream_flush(stream_, append_text, &text, &error), error, sender_);
  return text;
}

}  // namespace frt::host
