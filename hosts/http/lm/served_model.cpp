// SPDX-License-Identifier: Apache-2.0
#include "http/lm/served_model.hpp"

#include <algorithm>
#include <chrono>
#include <frt/error.hpp>
#include <utility>

#include "http/api/error.hpp"
#include "lm/chat/parting_point.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

std::vector<int32_t> stop_ids_of(const Json& defaults) {
  const auto found = defaults.find("stop_token_ids");
  return found == defaults.end() ? std::vector<int32_t>{} : found->get<std::vector<int32_t>>();
}

uint64_t seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

// Prompts are counted beyond the context, because clients want to know by how much theirs is too
// long, but not to any length: that takes a second for a million tokens.
constexpr uint64_t kCountedContexts = 4, kCountedTokens = 1 << 16;

uint64_t counted_tokens(const ServedModel& served) {
  return std::max(kCountedContexts * served.model.info().max_context, kCountedTokens);
}

// What a format or a tokenizer refuses is the request's fault; anything else is ours.
bool is_refusal(const Error& error) {
  return error.status() == FRT_ERR_UNSUPPORTED || error.status() == FRT_ERR_INVALID_ARGUMENT;
}

// A refusal as a client hears it (the rule is in frt/chat.h): what is wrong with its request, in
// the plugin's words. What the model or its checkpoint cannot do may name files of this machine:
// that is for the log.
ApiError refusal(const ServedModel& served, const char* param, const Error& error) {
  if (error.status() == FRT_ERR_UNSUPPORTED) {
    return ApiError(
               ApiErrorKind::kInvalid,
               "this model cannot read such " + std::string(param) + "; the server's log says why",
               param)
        .set_cause(error.what());
  }
  std::string text = error.what();
  if (const std::string from = served.model.sender() + ": "; text.starts_with(from)) {
    text.erase(0, from.size());  // which plugin it was is no client's business
  }
  return {ApiErrorKind::kInvalid, text, param};
}

template <class Work>
auto blaming(const ServedModel& served, const char* param, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (!is_refusal(error)) throw;
    throw refusal(served, param, error);
  }
}

// `owner`: of a conversation; null: a text, of which nothing is remembered.
std::vector<int32_t> encode(const ServedModel& served, const std::string* owner,
                            const ChatPrompt& prompt) {
  const uint64_t most = counted_tokens(served);
  try {
    return owner ? served.prompts->encode(*owner, prompt, most) : served.model.encode(prompt, most);
  } catch (const Error& error) {
    if (error.status() == FRT_ERR_OUT_OF_RANGE) {
      throw context_length_error(most, served.model.info().max_context, true);
    }
    if (error.status() != FRT_ERR_FORMAT) throw;
    throw Error(FRT_ERR_INVALID_ARGUMENT, error.what());  // a text that no tokenizer could take
  }
}

void require_tokenizer(const ServedModel& served) {
  if (served.model.has_tokenizer()) return;
  throw ApiError(ApiErrorKind::kInvalid, "this model has no tokenizer; send token ids", "model");
}

ChatPrompt render_chat(const ServedModel& served, const ApiCall& call) {
  require_tokenizer(served);
  if (!served.model.has_chat()) {
    throw ApiError(ApiErrorKind::kInvalid, "this model has no chat format", "model");
  }
  try {
    return served.model.render(call.messages, call.tools, call.chat_options);
  } catch (const Error& error) {
    if (!is_refusal(error) || call.tools.is_null()) throw;
    try {
      (void)served.model.render(call.messages, {}, call.chat_options);
    } catch (const Error&) {
      throw error;  // the messages are refused without tools, too
    }
    throw refusal(served, "tools", error);
  }
}

PreparedPrompt prepare_chat(const ServedModel& served, const std::string& owner,
                            const ApiCall& call) {
  PreparedPrompt prepared;
  const ChatPrompt prompt = render_chat(served, call);
  prepared.ids = encode(served, &owner, prompt);
  if (prepared.ids.size() < served.model.info().max_context) {
    prepared.user_turn = parting_point(served.model, call.messages, call.tools, call.chat_options,
                                       prompt, prepared.ids);
  }
  return prepared;
}

