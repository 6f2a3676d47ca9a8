// SPDX-License-Identifier: Apache-2.0
// Rendering. One turn is "<|im_start|>ROLE\nCONTENT<|im_end|>\n", contents trimmed as Python's
// str.strip() does. The system turn lists the tools as JSON lines, then fixed instructions, then
// the system message. A run of tool messages is one user turn of <tool_response> blocks. Assistant
// turns after the last real question keep their reasoning in <think>; earlier ones lose it unless
// preserve_thinking is set. "Real" excludes user messages that only wrap a tool response.
#include "chat_format.hpp"

#include <frt/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace frt::qwen36 {

using models::Json;

namespace {

constexpr std::string_view kToolsBefore =
    "# Tools\n\nYou have access to the following functions:\n\n<tools>";
constexpr std::string_view kToolsAfter =
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO "
    "suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
    "value_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second "
    "parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner "
    "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n- You may provide optional reasoning for your "
    "function call in natural language BEFORE the function call, but NOT after\n- If there is no "
    "function call available, answer the question like normal with your current knowledge and do "
    "not tell the user about function calls\n</IMPORTANT>";

[[noreturn]] void refuse(std::size_t index, const std::string& what) {
  throw Error(FRT_ERR_INVALID_ARGUMENT, "message " + std::to_string(index) + ": " + what);
}

// The length of the white space character (as Python sees it) at the start of `text`; 0 if none.
std::size_t leading_space(std::string_view text) {
  static constexpr std::array<std::string_view, 20> kWide = {
      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",
      "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
      "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", " "};
  if (text.empty()) return 0;
  const auto byte = static_cast<unsigned char>(text[0]);
  if ((byte >= 0x09 && byte <= 0x0d) || (byte >= 0x1c && byte <= 0x1f)) return 1;
  for (const std::string_view space : kWide) {
    if (text.starts_with(space)) return space.size();
  }
  return 0;
}

std::string_view trim(std::string_view text) {
  while (const std::size_t length = leading_space(text)) text.remove_prefix(length);
  for (bool found = true; found && !text.empty();) {
    found = false;
    for (std::size_t length = 1; length <= 3 && length <= text.size(); ++length) {
      if (leading_space(text.substr(text.size() - length)) == length) {
        text.remove_suffix(length);
        found = true;
        break;
      }
    }
  }
  return text;
}

std::string_view strip_newlines_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view strip_newlines_right(std::string_view text) {
  const std::size_t last = text.find_last_not_of('\n');
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// Turns contents into text and counts images and videos over the conversation.
class ContentReader {
 public:
  ContentReader(const ChatOptions& options, Vision vision) : options_(options), vision_(vision) {}

  std::string text(const Json& message, std::size_t index, bool count) {
    const auto found = message.find("content");
    if (found == message.end() || found->is_null()) return {};
    if (found->is_string()) return found->get<std::string>();
    if (!found->is_array()) refuse(index, "content must be text or a list of parts");
    std::string text;
    for (const Json& part : *found) text += part_text(part, message, index, count);
    return text;
  }

 private:
  std::string part_text(const Json& part, const Json& message, std::size_t index, bool count) {
    if (!part.is_object()) refuse(index, "a part of its content is no object");
    const std::string type = part.value("type", std::string());
    if (type == "image" || part.contains("image") || part.contains("image_url")) {
      return vision_part(message, index, count, "Picture ", images_, "<|image_pad|>");
    }
    if (type == "video" || part.contains("video")) {
      return vision_part(message, index, count, "Video ", videos_, "<|video_pad|>");
    }
    const auto text = part.find("text");
    if (text == part.end() || !text->is_string()) {
      refuse(index, "a part of its content is neither text nor image nor video");
    }
    return text->get<std::string>();
  }

  std::string vision_part(const Json& message, std::size_t index, bool count, const char* label,
                          int& counter, const char* pad) {
    if (vision_ == Vision::kRefuse) {
      throw Error(FRT_ERR_UNSUPPORTED,
                  "message " + std::to_string(index) +
                      " has an image or video; this model plugin takes text only: remove it");
    }
    if (message.value("role", std::string()) == "system") {
      refuse(index, "a system message takes text only");
    }
    if (count) ++counter;
    const std::string name =
        options_.add_vision_id ? label + std::to_string(counter) + ": " : std::string();
    return name + "<|vision_start|>" + pad + "<|vision_end|>";
  }

  const ChatOptions& options_;
  Vision vision_;
  int images_ = 0, videos_ = 0;
};

std::string role_of(const Json& message, std::size_t index) {
  if (!message.is_object()) refuse(index, "it is no object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) refuse(index, "it has no role");
  return role->get<std::string>();
}

void check_tools(const Json& tools) {
  if (!tools.is_null() && !tools.is_array()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "tools must be a list of function descriptions");
  }
}

// One call: {"function": {"name", "arguments"}} or the inner object alone.
std::string render_call(const Json& entry, std::size_t index) {
  const auto inner = entry.find("function");
  const Json& call = inner != entry.end() ? *inner : entry;
  const auto name = call.find("name");
  if (name == call.end() || !name->is_string()) refuse(index, "a tool call has no name");
  std::string text = "<tool_call>\n<function=" + name->get<std::string>() + ">\n";
  Json arguments = call.value("arguments", Json());
  if (arguments.is_string()) {
    const std::string raw = arguments.get<std::string>();
    arguments = trim(raw).empty() ? Json()
                                  : models::parse_json(raw, "arguments of a tool call in message " +
                                                                std::to_string(index));
  }
  if (!arguments.is_null() && !arguments.is_object()) {
    refuse(index, "the arguments of a tool call must be an object");
  }
  for (const auto& [key, value] : arguments.items()) {
    text += "<parameter=" + key + ">\n" +
            (value.is_string() ? value.get<std::string>() : models::python_json(value)) +
            "\n</parameter>\n";
  }
  return text + "</function>\n</tool_call>";
}

std::string render_assistant(const Json& message, std::size_t index, std::string content,
                             bool keep_reasoning) {
  std::string reasoning;
  const auto field = message.find("reasoning_content");
  if (field != message.end() && field->is_string()) {
    reasoning = field->get<std::string>();
  } else if (const std::size_t end = content.find("</think>"); end != std::string::npos) {
    std::string_view before = strip_newlines_right(std::string_view(content).substr(0, end));
    const std::size_t open = before.rfind("<think>");
    if (open != std::string_view::npos) before.remove_prefix(open + 7);
    reasoning = strip_newlines_left(before);
    content = strip_newlines_left(std::string_view(content).substr(content.rfind("</think>") + 8));
  }
  std::string text = "<|im_start|>assistant\n";
  if (keep_reasoning) text += "<think>\n" + std::string(trim(reasoning)) + "\n</think>\n\n";
  text += content;
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && !calls->is_null()) {
    if (!calls->is_array()) refuse(index, "tool_calls must be a list");
    bool first = true;
    for (const Json& call : *calls) {
      if (!call.is_object()) refuse(index, "a tool call is no object");
      if (!first) {
        text += "\n";
      } else if (!trim(content).empty()) {
        text += "\n\n";
      }
      text += render_call(call, index);
      first = false;
    }
  }
  return text + "<|im_end|>\n";
}

}  // namespace

