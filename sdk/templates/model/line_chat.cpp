// SPDX-License-Identifier: Apache-2.0
#include "line_chat.hpp"

#include <frt/error.hpp>
#include <frt/flags.hpp>
#include <frt/json_reader.hpp>
#include <frt/text.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace acme {
namespace {

bool wants_answer(const char* options) {
  bool answer = true;
  if (!options) return answer;
  frt::JsonReader json("options", options);
  json.object([&](const std::string& key) {
    if (key == "add_generation_prompt") {
      answer = json.boolean();
    } else {
      json.skip();
    }
  });
  json.end();
  return answer;
}

void require_json(const char* name, const char* text) {
  if (!text) return;
  frt::JsonReader json(name, text);
  json.skip();
  json.end();
}

void require_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const frt::Utf8Step step = frt::utf8_step(text.substr(at));
    if (step.kind != frt::Utf8Step::kValid) {
      throw frt::Error(FRT_ERR_FORMAT, "the answer is not UTF-8 at byte " + std::to_string(at));
    }
    at += step.bytes;
  }
}

void append_message(frt::JsonReader& json, std::size_t index, std::string& prompt,
                    std::vector<frt_text_range>& plain) {
  const std::string where = "message " + std::to_string(index);
  std::string role;
  std::string content;
  json.object([&](const std::string& key) {
    if (key == "role") {
      role = json.string();
    } else if (key == "content" && json.next_is('"')) {
      content = json.string();
    } else if (key == "content" || key == "tool_calls") {
      throw frt::Error(FRT_ERR_INVALID_ARGUMENT, where + ": only texts can be told to this model");
    } else {
      json.skip();
    }
  });
  if (role != "system" && role != "user" && role != "assistant") {
    throw frt::Error(FRT_ERR_INVALID_ARGUMENT,
                     where + ": the role is '" + role + "', expected system, user or assistant");
  }
  prompt += role + ": ";
  plain.push_back({prompt.size(), prompt.size() + content.size()});
  prompt += content + "<|end|>\n";
}

frt_status render(frt_model, const char* messages, const char* tools, const char* options,
                  frt_sink text, frt_sink plain, void* user, frt_error* error) {
  return frt::guard(error, [&]() -> frt_status {
    // The texts of FRT_ERR_INVALID_ARGUMENT reach the clients of a server (frt/chat.h).
    if (tools) throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "this model knows no tools; give none");
    std::string prompt;
    std::vector<frt_text_range> ranges;
    frt::JsonReader json("messages", messages);
    json.array([&] { append_message(json, ranges.size(), prompt, ranges); });
    json.end();
    if (wants_answer(options)) prompt += "assistant: ";
    const frt_status status = text(user, prompt.data(), prompt.size());
    if (status != FRT_OK || ranges.empty()) return status;
    return plain(user, ranges.data(), ranges.size() * sizeof(frt_text_range));
  });
}

// An answer has no parts: all of it is content, whatever tools and options say.
frt_status parse(frt_model, const char* text, uint64_t bytes, uint32_t flags, const char* tools,
                 const char* options, frt_sink sink, void* user, frt_error* error) {
  return frt::guard(error, [&] {
    frt::require_flags(flags, FRT_CHAT_FINAL, "parse");
    require_json("tools", tools);
    require_json("options", options);
    require_utf8({text, bytes});
    const std::string message = "{\"content\": " + frt::json_string({text, bytes}) +
                                ", \"complete\": " + (flags & FRT_CHAT_FINAL ? "true" : "false") +
                                "}";
    return sink(user, message.data(), message.size());
  });
}

frt_status generation_defaults(frt_model, frt_sink sink, void* user, frt_error*) {
  constexpr std::string_view kDefaults = R"({"temperature": 0, "stop_token_ids": [256]})";
  return sink(user, kDefaults.data(), kDefaults.size());
}

}  // namespace

const frt_chat_v1 kLineChat = {sizeof(frt_chat_v1), 0, render, parse, generation_defaults};

}  // namespace acme
