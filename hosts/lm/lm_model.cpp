// SPDX-License-Identifier: Apache-2.0
// The typed side of the model's tables. Variable-length results arrive through sinks that append
// to a string or a vector; a sink that cannot allocate stops the producer.
#include "lm/lm_model.hpp"

#include <algorithm>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <utility>

namespace frt::host {
namespace {

frt_status append_text(void* user, const void* data, uint64_t bytes) noexcept {
  return guard(nullptr, [&] {
    static_cast<std::string*>(user)->append(static_cast<const char*>(data), bytes);
  });
}

frt_status append_ids(void* user, const void* data, uint64_t bytes) noexcept {
  return guard(nullptr, [&] {
    const auto* ids = static_cast<const int32_t*>(data);
    auto& out = *static_cast<std::vector<int32_t>*>(user);
    out.insert(out.end(), ids, ids + bytes / sizeof(int32_t));
  });
}

frt_status append_prompt_text(void* user, const void* data, uint64_t bytes) noexcept {
  return append_text(&static_cast<ChatPrompt*>(user)->text, data, bytes);
}

frt_status append_prompt_plain(void* user, const void* data, uint64_t bytes) noexcept {
  return guard(nullptr, [&] {
    const auto* ranges = static_cast<const frt_text_range*>(data);
    auto& out = static_cast<ChatPrompt*>(user)->plain;
    out.insert(out.end(), ranges, ranges + bytes / sizeof(frt_text_range));
  });
}

template <class Table>
const Table* extension(const frt_model_v1& table, frt_model model, const char* id) {
  return static_cast<const Table*>(table.extension(model, id));
}

std::string text_or_empty(const io::Json& value) {
  return value.is_null() ? std::string() : io::json_text(value);
}

const char* text_or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

}  // namespace

LmModel::LmModel(const Context& context, const frt_state_v1* states,
                 const frt_capsules_v1* capsules, const frt_model_v1* table, frt_model model,
                 std::string name)
    : context_(context),
      states_(states),
      capsules_(capsules),
      model_(model),
      name_(std::move(name)) {
  role_ = extension<frt_role_lm_v1>(*table, model, FRT_EXT_ROLE_LM);
  if (!role_) {
    throw Error(FRT_ERR_UNSUPPORTED, "model '" + name_ +
                                         "' is no language model (its plugin offers no " +
                                         FRT_EXT_ROLE_LM + "); choose another model");
  }
  tokenizer_ = extension<frt_tokenizer_v1>(*table, model, FRT_EXT_TOKENIZER);
  chat_ = extension<frt_chat_v1>(*table, model, FRT_EXT_CHAT);
  capsule_ = extension<frt_capsule_v1>(*table, model, FRT_EXT_CAPSULE);
  info_.struct_size = sizeof(info_);
  check(role_->info(model_, &info_), "model '" + name_ + "': role info");
}

frt_shape_key LmModel::prefill_key(uint32_t rows) const {
  frt_shape_key key = 0;
  check(role_->prefill_key(model_, rows, &key),
        "model '" + name_ + "': prefill of " + std::to_string(rows) + " tokens");
  return key;
}

frt_shape_key LmModel::decode_key(uint32_t batch, uint32_t& entries) const {
  frt_shape_key key = 0;
  check(role_->decode_key(model_, batch, &key, &entries),
        "model '" + name_ + "': decode of " + std::to_string(batch) + " sequences");
  return key;
}

const frt_capsule_layout* LmModel::capsule_layout() const {
  const frt_capsule_layout* layout = nullptr;
  frt_error error{};
  if (capsule_) check(capsule_->layout(model_, &layout, &error), error);
  return layout;
}

void LmModel::check_ids(std::span<const int32_t> ids, const char* what) const {
  const auto outside = std::find_if(ids.begin(), ids.end(), [&](int32_t id) {
    return id < 0 || static_cast<uint32_t>(id) >= info_.vocabulary;
  });
  if (outside == ids.end()) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(what) + " " +
                                            std::to_string(outside - ids.begin()) + " is id " +
                                            std::to_string(*outside) + "; ids of model '" + name_ +
                                            "' are 0 .. " + std::to_string(info_.vocabulary - 1));
}

void LmModel::clear_slot(uint32_t slot, const Stream& stream) const {
  context_.checked(states_->state_clear(info_.state, slot, stream.handle()), "state_clear");
}

