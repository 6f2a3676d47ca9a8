// SPDX-License-Identifier: Apache-2.0
// A demanded call comes alone, behind the reasoning that the model begins with. Beside tools that
// it may call, a format lets it do either. Calls that nothing demands are held to their schemas
// only where a tool is strict.
#include "http/lm/answer_grammar.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

bool demands_format(const ApiCall& call) {
  return !call.response_format.is_null() && !call.demands_call();
}

bool may_call(const ApiCall& call) {
  return !call.tool_names.empty() && call.tool_choice.mode != ApiToolChoice::kNone;
}

std::string field_of(const ApiCall& call) {
  if (demands_format(call)) return call.response_format_field;
  return call.demands_call() ? "tool_choice" : "tools";
}

GrammarPart format_part(const Json& format) {
  const std::string type = format.at("type");
  if (type == "json_object") return GrammarPart::json_object();
  if (type == "json_schema") return GrammarPart::json_schema(format.at("schema"));
  if (type == "regex") return GrammarPart::regex(format.at("pattern"));
  if (type == "grammar") return GrammarPart::ebnf(format.at("grammar"));
  return GrammarPart::one_of(format.at("choices").get<std::vector<std::string>>());
}

std::vector<GrammarTool> tools_of(const ApiCall& call) {
  std::vector<GrammarTool> tools;
  for (std::size_t i = 0; i < call.tool_names.size(); ++i) {
    const ApiTool& tool = call.tool_names[i];
    const bool named = call.tool_choice.mode == ApiToolChoice::kNamed;
    if (named && tool.name != call.tool_choice.name) continue;
    const Json& function = call.tools[i].at("function");
    tools.push_back({tool.name, function.value("parameters", Json()), tool.strict});
  }
  return tools;
}

const Json& calls_form(const ApiCall& call, const Json& answer) {
  const auto found = answer.find("calls");
  if (found != answer.end()) return *found;
  throw ApiError(ApiErrorKind::kInvalid,
                 "the conversation format of this model has no tool calls, so none can be demanded",
                 field_of(call));
}

std::optional<GrammarPart> part_of(const ApiCall& call, const Json& answer) {
  const bool several = call.parallel_tool_calls;
  if (call.demands_call()) {
    return GrammarPart::calls(calls_form(call, answer), tools_of(call), several);
  }
  if (!call.response_format.is_null()) {
    GrammarPart part = format_part(call.response_format);
    if (!may_call(call) || !answer.contains("calls")) return part;
    return GrammarPart::either(std::move(part),
                               GrammarPart::calls(answer["calls"], tools_of(call), several));
  }
  const bool strict = std::ranges::any_of(call.tool_names, &ApiTool::strict);
  if (!strict || !may_call(call)) return {};
  return GrammarPart::text_with_calls(calls_form(call, answer), tools_of(call), several);
}

bool demands_nothing(const ApiCall& call) {
  const bool strict = std::ranges::any_of(call.tool_names, &ApiTool::strict);
  return call.response_format.is_null() && !call.demands_call() && !(strict && may_call(call));
}

}  // namespace

ApiError grammar_error(const ApiCall& call, const std::string& message) {
  const std::string field = field_of(call);
  return {ApiErrorKind::kInvalid, field + ": " + message, field};
}

std::shared_ptr<const GrammarTicket> answer_grammar(const ServedModel& served, const ApiCall& call,
                                                    const std::string& owner) {
  if (demands_nothing(call)) return nullptr;
  const bool demanded = demands_format(call) || call.demands_call();
  if (!served.grammars) {
    if (!demanded) return nullptr;  // strict tools are called as others are
    ApiError error(ApiErrorKind::kInvalid,
                   has_grammar_backend()
                       ? "no form can be forced on the answers of this model; the server's log "
                         "says why"
                       : "structured output and demanded calls are not built into this server; "
                         "tools/setup-xgrammar adds them",
                   field_of(call));
    throw error.set_cause(served.no_grammars);
  }
  try {
    Json answer;
    if (call.kind == ApiCall::Kind::kChat) answer = served.model.answer_form(call.chat_options);
    const auto part = part_of(call, answer);
    return served.grammars->compile(part->source(answer), owner);
  } catch (const Error& error) {
    switch (error.status()) {
      case FRT_ERR_INVALID_ARGUMENT:
        throw grammar_error(call, error.what());
      case FRT_ERR_NOT_READY:
        throw ApiError(ApiErrorKind::kRateLimit, "too many grammars are compiled; try again later");
      case FRT_ERR_UNSUPPORTED: {
        if (!demanded) return nullptr;
        ApiError refusal(ApiErrorKind::kInvalid,
                         "no form can be forced on the answers of this model; the server's log "
                         "says why",
                         field_of(call));
        throw refusal.set_cause(error.what());
      }
      default:
        throw;
    }
  }
}

}  // namespace frt::host
