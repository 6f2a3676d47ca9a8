// SPDX-License-Identifier: Apache-2.0
#include "script.hpp"

#include <frt/error.hpp>
#include <frt/models/json.hpp>

#include <algorithm>
#include <cmath>

namespace scripted {

using frt::Error;
using frt::io::Json;

namespace {

constexpr std::string_view kAnswer = "assistant\n", kUser = "user\n", kSystem = "system\n";
constexpr std::string_view kThinking = "<think>\n", kNoThinking = "<think>\n\n</think>\n\n";
constexpr std::string_view kToolList = "# Tools\n";
constexpr uint64_t kMostMicroseconds = 3'600'000'000;

// ---- reading the script --------------------------------------------------------------------

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(FRT_ERR_FORMAT, where + ": " + what + "; see tests/scripted/script.hpp");
}

void require_keys(const Json& object, const std::string& where,
                  std::initializer_list<std::string_view> known) {
  if (!object.is_object()) refuse(where, "expected an object");
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      refuse(where, "unknown key '" + key + "'");
    }
  }
}

std::string text_of(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  if (!found->is_string()) refuse(where, std::string(key) + " must be a text");
  return found->get<std::string>();
}

std::optional<bool> truth_of(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (!found->is_boolean()) refuse(where, std::string(key) + " must be true or false");
  return found->get<bool>();
}

std::optional<uint64_t> count_of(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (!found->is_number_unsigned()) refuse(where, std::string(key) + " must be a whole number");
  return found->get<uint64_t>();
}

uint64_t delay_of(const Json& object, const std::string& where, uint64_t missing) {
  const uint64_t delay = count_of(object, "token_delay_us", where).value_or(missing);
  if (delay > kMostMicroseconds) refuse(where, "token_delay_us must be at most an hour");
  return delay;
}

std::string call_text(const Json& call, const std::string& where) {
  require_keys(call, where, {"name", "arguments"});
  std::string text = "<tool_call>\n<function=" + text_of(call, "name", where) + ">\n";
  const Json arguments = call.value("arguments", Json::object());
  if (!arguments.is_object()) refuse(where, "arguments must be an object");
  for (const auto& [key, value] : arguments.items()) {
    text += "<parameter=" + key + ">\n" +
            (value.is_string() ? value.get<std::string>() : frt::models::python_json(value)) +
            "\n</parameter>\n";
  }
  return text + "</function>\n</tool_call>";
}

// ---- reading the prompt --------------------------------------------------------------------

std::string text_of(std::span<const int32_t> ids) {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 256) text += static_cast<char>(id);
  }
  return text;
}

bool starts(std::span<const int32_t> ids, std::string_view text) {
  return ids.size() >= text.size() &&
         std::equal(text.begin(), text.end(), ids.begin(), [](char letter, int32_t id) {
           return id == static_cast<unsigned char>(letter);
         });
}

std::span<const int32_t> behind(std::span<const int32_t> ids, int32_t token) {
  const auto found = std::find(ids.rbegin(), ids.rend(), token);
  return ids.subspan(static_cast<std::size_t>(ids.rend() - found));
}

}  // namespace

struct Script::Asked {
  std::span<const int32_t> prompt;
  std::string last;      // message of the user or a tool
  uint64_t turn = 0;     // assistant messages before
  uint64_t written = 0;  // tokens of the reply that are there
  bool tools = false, thinking = false, answers = true;
};

Script::Script(const std::string& text, uint64_t token_delay_us) : token_delay_us_(token_delay_us) {
  if (text.empty()) return;
  const bool is_json = text.starts_with('{');
  const std::string name = is_json ? "script" : text;
  const Json script = is_json ? frt::io::parse_json(text, name) : frt::io::read_json_file(text);
  require_keys(script, name, {"replies"});
  const Json replies = script.value("replies", Json::array());
  if (!replies.is_array()) refuse(name, "replies must be a list");
  for (std::size_t i = 0; i < replies.size(); ++i) {
    add(replies[i], name + ": reply " + std::to_string(i), token_delay_us);
  }
}