PreparedPrompt prepare_text(const ServedModel& served,
                            const std::variant<std::string, std::vector<int32_t>>& prompt) {
  PreparedPrompt prepared;
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
    served.model.check_ids(*ids, "prompt");
    prepared.ids = *ids;
    if (served.model.has_tokenizer()) prepared.text = served.model.decode(*ids);
    return prepared;
  }
  require_tokenizer(served);
  prepared.text = std::get<std::string>(prompt);
  prepared.ids = encode(served, nullptr, {prepared.text, {}});
  return prepared;
}

void check_length(const ServedModel& served, const PreparedPrompt& prompt) {
  if (prompt.ids.empty())
    throw ApiError(ApiErrorKind::kInvalid, "the prompt has no token", "prompt");
  const uint64_t context = served.model.info().max_context;
  if (prompt.ids.size() >= context) throw context_length_error(prompt.ids.size(), context);
}

}  // namespace

struct ServedModel::Grammars {
  std::unique_ptr<GrammarCompiler> compiler;
  std::string obstacle;

  explicit Grammars(const LmModel& model) {
    if (!model.info().mask) {
      obstacle = model.sender() + " takes no masks";
      return;
    }
    try {
      compiler = std::make_unique<GrammarCompiler>(model, model.info().vocabulary);
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_UNSUPPORTED) throw;
      obstacle = error.what();
    }
  }
  explicit Grammars(std::unique_ptr<GrammarCompiler> given) : compiler(std::move(given)) {}
};

ServedModel::ServedModel(const LmModel& given, Engine& engine_of)
    : ServedModel(given, engine_of, Grammars(given)) {}

ServedModel::ServedModel(const LmModel& given, Engine& engine_of,
                         std::unique_ptr<GrammarCompiler> given_grammars)
    : ServedModel(given, engine_of, Grammars(std::move(given_grammars))) {}

ServedModel::ServedModel(const LmModel& given, Engine& engine_of, Grammars given_grammars)
    : model(given),
      engine(engine_of),
      defaults(given.generation_defaults()),
      stop_ids(stop_ids_of(defaults)),
      created(seconds_since_1970()),
      grammars(std::move(given_grammars.compiler)),
      no_grammars(std::move(given_grammars.obstacle)),
      prompts(std::make_unique<PromptMemory>(given)) {}

std::vector<PreparedPrompt> prepare_prompts(const ServedModel& served, const std::string& owner,
                                            const ApiCall& call) {
  std::vector<PreparedPrompt> prompts;
  if (call.kind == ApiCall::Kind::kChat) {
    prompts.push_back(
        blaming(served, "messages", [&] { return prepare_chat(served, owner, call); }));
  }
  for (const auto& prompt : call.prompts) {
    prompts.push_back(blaming(served, "prompt", [&] { return prepare_text(served, prompt); }));
  }
  for (const PreparedPrompt& prompt : prompts) check_length(served, prompt);
  return prompts;
}

std::vector<int32_t> text_ids(const ServedModel& served, const std::string& text) {
  return blaming(served, "content", [&] { return prepare_text(served, text).ids; });
}

std::vector<int32_t> chat_ids(const ServedModel& served, const std::string& owner,
                              const ApiCall& call) {
  return blaming(served, "messages",
                 [&] { return encode(served, &owner, render_chat(served, call)); });
}

std::string chat_text(const ServedModel& served, const ApiCall& call) {
  return blaming(served, "messages", [&] { return render_chat(served, call).text; });
}

std::string text_of_ids(const ServedModel& served, const std::vector<int32_t>& ids) {
  require_tokenizer(served);
  return blaming(served, "tokens", [&] { return served.model.decode(ids); });
}

}  // namespace frt::host
