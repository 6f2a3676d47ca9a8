// SPDX-License-Identifier: Apache-2.0
// Contents are a text or a list of parts; only text parts can be taken. Reasoning comes back as
// "reasoning_content" or "reasoning". Tools are functions or custom tools; other types are left
// out.
#include "http/api/chat/request.hpp"

#include <frt/io/utf8.hpp>
#include <utility>

#include "http/api/request/content.hpp"
#include "http/api/request/fields.hpp"
#include "http/api/request/generation.hpp"
#include "http/api/request/hygiene.hpp"
#include "http/api/request/tools.hpp"

namespace frt::host::api {

namespace {

void read_calls(const Fields& message, const ApiLimits& limits, MessageBuilder& builder) {
  message.refuse_if_set("function_call", "use tool_calls");
  const Json* calls = message.array("tool_calls", limits.parts);
  if (!calls) return;
  std::size_t index = 0;
  for (const Json& entry : *calls) {
    const Fields call(entry, indexed(message.path_of("tool_calls"), index++));
    std::string id = call.text("id").value_or("");
    if (call.text("type").value_or("function") == "custom") {
      const auto custom = call.object("custom");
      if (!custom) refuse(call.path_of("custom"), "is missing: give the name and the input");
      builder.call(std::move(id), custom->required_text("name"),
                   custom_arguments(custom->text("input").value_or("")));
      continue;
    }
    const auto function = call.object("function");
    if (!function) refuse(call.path_of("function"), "is missing: give the name and the arguments");
    std::string name = function->required_text("name");
    builder.call(std::move(id), std::move(name),
                 object_arguments(function->text("arguments").value_or("")));
  }
}

void read_message(const Fields& message, const ApiLimits& limits, MessageBuilder& builder) {
  const std::string role = message.required_text("role");
  if (role == "tool") {
    return builder.result(message.text("tool_call_id").value_or(""),
                          read_result(message, "content", limits));
  }
  std::string content = read_text(message, "content", limits);
  if (role == "system" || role == "developer") {
    builder.system(content);
  } else if (role == "user") {
    builder.user(std::move(content));
  } else if (role == "assistant") {
    message.refuse_if_set("audio", "this server takes text only");
    builder.begin_assistant();
    auto reasoning = message.text("reasoning_content");
    if (!reasoning) reasoning = message.text("reasoning");
    builder.reasoning(reasoning.value_or(""));
    builder.answer(content);
    read_calls(message, limits, builder);
  } else {
    refuse(message.path_of("role"),
           "is " + io::quote(role) + ": give system, developer, user, assistant or tool");
  }
}

void read_tools(const Fields& body, const ApiOptions& options, ApiCall& call) {
  body.refuse_if_set("functions", "use tools");
  body.refuse_if_set("function_call", "use tool_choice");
  ToolList list(options.limits);
  if (const Json* tools = body.array("tools", options.limits.tools)) {
    std::size_t index = 0;
    for (const Json& entry : *tools) {
      const Fields tool(entry, indexed("tools", index++));
      const std::string type = tool.text("type").value_or("function");
      if (type != "function" && type != "custom") {
        list.leave_out(type);
        continue;
      }
      const auto inner = tool.object(type);
      if (!inner) refuse(tool.path_of(type), "is missing: give the tool's name");
      if (type == "custom") {
        list.custom(*inner);
      } else {
        list.function(*inner, "parameters");
      }
    }
  }
  list.give_to(call, options.sort_tools);
}

void read_tool_choice(const Fields& body, ApiCall& call) {
  const Json* choice = body.find("tool_choice");
  if (!choice) return;
  if (choice->is_string()) {
    call.tool_choice.mode = choice_mode(*choice, "tool_choice");
    return check_tool_choice(call);
  }
  const Fields fields(*choice, "tool_choice");
  const std::string type = fields.required_text("type");
  const auto inner = type == "function" || type == "custom" ? fields.object(type) : std::nullopt;
  if (!inner) {
    refuse("tool_choice.type",
           "is " + io::quote(type) + ": give {\"type\": \"function\", \"function\": {\"name\"}}");
  }
  call.tool_choice = {ApiToolChoice::kNamed,
                      chosen_tool(call, inner->required_text("name"), inner->path_of("name"))};
}

Json read_response_format(const Fields& body, const ApiLimits& limits) {
  const auto format = body.object("response_format");
  if (!format) return {};
  const std::string type = format->required_text("type");
  if (type == "text") return {};
  if (type == "json_object") return {{"type", type}};
  if (type != "json_schema") {
    refuse("response_format.type",
           "is " + io::quote(type) + ": give text, json_object or json_schema");
  }
  const auto inner = format->object("json_schema");
  if (!inner) refuse("response_format.json_schema", "is missing: give the schema");
  return read_schema_format(*inner, limits);
}

// Options of the conversation's format: as fields of their own, or in "chat_template_kwargs", as
// vLLM and llama.cpp take them.
Json read_chat_options(const Fields& body) {
  Json options = Json::object();
  for (const char* name : {"enable_thinking", "preserve_thinking"}) {
    if (const auto value = body.boolean(name)) options[name] = *value;
  }
  if (const auto given = body.object("chat_template_kwargs")) {
    for (const auto& [name, value] : body.find("chat_template_kwargs")->items()) {
      if (name != "enable_thinking" && name != "preserve_thinking") {
        refuse("chat_template_kwargs",
               "has " + io::quote(name) + ": known are enable_thinking and preserve_thinking");
      }
      if (const auto flag = given->boolean(name)) options[name] = *flag;
    }
  }
  read_effort(body, "reasoning_effort", options);
  return options;
}

void refuse_unsupported(const Fields& body) {
  body.refuse_if_set("audio", "this server answers with text only");
  body.refuse_if_set("web_search_options", "this server searches nothing");
  body.refuse_if_set("continue_final_message", "end the messages with one of the user");
  body.refuse_if_set("chat_template", "the model's own is used");
  if (!body.boolean("add_generation_prompt").value_or(true)) {
    refuse("add_generation_prompt", "is false: this server always lets the model answer");
  }
  if (const Json* modalities = body.array("modalities", 8)) {
    for (const Json& modality : *modalities) {
      if (modality != "text") {
        refuse("modalities", "has " + shown_value(modality) + ": this server answers with text");
      }
    }
  }
}

}  // namespace

ApiCall parse_chat_request(std::string_view text, ApiHeaders headers, const ApiOptions& options) {
  const ApiLimits& limits = options.limits;
  const Json value = parse_body(text, limits);
  const Fields body(value, "");
  ApiCall call;
  call.model = read_model(body);
  call.stream = body.boolean("stream").value_or(false);
  if (const auto stream = body.object("stream_options")) {
    call.include_usage = stream->boolean("include_usage").value_or(false);
  }
  refuse_unsupported(body);

  const Json* messages = body.array("messages", limits.messages);
  if (!messages || messages->empty()) refuse("messages", "is empty: give at least one message");
  MessageBuilder builder;
  std::size_t index = 0;
  for (const Json& message : *messages) {
    read_message(Fields(message, indexed("messages", index++)), limits, builder);
  }
  read_tools(body, options, call);
  read_tool_choice(body, call);
  call.parallel_tool_calls = body.boolean("parallel_tool_calls").value_or(true);
  call.chat_options = read_chat_options(body);
  default_preserve_thinking(call, builder.has_reasoning());
  call.messages = builder.take();

  call.sampling = read_sampling(body);
  call.logit_bias = read_bias(body, limits);
  call.max_tokens = read_max_tokens(body, "max_completion_tokens", 1, limits);
  if (const auto old = read_max_tokens(body, "max_tokens", 1, limits); !call.max_tokens) {
    call.max_tokens = old;
  }
  call.min_tokens = read_min_tokens(body);
  call.stop = read_stops(body, "stop", limits);
  call.choices = static_cast<uint32_t>(body.count("n", 1, limits.choices).value_or(1));
  call.log_probabilities = body.boolean("logprobs").value_or(false);
  call.top_log_probabilities = static_cast<uint32_t>(
      body.count("top_logprobs", 0, limits.top_log_probabilities).value_or(0));
  if (call.top_log_probabilities > 0 && !call.log_probabilities) {
    refuse("top_logprobs", "needs logprobs: set it to true");
  }
  call.response_format = read_response_format(body, limits);
  call.response_format_field = "response_format";
  read_guides(body, limits, call);
  call.session = read_session(headers, body.text("prompt_cache_key"));
  return call;
}

}  // namespace frt::host::api
