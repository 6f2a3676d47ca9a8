// SPDX-License-Identifier: Apache-2.0
// The input is a text or a list of items: messages, reasoning, calls and their outputs. Items of
// the assistant that follow one another are one message. Tools may be grouped in namespaces; the
// model knows them by both names in one.
#include "http/api/responses/request.hpp"

#include <algorithm>
#include <frt/io/utf8.hpp>
#include <utility>

#include "http/api/request/content.hpp"
#include "http/api/request/fields.hpp"
#include "http/api/request/generation.hpp"
#include "http/api/request/hygiene.hpp"
#include "http/api/request/tools.hpp"

namespace frt::host::api {

namespace {

void read_message(const Fields& item, const ApiLimits& limits, MessageBuilder& builder) {
  const std::string role = item.required_text("role");
  std::string text = read_text(item, "content", limits);
  if (role == "system" || role == "developer") {
    builder.system(text);
  } else if (role == "user") {
    builder.user(std::move(text));
  } else if (role == "assistant") {
    builder.answer(text);
  } else {
    refuse(item.path_of("role"),
           "is " + io::quote(role) + ": give system, developer, user or assistant");
  }
}

// What a provider's own tools wrote stays in an agent's history: it is left out.
bool is_provider_item(const std::string& type) {
  static constexpr std::string_view kTypes[] = {"web_search_call",
                                                "file_search_call",
                                                "computer_call",
                                                "computer_call_output",
                                                "local_shell_call",
                                                "local_shell_call_output",
                                                "mcp_call",
                                                "mcp_list_tools",
                                                "tool_search_call",
                                                "image_generation_call",
                                                "compaction",
                                                "code_interpreter_call",
                                                "tool_search_output",
                                                "mcp_approval_request",
                                                "mcp_approval_response"};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

void read_item(const Fields& item, const ApiLimits& limits, MessageBuilder& builder) {
  const std::string type = item.text("type").value_or("message");
  if (type == "message") {
    read_message(item, limits, builder);
  } else if (type == "reasoning") {
    const std::string text = read_text(item, "content", limits);
    builder.reasoning(text.empty() ? read_text(item, "summary", limits) : text);
  } else if (type == "function_call" || type == "custom_tool_call") {
    std::string name = spaced_name(item.text("namespace").value_or(""), item.required_text("name"));
    std::string arguments = type == "function_call"
                                ? object_arguments(item.text("arguments").value_or(""))
                                : custom_arguments(item.text("input").value_or(""));
    builder.call(item.required_text("call_id"), std::move(name), std::move(arguments));
  } else if (type == "function_call_output" || type == "custom_tool_call_output") {
    builder.result(item.required_text("call_id"), read_result(item, "output", limits));
  } else if (type == "item_reference") {
    refuse(item.path_of("type"),
           "is 'item_reference': this server stores nothing; send the item itself");
  } else if (!is_provider_item(type)) {
    refuse(item.path_of("type"), "is " + io::quote(type) +
                                     ": give messages, reasoning, function_call, custom_tool_call "
                                     "and their outputs");
  }
}

void read_input(const Fields& body, const ApiLimits& limits, MessageBuilder& builder) {
  builder.system(body.text("instructions").value_or(""));
  const Json* input = body.find("input");
  if (!input) refuse("input", "is missing: give a text or a list of items");
  if (input->is_string()) return builder.user(*input);
  const Json* items = body.array("input", limits.messages);
  if (items->empty()) refuse("input", "is empty: give at least one item");
  std::size_t index = 0;
  for (const Json& item : *items) {
    read_item(Fields(item, indexed("input", index++)), limits, builder);
  }
}

void read_tool(const Fields& tool, const std::string& space, ToolList& list) {
  const std::string type = tool.required_text("type");
  if (type == "function") {
    list.function(tool, "parameters", space);
  } else if (type == "custom") {
    list.custom(tool, space);
  } else {
    list.leave_out(type);
  }
}

void read_tools(const Fields& body, const ApiOptions& options, ApiCall& call) {
  const std::size_t most = options.limits.tools;
  ToolList list(options.limits);
  if (const Json* tools = body.array("tools", most)) {
    std::size_t index = 0;
    for (const Json& entry : *tools) {
      const Fields tool(entry, indexed("tools", index++));
      if (tool.text("type") != "namespace") {
        read_tool(tool, {}, list);
        continue;
      }
      const std::string space = tool.required_text("name");
      const Json* inner = tool.array("tools", most);
      if (!inner) continue;
      std::size_t inner_index = 0;
      for (const Json& inner_entry : *inner) {
        read_tool(Fields(inner_entry, indexed(tool.path_of("tools"), inner_index++)), space, list);
      }
    }
  }
  list.give_to(call, options.sort_tools);

  const Json* choice = body.find("tool_choice");
  if (!choice) return;
  if (choice->is_string()) {
    call.tool_choice.mode = choice_mode(*choice, "tool_choice");
    return check_tool_choice(call);
  }
  const Fields fields(*choice, "tool_choice");
  const std::string type = fields.required_text("type");
  if (type != "function" && type != "custom") {
    refuse("tool_choice.type", "is " + io::quote(type) + ": give function or custom");
  }
  call.tool_choice = {ApiToolChoice::kNamed,
                      chosen_tool(call, fields.required_text("name"), "tool_choice.name")};
}

Json read_text_format(const Fields& body, const ApiLimits& limits) {
  const auto text = body.object("text");
  const auto format = text ? text->object("format") : std::nullopt;
  if (!format) return {};
  const std::string type = format->required_text("type");
  if (type == "text") return {};
  if (type == "json_object") return {{"type", type}};
  if (type != "json_schema") {
    refuse("text.format.type", "is " + io::quote(type) + ": give text, json_object or json_schema");
  }
  return read_schema_format(*format, limits);
}

void refuse_unsupported(const Fields& body) {
  body.refuse_if_set("previous_response_id",
                     "this server stores nothing; send the whole conversation as input");
  body.refuse_if_set("conversation",
                     "this server stores nothing; send the whole conversation as input");
  body.refuse_if_set("background", "wait for the answer, or stream it");
  body.refuse_if_set("prompt", "give instructions and input");
}

}  // namespace

ApiCall parse_responses_request(std::string_view text, ApiHeaders headers,
                                const ApiOptions& options) {
  const ApiLimits& limits = options.limits;
  const Json value = parse_body(text, limits);
  const Fields body(value, "");
  ApiCall call;
  call.model = read_model(body);
  call.stream = body.boolean("stream").value_or(false);
  refuse_unsupported(body);
  MessageBuilder builder;
  read_input(body, limits, builder);
  read_tools(body, options, call);
  call.parallel_tool_calls = body.boolean("parallel_tool_calls").value_or(true);
  call.chat_options = Json::object();
  if (const auto reasoning = body.object("reasoning")) {
    read_effort(*reasoning, "effort", call.chat_options);
  }
  default_preserve_thinking(call, builder.has_reasoning());
  call.messages = builder.take();
  if (call.messages.empty()) refuse("input", "has no message: give at least one of the user");

  call.sampling = read_sampling(body);
  call.max_tokens = read_max_tokens(body, "max_output_tokens", 1, limits);
  call.top_log_probabilities = static_cast<uint32_t>(
      body.count("top_logprobs", 0, limits.top_log_probabilities).value_or(0));
  call.log_probabilities = call.top_log_probabilities > 0;
  if (const Json* include = body.array("include", 64)) {
    const Json wanted = "message.output_text.logprobs";
    call.log_probabilities |= std::find(include->begin(), include->end(), wanted) != include->end();
  }
  call.response_format = read_text_format(body, limits);
  call.response_format_field = "text.format";
  call.session = read_session(headers, body.text("prompt_cache_key"));
  return call;
}

}  // namespace frt::host::api