ChatOptions read_chat_options(const Json& options) {
  ChatOptions result;
  if (options.is_null()) return result;
  if (!options.is_object()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "chat options must be an object");
  }
  const std::array<std::pair<std::string_view, bool*>, 4> known = {
      {{"add_generation_prompt", &result.add_generation_prompt},
       {"enable_thinking", &result.enable_thinking},
       {"preserve_thinking", &result.preserve_thinking},
       {"add_vision_id", &result.add_vision_id}}};
  for (const auto& [key, value] : options.items()) {
    bool* target = nullptr;
    for (const auto& [name, member] : known) {
      if (name == key) target = member;
    }
    if (!target) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "unknown chat option '" + key +
                      "'; known: add_generation_prompt, enable_thinking, preserve_thinking, "
                      "add_vision_id");
    }
    if (!value.is_boolean()) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "chat option '" + key + "' must be true or false");
    }
    *target = value.get<bool>();
  }
  return result;
}

std::string render_chat(const Json& messages, const Json& tools, const ChatOptions& options,
                        Vision vision) {
  if (!messages.is_array() || messages.empty()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "there are no messages; give at least one of the user");
  }
  check_tools(tools);
  ContentReader reader(options, vision);
  std::string prompt;

  const bool has_system = role_of(messages[0], 0) == "system";
  const std::string rules(has_system ? std::string(trim(reader.text(messages[0], 0, false)))
                                     : std::string());
  if (!tools.is_null() && !tools.empty()) {
    prompt += "<|im_start|>system\n";
    prompt += kToolsBefore;
    for (const Json& tool : tools) prompt += "\n" + models::python_json(tool);
    prompt += kToolsAfter;
    if (!rules.empty()) prompt += "\n\n" + rules;
    prompt += "<|im_end|>\n";
  } else if (has_system) {
    prompt += "<|im_start|>system\n" + rules + "<|im_end|>\n";
  }

  std::optional<std::size_t> last_query;
  for (std::size_t i = messages.size(); i-- > 0 && !last_query;) {
    if (role_of(messages[i], i) != "user") continue;
    const std::string raw = reader.text(messages[i], i, false);
    const std::string_view asked = trim(raw);
    if (!asked.starts_with("<tool_response>") || !asked.ends_with("</tool_response>")) {
      last_query = i;
    }
  }
  if (!last_query) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "no message of the user asks anything; add one with role \"user\"");
  }

  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string role = role_of(messages[i], i);
    std::string content(trim(reader.text(messages[i], i, true)));
    if (role == "system") {
      if (i != 0) refuse(i, "a system message must come first");
    } else if (role == "user") {
      prompt += "<|im_start|>user\n" + content + "<|im_end|>\n";
    } else if (role == "assistant") {
      prompt += render_assistant(messages[i], i, std::move(content),
                                 i > *last_query || options.preserve_thinking);
    } else if (role == "tool") {
      if (i > 0 && role_of(messages[i - 1], i - 1) != "tool") prompt += "<|im_start|>user";
      prompt += "\n<tool_response>\n" + content + "\n</tool_response>";
      if (i + 1 == messages.size() || role_of(messages[i + 1], i + 1) != "tool") {
        prompt += "<|im_end|>\n";
      }
    } else {
      refuse(i, "unknown role '" + role + "'; known: system, user, assistant, tool");
    }
  }
  if (options.add_generation_prompt) {
    prompt += "<|im_start|>assistant\n<think>\n";
    if (!options.enable_thinking) prompt += "\n</think>\n\n";
  }
  return prompt;
}

}  // namespace frt::qwen36
