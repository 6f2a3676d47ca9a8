// SPDX-License-Identifier: Apache-2.0
// Of the tools that both lists have, those moved that are not in a longest common order.
#include "http/lm/tool_memory.hpp"

#include <algorithm>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <functional>

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostNamed = 8;

void append(std::string& text, const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  text += (text.empty() ? "" : ", ") + std::string(what);
  for (std::size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) {
    text += (i == 0 ? " " : ", ") + std::string(io::quote(names[i]));
  }
  if (names.size() > kMostNamed) {
    text += " and " + std::to_string(names.size() - kMostNamed) + " more";
  }
}

// Which of the places, each once, are not in a longest part of them that rises.
std::vector<bool> out_of_order(const std::vector<std::size_t>& places) {
  std::vector<std::size_t> length(places.size(), 1), before(places.size(), places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (places[j] >= places[i] || length[j] < length[i]) continue;
      length[i] = length[j] + 1;
      before[i] = j;
    }
  }
  std::vector<bool> out(places.size(), true);
  if (places.empty()) return out;
  auto at = static_cast<std::size_t>(std::ranges::max_element(length) - length.begin());
  for (; at < places.size(); at = before[at]) out[at] = false;
  return out;
}

}  // namespace

std::string ToolMemory::difference(const Tools& before, const Tools& now) {
  std::vector<std::string> added, removed, moved, changed;
  std::vector<std::size_t> places;  // in `before`, of those that both have
  std::vector<const Tool*> common;
  for (const Tool& tool : now) {
    const auto found = std::ranges::find(before, tool.name, &Tool::name);
    if (found == before.end()) {
      added.push_back(tool.name);
      continue;
    }
    if (found->digest != tool.digest) changed.push_back(tool.name);
    places.push_back(static_cast<std::size_t>(found - before.begin()));
    common.push_back(&tool);
  }
  for (const Tool& tool : before) {
    const bool there = std::ranges::find(now, tool.name, &Tool::name) != now.end();
    if (!there) removed.push_back(tool.name);
  }
  const std::vector<bool> out = out_of_order(places);
  for (std::size_t i = 0; i < common.size(); ++i) {
    if (out[i]) moved.push_back(common[i]->name);
  }
  std::string text;
  append(text, "added", added);
  append(text, "removed", removed);
  append(text, "moved", moved);
  append(text, "changed", changed);
  return text;
}

std::string ToolMemory::compare(const std::string& owner, const std::string& session,
                                const Json& tools) {
  Tools now;
  for (const Json& tool : tools) {
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    now.push_back({function.value("name", std::string()),
                   std::hash<std::string>()(io::json_text(tool, {.bad = io::BadUtf8::kReplace}))});
  }
  const std::lock_guard lock(mutex_);
  const auto [found, first] = known_.try_emplace({owner, session});
  Known& known = found->second;
  known.used = ++clock_;
  std::string text = first ? std::string() : difference(known.tools, now);
  known.tools = std::move(now);
  if (known_.size() > kMost) {
    known_.erase(
        std::ranges::min_element(known_, {}, [](const auto& each) { return each.second.used; }));
  }
  return text;
}

}  // namespace frt::host