void LmModel::reserve_rows(uint32_t slot, uint64_t first, uint64_t end,
                           const Stream& stream) const {
  context_.checked(states_->state_reserve(info_.state, slot, first, end, stream.handle()),
                   "state_reserve");
}

const frt_tokenizer_v1& LmModel::tokenizer() const {
  if (tokenizer_) return *tokenizer_;
  throw Error(FRT_ERR_UNSUPPORTED, "model '" + name_ +
                                       "' has no tokenizer (its checkpoint has no tokenizer.json);"
                                       " give token ids instead of text");
}

const frt_chat_v1& LmModel::chat() const {
  if (chat_) return *chat_;
  throw Error(FRT_ERR_UNSUPPORTED,
              "model '" + name_ + "' has no chat format; give a plain prompt instead");
}

std::vector<int32_t> LmModel::encode(std::string_view text, const frt_encode_params& params) const {
  std::vector<int32_t> ids;
  frt_error error{};
  const frt_status status =
      tokenizer().encode(model_, text.data(), text.size(), &params, append_ids, &ids, &error);
  if (status == FRT_ERR_OUT_OF_RANGE) {
    throw Error(status, "the prompt is too long for the context of model '" + name_ +
                            "': " + error.message + " or raise the option max_context");
  }
  check(status, error);
  return ids;
}

std::vector<int32_t> LmModel::encode(std::string_view text, uint32_t flags) const {
  return encode(text, {sizeof(frt_encode_params), flags, nullptr, 0, info_.max_context});
}

std::vector<int32_t> LmModel::encode(const ChatPrompt& prompt) const {
  return encode(prompt, info_.max_context);
}

std::vector<int32_t> LmModel::encode(const ChatPrompt& prompt, uint64_t max_tokens) const {
  return encode(prompt.text, {sizeof(frt_encode_params), 0, prompt.plain.data(),
                              prompt.plain.size(), max_tokens});
}

std::string LmModel::decode(std::span<const int32_t> ids, uint32_t flags) const {
  std::string text;
  frt_error error{};
  check(tokenizer().decode(model_, ids.data(), ids.size(), flags, append_text, &text, &error),
        error);
  return text;
}

int32_t LmModel::token_id(const std::string& token) const {
  return tokenizer().token_id(model_, token.c_str());
}

ChatPrompt LmModel::render(const nlohmann::ordered_json& messages,
                           const nlohmann::ordered_json& tools,
                           const nlohmann::ordered_json& options) const {
  const std::string tools_text = text_or_empty(tools);
  const std::string options_text = text_or_empty(options);
  ChatPrompt prompt;
  frt_error error{};
  check(chat().render(model_, io::json_text(messages).c_str(), text_or_null(tools_text),
                      text_or_null(options_text), append_prompt_text, append_prompt_plain, &prompt,
                      &error),
        error);
  return prompt;
}

nlohmann::ordered_json LmModel::parse(const std::string& text, const nlohmann::ordered_json& tools,
                                      const nlohmann::ordered_json& options) const {
  const std::string tools_text = text_or_empty(tools);
  const std::string options_text = text_or_empty(options);
  std::string message;
  frt_error error{};
  check(chat().parse(model_, text.data(), text.size(), FRT_CHAT_FINAL, text_or_null(tools_text),
                     text_or_null(options_text), append_text, &message, &error),
        error);
  return io::parse_json(message, "model '" + name() + "': the parsed answer");
}

nlohmann::ordered_json LmModel::generation_defaults() const {
  if (!chat_) return nlohmann::ordered_json::object();
  std::string text;
  frt_error error{};
  check(chat_->generation_defaults(model_, append_text, &text, &error), error);
  return text.empty() ? io::Json::object()
                      : io::parse_json(text, "model '" + name() + "': generation defaults");
}

TextStream::TextStream(const LmModel& model, uint32_t flags) : table_(model.tokenizer()) {
  frt_error error{};
  check(table_.stream_create(model.handle(), flags, &stream_, &error), error);
}

TextStream::~TextStream() {
  table_.stream_destroy(stream_);
}

std::string TextStream::push(int32_t id) {
  std::string text;
  frt_error error{};
  check(table_.stream_push(stream_, id, append_text, &text, &error), error);
  return text;
}

std::string TextStream::flush() {
  std::string text;
  frt_error error{};
  check(table_.stream_flush(stream_, append_text, &text, &error), error);
  return text;
}

}  // namespace frt::host
