// SPDX-License-Identifier: Apache-2.0
#include "line_calls.hpp"

#include <frt/error.hpp>
#include <frt/json_reader.hpp>

#include <algorithm>
#include <optional>

namespace acme {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

std::string read_name(frt::JsonReader& json) {
  std::string name;
  json.object([&](const std::string& key) {
    if (key != "function") return json.skip();
    json.object([&](const std::string& part) {
      if (part != "name") return json.skip();
      name = json.string();
    });
  });
  if (name.empty()) json.fail("expected a function with a name");
  return name;
}

// How much of a text without kCallBegin is no beginning of it, whatever follows.
std::size_t certain(std::string_view text) {
  for (std::size_t bytes = std::min(text.size(), kCallBegin.size() - 1); bytes > 0; --bytes) {
    if (text.ends_with(kCallBegin.substr(0, bytes))) return text.size() - bytes;
  }
  return text.size();
}

// Where the call ends that `text` begins with. Strings of its arguments may have kCallEnd in them.
std::size_t call_bytes(std::string_view text) {
  bool in_string = false;
  for (std::size_t at = kCallBegin.size(); at < text.size(); ++at) {
    if (in_string && text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      in_string = !in_string;
    } else if (!in_string && text.substr(at).starts_with(kCallEnd)) {
      return at + kCallEnd.size();
    }
  }
  return kNowhere;
}

std::optional<Call> read_call(std::string_view text, const Tools& tools) {
  text.remove_prefix(kCallBegin.size());
  text.remove_suffix(kCallEnd.size());
  const std::size_t name_bytes = text.find(kCallName);
  if (name_bytes == kNowhere || !tools.has(text.substr(0, name_bytes))) return {};
  const std::string_view arguments = text.substr(name_bytes + kCallName.size());
  try {
    frt::JsonReader json("arguments", arguments);
    if (!json.next_is('{')) return {};
    json.skip();
    json.end();
  } catch (const frt::Error&) {
    return {};
  }
  return Call{std::string(text.substr(0, name_bytes)), std::string(arguments)};
}

}  // namespace

bool Tools::has(std::string_view name) const {
  return any ? !name.empty() : std::find(names.begin(), names.end(), name) != names.end();
}

Tools read_tools(const char* tools) {
  if (!tools) return {true, {}};
  Tools found;
  frt::JsonReader json("tools", tools);
  json.array([&] { found.names.push_back(read_name(json)); });
  json.end();
  return found;
}

Answer read_answer(std::string_view text, const Tools& tools, bool whole) {
  Answer answer;
  while (!text.empty()) {
    const std::size_t begin = text.find(kCallBegin);
    if (begin == kNowhere) {
      answer.content += text.substr(0, whole ? text.size() : certain(text));
      break;
    }
    answer.content += text.substr(0, begin);
    text.remove_prefix(begin);
    const std::size_t bytes = call_bytes(text);
    if (bytes == kNowhere) {
      answer.complete = false;
      if (whole) answer.content += text;
      break;
    }
    std::optional<Call> call = read_call(text.substr(0, bytes), tools);
    if (!call) answer.content += text.substr(0, bytes);
    text.remove_prefix(bytes);
    if (!call) continue;
    answer.calls.push_back(*std::move(call));
    if (text.starts_with('\n')) text.remove_prefix(1);
  }
  return answer;
}

}  // namespace acme