void Script::add(const Json& entry, const std::string& where, uint64_t token_delay_us) {
  require_keys(
      entry, where,
      {"when", "reasoning", "content", "calls", "raw", "endless", "token_delay_us", "fault"});
  Reply& reply = replies_.emplace_back();
  if (const auto when = entry.find("when"); when != entry.end()) {
    require_keys(*when, where, {"last", "prompt", "turn", "tools", "thinking"});
    reply.last = text_of(*when, "last", where);
    reply.prompt = text_of(*when, "prompt", where);
    reply.turn = count_of(*when, "turn", where);
    reply.tools = truth_of(*when, "tools", where);
    reply.thinking = truth_of(*when, "thinking", where);
  }
  if (entry.contains("raw")) {
    if (entry.contains("reasoning") || entry.contains("content") || entry.contains("calls")) {
      refuse(where, "raw stands alone");
    }
    reply.without = reply.with_reasoning = text_of(entry, "raw", where);
  } else {
    reply.without = text_of(entry, "content", where);
    const Json calls = entry.value("calls", Json::array());
    if (!calls.is_array()) refuse(where, "calls must be a list");
    for (const Json& call : calls) {
      reply.without += (reply.without.empty() ? "" : "\n\n") + call_text(call, where);
    }
    reply.with_reasoning = text_of(entry, "reasoning", where) + "\n</think>\n\n" + reply.without;
  }
  reply.endless = truth_of(entry, "endless", where).value_or(false);
  if (reply.endless && reply.without.empty()) refuse(where, "an endless reply needs a text");
  reply.delay_us = delay_of(entry, where, token_delay_us);
  if (const auto fault = entry.find("fault"); fault != entry.end()) {
    require_keys(*fault, where, {"kind", "after", "seconds", "times"});
    const std::string kind = text_of(*fault, "kind", where);
    reply.fault_after = count_of(*fault, "after", where).value_or(0);
    reply.fault_times = count_of(*fault, "times", where).value_or(UINT64_MAX);
    const Json seconds = fault->value("seconds", Json(0));
    const bool stalls = kind == "stall" && seconds.is_number() && seconds > 0 && seconds <= 3600;
    if (reply.fault_after == 0) refuse(where, "a fault needs after: 1 or more");
    if (!stalls && (kind != "error" || fault->contains("seconds"))) {
      refuse(where, "a fault is {\"kind\": \"error\"}, or \"stall\" with seconds up to 3600");
    }
    reply.stall_us = static_cast<uint64_t>(std::llround(seconds.get<double>() * 1e6));
  }
}

Script::Asked Script::read_prompt(std::span<const int32_t> history, std::size_t prompt) {
  Asked asked;
  const std::span<const int32_t> tail = behind(history, kTurnStart);
  if (tail.size() == history.size()) {  // no conversation
    asked.prompt = history.first(std::min(prompt, history.size()));
    asked.last = text_of(asked.prompt);
    asked.written = history.size() - asked.prompt.size();
    return asked;
  }
  if (!starts(tail, kAnswer)) {  // a prompt that goes on
    asked.answers = false;
    return asked;
  }
  std::span<const int32_t> reply = tail.subspan(kAnswer.size());
  if (starts(reply, kNoThinking)) {
    reply = reply.subspan(kNoThinking.size());
  } else if (starts(reply, kThinking)) {
    reply = reply.subspan(kThinking.size());
    asked.thinking = true;
  }
  asked.written = reply.size();
  asked.prompt = history.first(history.size() - reply.size());
  std::span<const int32_t> last;
  for (std::size_t at = 0; at < asked.prompt.size(); ++at) {
    if (asked.prompt[at] != kTurnStart) continue;
    const std::span<const int32_t> turn = asked.prompt.subspan(at + 1);
    if (starts(turn, kUser)) last = turn.subspan(kUser.size());
    asked.turn += starts(turn, kAnswer);
    asked.tools =
        asked.tools || (starts(turn, kSystem) && starts(turn.subspan(kSystem.size()), kToolList));
  }
  --asked.turn;  // the one that is being written
  asked.last = text_of(last.first(
      static_cast<std::size_t>(std::find(last.begin(), last.end(), kTurnEnd) - last.begin())));
  return asked;
}

const Script::Reply* Script::find(const Asked& asked) const {
  std::string prompt;
  for (const Reply& reply : replies_) {
    if (reply.turn && *reply.turn != asked.turn) continue;
    if (reply.tools && *reply.tools != asked.tools) continue;
    if (reply.thinking && *reply.thinking != asked.thinking) continue;
    if (asked.last.find(reply.last) == std::string::npos) continue;
    if (!reply.prompt.empty() && prompt.empty()) prompt = text_of(asked.prompt);
    if (prompt.find(reply.prompt) == std::string::npos) continue;
    return &reply;
  }
  return nullptr;
}

Next Script::next(std::span<const int32_t> history, std::size_t prompt, bool generated) const {
  const Asked asked = read_prompt(history, prompt);
  if (!asked.answers) return {};
  if (!history.empty() && history.back() == kTurnEnd && asked.written > 0) return {};
  const Reply* reply = find(asked);
  Next next;
  next.delay_us = reply ? reply->delay_us : token_delay_us_;
  std::string echo;
  if (!reply) echo = (asked.thinking ? "\n</think>\n\n" : "") + ("echo: " + asked.last);
  const std::string& text = !reply ? echo : asked.thinking ? reply->with_reasoning : reply->without;
  uint64_t at = asked.written;
  if (reply && reply->endless && at >= text.size()) {
    const uint64_t again = reply->without.size();  // reasoning is not said again
    at = text.size() - again + (at - text.size()) % again;
  }
  next.token = at < text.size() ? static_cast<unsigned char>(text[at]) : kTurnEnd;
  if (generated && reply && reply->fault_after == asked.written && asked.written > 0 &&
      reply->struck.fetch_add(1) < reply->fault_times) {
    next.stalls = reply->stall_us > 0;
    next.fails = !next.stalls;
    next.delay_us += reply->stall_us;
  }
  return next;
}

}  // namespace scripted
