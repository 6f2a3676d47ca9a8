// SPDX-License-Identifier: Apache-2.0
// A message is a text or a list of blocks. A user's blocks may be results of tools: each becomes a
// message of its own, and the text around them messages of the user. A "system" message may stand
// anywhere. As at Anthropic, a model reasons only where "thinking" asks for it.
#include "http/api/messages/request.hpp"

#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <utility>

#include "http/api/request/content.hpp"
#include "http/api/request/fields.hpp"
#include "http/api/request/generation.hpp"
#include "http/api/request/hygiene.hpp"
#include "http/api/request/tools.hpp"

namespace frt::host::api {

namespace {

void read_user(const Fields& message, const ApiLimits& limits, MessageBuilder& builder) {
  std::string text;
  bool said = false;
  for_each_part(message, "content", limits, [&](const Fields& block, const std::string& type) {
    if (type != "tool_result") {
      append_part(text, part_text(block, type));
      return;
    }
    if (!text.empty()) builder.user(std::exchange(text, {}));
    builder.result(block.required_text("tool_use_id"), read_result(block, "content", limits));
    said = true;
  });
  if (!text.empty() || !said) builder.user(std::move(text));
}

// What a provider's own tools wrote, and reasoning that nobody but its writer can read, stay in an
// agent's history: they are left out.
bool is_provider_block(const std::string& type) {
  return type == "redacted_thinking" || type == "server_tool_use" || type == "mcp_tool_use" ||
         type.ends_with("_tool_result") || type == "container_upload";
}

void read_assistant(const Fields& message, const ApiLimits& limits, MessageBuilder& builder) {
  builder.begin_assistant();
  for_each_part(message, "content", limits, [&](const Fields& block, const std::string& type) {
    if (type == "thinking") {
      builder.reasoning(block.required_text("thinking"));
    } else if (type == "tool_use") {
      std::string arguments = "{}";
      if (block.object("input")) arguments = io::json_text(*block.find("input"));
      builder.call(block.required_text("id"), block.required_text("name"), std::move(arguments));
    } else if (!is_provider_block(type)) {
      builder.answer(part_text(block, type));
    }
  });
}

void read_messages(const Fields& body, const ApiLimits& limits, MessageBuilder& builder) {
  for_each_part(body, "system", limits, [&](const Fields& block, const std::string& type) {
    builder.system(part_text(block, type));
  });
  const Json* messages = body.array("messages", limits.messages);
  if (!messages || messages->empty()) refuse("messages", "is empty: give at least one message");
  std::size_t index = 0;
  for (const Json& entry : *messages) {
    const Fields message(entry, indexed("messages", index++));
    const std::string role = message.required_text("role");
    if (role == "user") {
      read_user(message, limits, builder);
    } else if (role == "assistant") {
      read_assistant(message, limits, builder);
    } else if (role == "system") {
      builder.system(read_text(message, "content", limits));
    } else {
      refuse(message.path_of("role"), "is " + io::quote(role) + ": give user, assistant or system");
    }
  }
}

void read_tools(const Fields& body, const ApiOptions& options, ApiCall& call) {
  ToolList list(options.limits);
  if (const Json* tools = body.array("tools", options.limits.tools)) {
    std::size_t index = 0;
    for (const Json& entry : *tools) {
      const Fields tool(entry, indexed("tools", index++));
      const std::string type = tool.text("type").value_or("custom");
      if (type == "custom") {
        list.function(tool, "input_schema");
      } else {
        list.leave_out(type);
      }
    }
  }
  list.give_to(call, options.sort_tools);
  const auto choice = body.object("tool_choice");
  if (!choice) return;
  const std::string type = choice->required_text("type");
  call.parallel_tool_calls = !choice->boolean("disable_parallel_tool_use").value_or(false);
  if (type == "any") {
    call.tool_choice.mode = ApiToolChoice::kRequired;
    check_tool_choice(call);
  } else if (type == "none") {
    call.tool_choice.mode = ApiToolChoice::kNone;
  } else if (type == "tool") {
    call.tool_choice = {ApiToolChoice::kNamed,
                        chosen_tool(call, choice->required_text("name"), choice->path_of("name"))};
  } else if (type != "auto") {
    refuse("tool_choice.type", "is " + io::quote(type) + ": give auto, any, tool or none");
  }
}

bool read_thinking(const Fields& body) {
  const auto thinking = body.object("thinking");
  if (!thinking) return false;
  const std::string type = thinking->required_text("type");
  if (type != "enabled" && type != "adaptive" && type != "disabled") {
    refuse("thinking.type", "is " + io::quote(type) + ": give enabled, adaptive or disabled");
  }
  return type != "disabled";
}

Json read_format(const Fields& owner, std::string_view name, const ApiLimits& limits) {
  const auto format = owner.object(name);
  if (!format) return {};
  const std::string type = format->required_text("type");
  if (type != "json_schema") {
    refuse(format->path_of("type"), "is " + io::quote(type) + ": give json_schema");
  }
  return read_schema_format(*format, limits);
}

ApiCall read_call(std::string_view text, ApiHeaders headers, const ApiOptions& options,
                  bool generates) {
  const ApiLimits& limits = options.limits;
  const Json value = parse_body(text, limits);
  const Fields body(value, "");
  ApiCall call;
  call.model = read_model(body);
  call.stream = body.boolean("stream").value_or(false);
  body.refuse_if_set("mcp_servers", "this server calls no others");
  body.refuse_if_set("container", "this server runs no code");
  MessageBuilder builder;
  read_messages(body, limits, builder);
  if (generates && builder.ends_with_assistant()) {
    refuse("messages",
           "end with one of the assistant, which this server cannot continue: end "
           "them with one of the user");
  }
  read_tools(body, options, call);
  call.chat_options = {{"enable_thinking", read_thinking(body)}};
  default_preserve_thinking(call, builder.has_reasoning());
  call.messages = builder.take();

  call.max_tokens = read_max_tokens(body, "max_tokens", 1, limits);
  if (generates && !call.max_tokens) refuse("max_tokens", "is missing: give a number of tokens");
  call.sampling = read_sampling(body);
  call.stop = read_stops(body, "stop_sequences", limits);
  if (const auto output = body.object("output_config")) {
    call.response_format = read_format(*output, "format", limits);
    call.response_format_field = "output_config.format";
  }
  if (call.response_format.is_null()) {
    call.response_format = read_format(body, "output_format", limits);
    call.response_format_field = "output_format";
  }
  const auto metadata = body.object("metadata");
  call.session = read_session(headers, metadata ? metadata->text("user_id") : std::nullopt);
  return call;
}

}  // namespace

ApiCall parse_messages_request(std::string_view body, ApiHeaders headers,
                               const ApiOptions& options) {
  return read_call(body, headers, options, true);
}

}  // namespace frt::host::api

namespace frt::host {

ApiCall parse_count_tokens(std::string_view body, ApiHeaders headers, const ApiOptions& options) {
  return api::read_call(body, headers, options, false);
}

std::string count_tokens_body(uint64_t tokens) {
  return "{\"input_tokens\":" + std::to_string(tokens) + "}";
}

}  // namespace frt::host
