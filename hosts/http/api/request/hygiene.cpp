// SPDX-License-Identifier: Apache-2.0
#include "http/api/request/hygiene.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace frt::host::api {

namespace {

constexpr std::string_view kClientLine = "x-anthropic-billing-header:";
constexpr std::string_view kTokensBegin = "<total_tokens>", kTokensEnd = "</total_tokens>";
constexpr std::size_t kLongestCount = 64;
constexpr std::string_view kSpace = " \t\r\n";

// Claude Code begins its first system block with "x-anthropic-billing-header: cc_version=...".
std::string_view without_client_line(std::string_view text) {
  const std::size_t start = text.find_first_not_of(kSpace);
  if (start == text.npos || !text.substr(start).starts_with(kClientLine)) return text;
  const std::size_t end = text.find('\n', start);
  return end == text.npos ? std::string_view() : text.substr(end + 1);
}

std::string note(std::string_view text) {
  if (text.starts_with("<system-reminder>")) return std::string(text);
  return "<system-reminder>\n" + std::string(text) + "\n</system-reminder>";
}

}  // namespace

std::string stable_system_text(std::string_view text) {
  text = without_client_line(text);
  std::string out;
  // "<total_tokens>14999436 tokens left</total_tokens>", with the space before it: the newest one
  // stands at the end, older ones may be left before it.
  for (std::size_t at = text.find(kTokensBegin); at != text.npos; at = text.find(kTokensBegin)) {
    const std::string_view inner = text.substr(at + kTokensBegin.size());
    const std::size_t length = inner.substr(0, kLongestCount + kTokensEnd.size()).find(kTokensEnd);
    if (length == inner.npos) {
      out.append(text.substr(0, at + kTokensBegin.size()));
      text = inner;
      continue;
    }
    const std::size_t last = text.substr(0, at).find_last_not_of(kSpace);
    out.append(text.substr(0, last == text.npos ? 0 : last + 1));
    text = inner.substr(length + kTokensEnd.size());
  }
  return out.append(text);
}

void append_part(std::string& content, std::string_view part) {
  if (part.empty()) return;
  if (!content.empty()) content += '\n';
  content += part;
}

void MessageBuilder::system(std::string_view text) {
  const std::string stable = stable_system_text(text);
  if (stable.find_first_not_of(kSpace) == stable.npos) return;
  if (messages_.empty()) {
    if (has_system_) leading_system_ += "\n\n";
    leading_system_ += stable;
    has_system_ = true;
  } else if (Json& last = messages_.back(); last["role"] == "tool") {
    last["content"].get_ref<std::string&>() += "\n\n" + note(stable);
  } else {
    user(note(stable));
  }
}

void MessageBuilder::user(std::string text) {
  messages_.push_back({{"role", "user"}, {"content", std::move(text)}});
}

void MessageBuilder::begin_assistant() {
  messages_.push_back({{"role", "assistant"}, {"content", ""}});
}

bool MessageBuilder::ends_with_assistant() const {
  return !messages_.empty() && messages_.back()["role"] == "assistant";
}

Json& MessageBuilder::assistant() {
  if (!ends_with_assistant()) begin_assistant();
  return messages_.back();
}

void MessageBuilder::reasoning(std::string_view text) {
  if (text.empty()) return;
  has_reasoning_ = true;
  if (Json& last = assistant(); last["content"] != "" || last.contains("tool_calls")) {
    begin_assistant();
  }
  Json& message = messages_.back();
  if (!message.contains("reasoning_content")) message["reasoning_content"] = "";
  append_part(message["reasoning_content"].get_ref<std::string&>(), text);
}

void MessageBuilder::answer(std::string_view text) {
  if (text.empty()) return;
  if (assistant().contains("tool_calls")) begin_assistant();
  append_part(messages_.back()["content"].get_ref<std::string&>(), text);
}

void MessageBuilder::call(std::string id, std::string name, std::string arguments) {
  Json& message = assistant();
  if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
  message["tool_calls"].push_back(
      {{"id", std::move(id)},
       {"type", "function"},
       {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}});
}

void MessageBuilder::result(std::string call_id, std::string content) {
  messages_.push_back(
      {{"role", "tool"}, {"tool_call_id", std::move(call_id)}, {"content", std::move(content)}});
}

void MessageBuilder::order_results() {
  const auto is_result = [](const Json& message) { return message["role"] == "tool"; };
  auto& messages = messages_.get_ref<Json::array_t&>();
  for (auto at = messages.begin(); at != messages.end(); ++at) {
    const auto calls = at->find("tool_calls");
    if (calls == at->end()) continue;
    std::vector<std::pair<std::string_view, std::size_t>> order;  // sorted by id
    for (const Json& call : *calls) {
      order.emplace_back(call["id"].get_ref<const std::string&>(), order.size());
    }
    std::sort(order.begin(), order.end());
    const auto place = [&](const Json& message) {
      const std::string_view id = message["tool_call_id"].get_ref<const std::string&>();
      const auto found =
          std::lower_bound(order.begin(), order.end(), std::pair(id, std::size_t{0}));
      return found != order.end() && found->first == id ? found->second : order.size();
    };
    const auto end = std::find_if_not(at + 1, messages.end(), is_result);
    std::stable_sort(at + 1, end,
                     [&](const Json& a, const Json& b) { return place(a) < place(b); });
  }
}

Json MessageBuilder::take() {
  order_results();
  Json all = Json::array();
  if (has_system_) {
    all.push_back({{"role", "system"}, {"content", std::move(leading_system_)}});
  }
  for (Json& message : messages_) all.push_back(std::move(message));
  *this = {};
  return all;
}

}  // namespace frt::host::api
