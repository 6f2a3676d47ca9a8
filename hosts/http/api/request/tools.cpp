// SPDX-License-Identifier: Apache-2.0
#include "http/api/request/tools.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <numeric>
#include <utility>

#include "http/api/error.hpp"

namespace frt::host::api {

namespace {

constexpr std::size_t kLongestName = 128;
constexpr std::size_t kDeepestArguments = 128;  // no less than a chat format lets a model write

// Formats write names between tags, so a name must not be able to close one.
bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("_-.:/").find(c) != std::string_view::npos;
         });
}

std::size_t depth_of(const Json& value) {
  if (!value.is_structured()) return 0;
  std::size_t deepest = 0;
  for (const Json& inner : value) deepest = std::max(deepest, depth_of(inner));
  return deepest + 1;
}

}  // namespace

void check_schema(const Json& schema, const std::string& path, const ApiLimits& limits) {
  if (!schema.is_object()) refuse(path, "is " + shown_value(schema) + ": give a JSON schema");
  if (depth_of(schema) > limits.schema_depth) {
    refuse(path, "is nested deeper than " + std::to_string(limits.schema_depth) + " levels");
  }
  if (io::json_text(schema).size() > limits.schema) {
    refuse(path, "has more than " + std::to_string(limits.schema) + " bytes");
  }
}

std::string custom_arguments(const std::string& input) {
  return io::json_text({{"input", input}});
}

std::string custom_input(const std::string& arguments) {
  try {
    const Json value = io::parse_json(arguments, "arguments", {.depth = kDeepestArguments});
    if (value.is_object() && value.size() == 1 && value.contains("input") &&
        value["input"].is_string()) {
      return value["input"];
    }
  } catch (const Error&) {
    // What a model wrote need not be what it was asked for.
  }
  return arguments;
}

std::string object_arguments(const std::string& arguments) {
  if (arguments.find_first_not_of(" \t\r\n") == arguments.npos) return "{}";
  try {
    const Json value = io::parse_json(arguments, "arguments", {.depth = kDeepestArguments});
    if (value.is_object()) return arguments;
  } catch (const Error&) {
    // It is handed on as text.
  }
  return custom_arguments(arguments);
}

std::string spaced_name(const std::string& space, const std::string& name) {
  if (space.empty()) return name;
  return space.ends_with("__") ? space + name : space + "__" + name;
}

void ToolList::add(ApiTool tool, Json function, const std::string& path) {
  if (!is_tool_name(tool.name)) {
    refuse(path, "is " + io::quote(tool.name) + ": give 1 to " + std::to_string(kLongestName) +
                     " letters, digits, or any of _ - . : /");
  }
  if (names_.size() == limits_.tools) {
    refuse("tools", "has more than " + std::to_string(limits_.tools) + " entries");
  }
  names_.push_back(std::move(tool));
  tools_.push_back({{"type", "function"}, {"function", std::move(function)}});
}

void ToolList::function(const Fields& tool, std::string_view schema, const std::string& space) {
  ApiTool entry{.name = {}, .client_name = tool.required_text("name"), .space = space};
  entry.name = spaced_name(space, entry.client_name);
  entry.strict = tool.boolean("strict").value_or(false);
  Json function = {{"name", entry.name}};
  if (auto text = tool.text("description")) function["description"] = *std::move(text);
  if (const Json* parameters = tool.find(schema)) {
    check_schema(*parameters, tool.path_of(schema), limits_);
    function["parameters"] = *parameters;
  } else {
    function["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  }
  add(std::move(entry), std::move(function), tool.path_of("name"));
}

void ToolList::custom(const Fields& tool, const std::string& space) {
  ApiTool entry{
      .name = {}, .client_name = tool.required_text("name"), .space = space, .custom = true};
  entry.name = spaced_name(space, entry.client_name);
  std::string input = "The whole input of the tool, as free text.";
  if (const auto format = tool.object("format")) {
    // A grammar tells the model what to write; nothing forces it.
    Fields grammar = *format;
    if (const auto inner = format->object("grammar")) grammar = *inner;
    if (const auto definition = grammar.text("definition")) {
      input += " It follows this grammar (" + grammar.text("syntax").value_or("lark") + "):\n" +
               *definition;
    }
  }
  Json function = {{"name", entry.name}};
  if (auto text = tool.text("description")) function["description"] = *std::move(text);
  function["parameters"] = {
      {"type", "object"},
      {"properties", {{"input", {{"type", "string"}, {"description", std::move(input)}}}}},
      {"required", {"input"}}};
  check_schema(function["parameters"], tool.path_of("format"), limits_);
  add(std::move(entry), std::move(function), tool.path_of("name"));
}

void ToolList::give_to(ApiCall& call, bool sort) {
  std::vector<std::size_t> order(names_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto by_name = [&](std::size_t a, std::size_t b) {
    return names_[a].name < names_[b].name;
  };
  std::vector<std::size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end(), by_name);
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end(), [&](auto a, auto b) {
    return names_[a].name == names_[b].name;
  });
  if (twice != sorted.end()) {
    refuse("tools", "has two of the name " + io::quote(names_[*twice].name));
  }
  if (sort) order = std::move(sorted);
  call.tools = names_.empty() ? Json() : Json::array();
  for (const std::size_t i : order) {
    call.tools.push_back(std::move(tools_[i]));
    call.tool_names.push_back(std::move(names_[i]));
  }
  call.tools_left_out = std::move(left_out_);
}

ApiToolChoice::Mode choice_mode(const std::string& word, const std::string& path) {
  if (word == "auto") return ApiToolChoice::kAuto;
  if (word == "none") return ApiToolChoice::kNone;
  if (word == "required") return ApiToolChoice::kRequired;
  refuse(path, "is " + io::quote(word) + ": give \"auto\", \"none\", \"required\" or a tool");
}

std::string chosen_tool(const ApiCall& call, const std::string& client_name,
                        const std::string& path) {
  for (const ApiTool& tool : call.tool_names) {
    if (tool.client_name == client_name || tool.name == client_name) return tool.name;
  }
  refuse(path, "is " + io::quote(client_name) + ", which is none of the tools");
}

void check_tool_choice(const ApiCall& call) {
  if (call.tool_choice.mode == ApiToolChoice::kRequired && call.tools.is_null()) {
    refuse("tool_choice", "demands a call, but there are no tools");
  }
}

}  // namespace frt::host::api
