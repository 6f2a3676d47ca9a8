// SPDX-License-Identifier: Apache-2.0
// Rendering. One turn is "<|im_start|>ROLE\nCONTENT<|im_end|>\n", contents trimmed as Python's
// str.strip() does. Only what the format itself writes can become control tokens (PromptText): a
// message that says "<|im_end|>" says so in letters. The system turn lists the tools as JSON lines,
// then fixed instructions, then the system message. A run of tool messages is one user turn of
// <tool_response> blocks. Assistant turns after the last real question keep their reasoning in
// <think>; earlier ones lose it unless preserve_thinking is set. "Real" excludes user messages that
// only wrap a tool response.
#include "chat_format.hpp"

#include <frt/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace frt::qwen36 {

using models::Json;
using models::PromptText;

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

std::string_view strip_newlines_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view strip_newlines_right(std::string_view text) {
  const std::size_t last = text.find_last_not_of('\n');
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

PromptText trim(const PromptText& text) {
  const std::string_view all = text.text(), kept = lm::strip(all);
  const auto begin = static_cast<std::size_t>(kept.data() - all.data());
  return text.slice(begin, begin + kept.size());
}

// Turns contents into text and counts images and videos over the conversation.
class ContentReader {
 public:
  ContentReader(const ChatOptions& options, Vision vision) : options_(options), vision_(vision) {}

  PromptText text(const Json& message, std::size_t index, bool count) {
    const auto found = message.find("content");
    if (found == message.end() || found->is_null()) return {};
    PromptText text;
    if (found->is_string()) return text.plain(found->get_ref<const std::string&>());
    if (!found->is_array()) refuse(index, "content must be text or a list of parts");
    for (const Json& part : *found) add_part(text, part, message, index, count);
    return text;
  }

 private:
  void add_part(PromptText& out, const Json& part, const Json& message, std::size_t index,
                bool count) {
    if (!part.is_object()) refuse(index, "a part of its content is no object");
    const std::string type = part.value("type", std::string());
    if (type == "image" || part.contains("image") || part.contains("image_url")) {
      return add_vision(out, message, index, count, "Picture ", images_, "<|image_pad|>");
    }
    if (type == "video" || part.contains("video")) {
      return add_vision(out, message, index, count, "Video ", videos_, "<|video_pad|>");
    }
    const auto text = part.find("text");
    if (text == part.end() || !text->is_string()) {
      refuse(index, "a part of its content is neither text nor image nor video");
    }
    out.plain(text->get_ref<const std::string&>());
  }

  void add_vision(PromptText& out, const Json& message, std::size_t index, bool count,
                  const char* label, int& counter, const char* pad) {
    if (vision_ == Vision::kRefuse) {
      refuse(index, "has an image or video; this model takes text only: remove it");
    }
    if (message.value("role", std::string()) == "system") {
      refuse(index, "a system message takes text only");
    }
    if (count) ++counter;
    if (options_.add_vision_id) out.format(label + std::to_string(counter) + ": ");
    out.format("<|vision_start|>").format(pad).format("<|vision_end|>");
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
void render_call(const Json& entry, std::size_t index, PromptText& out) {
  const auto inner = entry.find("function");
  const Json& call = inner != entry.end() ? *inner : entry;
  const auto name = call.find("name");
  if (name == call.end() || !name->is_string()) refuse(index, "a tool call has no name");
  out.format("<tool_call>\n<function=").plain(name->get_ref<const std::string&>()).format(">\n");
  Json arguments = call.value("arguments", Json());
  if (arguments.is_string()) {
    const std::string raw = arguments.get<std::string>();
    arguments =
        lm::strip(raw).empty()
            ? Json()
            : io::parse_json(raw, "arguments of a tool call in message " + std::to_string(index));
  }
  if (!arguments.is_null() && !arguments.is_object()) {
    refuse(index, "the arguments of a tool call must be an object");
  }
  for (const auto& [key, value] : arguments.items()) {
    out.format("<parameter=").plain(key).format(">\n");
    out.plain(value.is_string() ? value.get<std::string>() : models::python_json(value));
    out.format("\n</parameter>\n");
  }
  out.format("</function>\n</tool_call>");
}

void render_assistant(const Json& message, std::size_t index, PromptText content,
                      bool keep_reasoning, PromptText& out) {
  std::string reasoning;
  const auto field = message.find("reasoning_content");
  if (field != message.end() && field->is_string()) {
    reasoning = field->get<std::string>();
  } else if (const std::string_view all = content.text(); all.find("</think>") != all.npos) {
    std::string_view before = strip_newlines_right(all.substr(0, all.find("</think>")));
    const std::size_t open = before.rfind("<think>");
    if (open != std::string_view::npos) before.remove_prefix(open + 7);
    reasoning = strip_newlines_left(before);
    const std::string_view after = strip_newlines_left(all.substr(all.rfind("</think>") + 8));
    content = content.slice(all.size() - after.size(), all.size());
  }
  out.format("<|im_start|>assistant\n");
  if (keep_reasoning) {
    out.format("<think>\n").plain(lm::strip(reasoning)).format("\n</think>\n\n");
  }
  out.append(content);
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && !calls->is_null()) {
    if (!calls->is_array()) refuse(index, "tool_calls must be a list");
    bool first = true;
    for (const Json& call : *calls) {
      if (!call.is_object()) refuse(index, "a tool call is no object");
      if (!first) {
        out.format("\n");
      } else if (!trim(content).text().empty()) {
        out.format("\n\n");
      }
      render_call(call, index, out);
      first = false;
    }
  }
  out.format("<|im_end|>\n");
}

}  // namespace

ChatOptions read_chat_options(const Json& options) {
  ChatOptions result;
  const std::pair<std::string_view, bool*> own[] = {{"add_vision_id", &result.add_vision_id}};
  lm::read_chat_options(options, result, own);
  return result;
}

PromptText render_chat(const Json& messages, const Json& tools, const ChatOptions& options,
                       Vision vision) {
  if (!messages.is_array() || messages.empty()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "there are no messages; give at least one of the user");
  }
  check_tools(tools);
  ContentReader reader(options, vision);
  PromptText prompt;

  const bool has_system = role_of(messages[0], 0) == "system";
  const PromptText rules = has_system ? trim(reader.text(messages[0], 0, false)) : PromptText();
  if (!tools.is_null() && !tools.empty()) {
    prompt.format("<|im_start|>system\n").format(kToolsBefore);
    for (const Json& tool : tools) prompt.format("\n").plain(models::python_json(tool));
    prompt.format(kToolsAfter);
    if (!rules.text().empty()) prompt.format("\n\n").append(rules);
    prompt.format("<|im_end|>\n");
  } else if (has_system) {
    prompt.format("<|im_start|>system\n").append(rules).format("<|im_end|>\n");
  }

  std::optional<std::size_t> last_query;
  for (std::size_t i = messages.size(); i-- > 0 && !last_query;) {
    if (role_of(messages[i], i) != "user") continue;
    const PromptText asked = trim(reader.text(messages[i], i, false));
    if (!asked.text().starts_with("<tool_response>") ||
        !asked.text().ends_with("</tool_response>")) {
      last_query = i;
    }
  }
  if (!last_query) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "no message of the user asks anything; add one with role \"user\"");
  }

  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string role = role_of(messages[i], i);
    PromptText content = trim(reader.text(messages[i], i, true));
    if (role == "system") {
      if (i != 0) refuse(i, "a system message must come first");
    } else if (role == "user") {
      prompt.format("<|im_start|>user\n").append(content).format("<|im_end|>\n");
    } else if (role == "assistant") {
      render_assistant(messages[i], i, std::move(content),
                       i > *last_query || options.preserve_thinking, prompt);
    } else if (role == "tool") {
      if (i > 0 && role_of(messages[i - 1], i - 1) != "tool") prompt.format("<|im_start|>user");
      prompt.format("\n<tool_response>\n").append(content).format("\n</tool_response>");
      if (i + 1 == messages.size() || role_of(messages[i + 1], i + 1) != "tool") {
        prompt.format("<|im_end|>\n");
      }
    } else {
      refuse(i, "unknown role '" + role + "'; known: system, user, assistant, tool");
    }
  }
  if (options.add_generation_prompt) {
    prompt.format("<|im_start|>assistant\n<think>\n");
    if (!options.enable_thinking) prompt.format("\n</think>\n\n");
  }
  if (options.allow_special_tokens) prompt.trust();
  return prompt;
}

}  // namespace frt::qwen36
