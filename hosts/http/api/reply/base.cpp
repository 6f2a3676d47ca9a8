// SPDX-License-Identifier: Apache-2.0
#include "http/api/reply/base.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace frt::host::api {

ReplyBase::ReplyBase(const ApiCall& call, ReplyIdentity identity)
    : call_(call), identity_(std::move(identity)) {}

void ReplyBase::log_probability(uint32_t choice, ApiTokenProbability token) {
  if (call_.log_probabilities) probabilities_[choice].push_back(std::move(token));
}

bool ReplyBase::admits(const ChatEvent& event) const noexcept {
  if (event.kind == ChatEvent::kReasoning || event.kind == ChatEvent::kText) return true;
  if (call_.tool_choice.mode == ApiToolChoice::kNone) return false;
  return call_.parallel_tool_calls || event.call == 0;
}

ApiTool ReplyBase::tool(const std::string& name) const {
  for (const ApiTool& tool : call_.tool_names) {
    if (tool.name == name) return tool;
  }
  return {.name = name, .client_name = name, .space = {}};
}

std::string ReplyBase::id(std::string_view prefix, uint32_t choice, std::size_t number) const {
  std::string id = std::string(prefix) + identity_.id + "_" + std::to_string(number);
  if (choice > 0) id += "_" + std::to_string(choice);
  return id;
}

std::vector<ApiTokenProbability> ReplyBase::take_probabilities(uint32_t choice) {
  const auto found = probabilities_.find(choice);
  if (found == probabilities_.end()) return {};
  return std::exchange(found->second, {});
}

std::string joined(std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

bool is_cut(Finish finish) noexcept {
  return finish != Finish::kStop;
}

Json completion_usage(const ApiUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.generated_tokens},
          {"total_tokens", usage.prompt_tokens + usage.generated_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

double finite_logarithm(float value) noexcept {
  // OpenAI's word for "not at all likely".
  constexpr double kLeast = -9999;
  return std::isfinite(value) ? std::max(static_cast<double>(value), kLeast) : kLeast;
}

Json probability_list(const std::vector<ApiTokenProbability>& tokens) {
  const auto token_json = [](const std::string& bytes, float value) -> Json {
    Json numbers = Json::array();
    for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
    return {{"token", lossy_text(bytes)},
            {"logprob", finite_logarithm(value)},
            {"bytes", std::move(numbers)}};
  };
  Json list = Json::array();
  for (const ApiTokenProbability& token : tokens) {
    Json entry = token_json(token.bytes, token.log_probability.value_or(0));
    Json& top = entry["top_logprobs"] = Json::array();
    for (const auto& [bytes, value] : token.top) top.push_back(token_json(bytes, value));
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace frt::host::api
