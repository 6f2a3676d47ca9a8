// SPDX-License-Identifier: Apache-2.0
#include "lm/prefix_parting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lm/session.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kContextTokens = 6;  // shown on each side of a difference

// The part of `tokens` around a position, as a quoted string; ids where the model has no tokenizer.
// `before`: of them in front of the position; `cut` where there are more.
struct Around {
  std::span<const int32_t> tokens;
  uint64_t before = 0;
  bool cut_front = false, cut_back = false;
};

Around around(std::span<const int32_t> tokens, uint64_t position) {
  const uint64_t begin = position > kContextTokens ? position - kContextTokens : 0;
  const uint64_t end = std::min<uint64_t>(tokens.size(), position + kContextTokens);
  return {tokens.subspan(begin, end - begin), position - begin, begin > 0, end < tokens.size()};
}

std::string shown(const Around& part, const TextModel& model) {
  if (!model.has_tokenizer()) return fmt::format("[{}]", fmt::join(part.tokens, " "));
  const auto quoted = [&](std::span<const int32_t> tokens) {
    const std::string json =
        Json(model.decode(tokens)).dump(-1, ' ', false, Json::error_handler_t::replace);
    return json.substr(1, json.size() - 2);
  };
  return fmt::format("\"{}{}>>{}{}\"", part.cut_front ? "..." : "",
                     quoted(part.tokens.first(part.before)),
                     quoted(part.tokens.subspan(part.before)), part.cut_back ? "..." : "");
}

std::string difference(const PrefixParting& known, std::span<const int32_t> prompt,
                       const TextModel& model) {
  uint64_t at = known.common, size = known.held;
  const CapsuleContent* nearest = nullptr;
  for (const auto& content : known.capsules) {
    const uint64_t common = common_prefix(content->tokens, prompt);
    if (common <= at) continue;
    at = common;
    size = content->tokens.size();
    nearest = content.get();
  }
  if (at == 0) return {};
  if (at == prompt.size()) {
    return fmt::format("all {} tokens are known, but no boundary before the last was kept", at);
  }
  if (at == size) return {};
  const Around before = nearest
                            ? around(nearest->tokens, at)
                            : Around{known.window, at - known.window_begin, known.window_begin > 0,
                                     known.window_begin + known.window.size() < known.held};
  return fmt::format("first difference at token {}: before {}, now {}", at, shown(before, model),
                     shown(around(prompt, at), model));
}

}  // namespace

std::shared_ptr<const PrefixParting> prefix_parting(
    std::span<const int32_t> prompt, std::span<const int32_t> held,
    std::vector<std::shared_ptr<const CapsuleContent>> capsules) {
  if (held.empty() && capsules.empty()) return nullptr;
  PrefixParting parting;
  parting.common = common_prefix(held, prompt);
  parting.held = held.size();
  parting.capsules = std::move(capsules);
  const Around part = around(held, parting.common);
  parting.window_begin = parting.common - part.before;
  parting.window.assign(part.tokens.begin(), part.tokens.end());
  return std::make_shared<const PrefixParting>(std::move(parting));
}

std::string prefix_reason(const PrefixDecision& decision, std::span<const int32_t> prompt,
                          const TextModel& model) {
  const std::string parting =
      decision.parting ? difference(*decision.parting, prompt, model) : std::string();
  return parting.empty() ? decision.reason : decision.reason + "; " + parting;
}

}  // namespace frt::host
