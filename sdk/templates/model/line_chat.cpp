// SPDX-License-Identifier: Apache-2.0
#include "line_chat.hpp"

#include "line_calls.hpp"

#include <frt/error.hpp>
#include <frt/flags.hpp>
#include <frt/json_reader.hpp>
#include <frt/text.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace acme {
namespace {

// Of the options this format has one: whether the prompt ends where the answer begins.
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

void require_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const frt::Utf8Step step = frt::utf8_step(text.substr(at));
    if (step.kind != frt::Utf8Step::kValid) {
      throw frt::Error(FRT_ERR_FORMAT, "the answer is not UTF-8 at byte " + std::to_string(at));
    }
    at += step.bytes;
  }
}

struct Prompt {
  std::string text;
  std::vector<frt_text_range> plain;

  void add(std::string_view own) { text += own; }
  // What users, tools and models wrote ends no turn.
  void add_plain(std::string_view given) {
    plain.push_back({text.size(), text.size() + given.size()});
    text += given;
  }
};

Call read_given_call(frt::JsonReader& json) {
  Call call;
  json.object([&](const std::string& key) {
    if (key != "function") return json.skip();
    json.object([&](const std::string& part) {
      if (part == "name") {
        call.name = json.string();
      } else if (part == "arguments") {
        call.arguments = json.next_is('"') ? json.string() : std::string(json.value());
      } else {
        json.skip();
      }
    });
  });
  return call;
}

void add_message(frt::JsonReader& json, std::size_t index, Prompt& prompt) {
  const std::string where = "message " + std::to_string(index);
  std::string role;
  std::string content;
  std::vector<Call> calls;
  json.object([&](const std::string& key) {
    if (key == "role") {
      role = json.string();
    } else if (key == "content" && json.next_is('"')) {
      content = json.string();
    } else if (key == "content" && !json.next_is('n')) {  // null: an answer of calls alone
      throw frt::Error(FRT_ERR_INVALID_ARGUMENT, where + ": only texts can be told to this model");
    } else if (key == "tool_calls") {
      json.array([&] { calls.push_back(read_given_call(json)); });
    } else {
      json.skip();
    }
  });
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    throw frt::Error(FRT_ERR_INVALID_ARGUMENT, where + ": the role is '" + role +
                                                   "', expected system, user, assistant or tool");
  }
  prompt.add(role + ": ");
  prompt.add_plain(content);
  for (const Call& call : calls) {
    prompt.add(kCallBegin);
    prompt.add_plain(call.name);
    prompt.add(kCallName);
    prompt.add_plain(call.arguments);
    prompt.add(std::string(kCallEnd) + "\n");
  }
  prompt.add("<|end|>\n");
}

frt_status render(frt_model, const char* messages, const char* tools, const char* options,
                  frt_sink text, frt_sink plain, void* user, frt_error* error) {
  return frt::guard(error, [&]() -> frt_status {
    // The texts of FRT_ERR_INVALID_ARGUMENT reach the clients of a server (frt/chat.h).
    Prompt prompt;
    if (tools && !read_tools(tools).names.empty()) {
      prompt.add("tools: ");
      prompt.add_plain(tools);
      prompt.add("<|end|>\n");
    }
    std::size_t index = 0;
    frt::JsonReader json("messages", messages);
    json.array([&] { add_message(json, index++, prompt); });
    json.end();
    if (wants_answer(options)) prompt.add("assistant: ");
    const frt_status status = text(user, prompt.text.data(), prompt.text.size());
    if (status != FRT_OK || prompt.plain.empty()) return status;
    return plain(user, prompt.plain.data(), prompt.plain.size() * sizeof(frt_text_range));
  });
}

// A host that streams calls this whenever the text has grown by an eighth.
frt_status parse(frt_model, const char* text, uint64_t bytes, uint32_t flags, const char* tools,
                 const char* options, frt_sink sink, void* user, frt_error* error) {
  return frt::guard(error, [&] {
    frt::require_flags(flags, FRT_CHAT_FINAL, "parse");
    wants_answer(options);  // refuses what is none
    require_utf8({text, bytes});
    const bool whole = flags & FRT_CHAT_FINAL;
    const Answer answer = read_answer({text, bytes}, read_tools(tools), whole);
    std::string message =
        "{\"content\": " + frt::json_string(answer.content) + ", \"tool_calls\": [";
    for (const Call& call : answer.calls) {
      if (message.back() != '[') message += ", ";
      message +=
          "{\"type\": \"function\", \"function\": {\"name\": " + frt::json_string(call.name) +
          ", \"arguments\": " + frt::json_string(call.arguments) + "}}";
    }
    message +=
        std::string("], \"complete\": ") + (whole && answer.complete ? "true" : "false") + "}";
    return sink(user, message.data(), message.size());
  });
}

frt_status generation_defaults(frt_model, frt_sink sink, void* user, frt_error*) {
  constexpr std::string_view kDefaults = R"({"temperature": 0, "stop_token_ids": [256]})";
  return sink(user, kDefaults.data(), kDefaults.size());
}

frt_status answer_form(frt_model, const char* options, frt_sink sink, void* user,
                       frt_error* error) {
  return frt::guard(error, [&] {
    wants_answer(options);  // refuses what is none
    const std::string form = "{\"calls\": {\"begin\": [" + frt::json_string(kCallBegin) + ", " +
                             frt::json_string(kCallName) +
                             "], \"end\": " + frt::json_string(kCallEnd) +
                             ", \"separator\": \"\\n\"}}";
    return sink(user, form.data(), form.size());
  });
}

}  // namespace

const frt_chat_v1 kLineChat = {
    sizeof(frt_chat_v1), 0, render, parse, generation_defaults, nullptr, nullptr, nullptr, nullptr,
    answer_form};

}  // namespace acme
