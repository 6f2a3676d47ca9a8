// SPDX-License-Identifier: Apache-2.0
// tools.hpp - the tools of a request, as functions for the model and as their client knows them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "http/api/call.hpp"
#include "http/api/limits.hpp"
#include "http/api/request/fields.hpp"

namespace frt::host::api {

// A function's arguments that hold the free text of a custom tool: {"input": text}.  [any]
std::string custom_arguments(const std::string& input);
// The text of such arguments; whatever else they are, as it stands.  [any]
std::string custom_input(const std::string& arguments);

// Arguments of a call of the history as the JSON text of an object: {} for none, and {"input":
// text} for what is no such text. Models write that, too, and their clients send it back.  [any]
std::string object_arguments(const std::string& arguments);

// Throws ApiError unless `schema` is an object within the limits for schemas.  [any]
void check_schema(const Json& schema, const std::string& path, const ApiLimits& limits);

// A namespace's tool for the model: "mcp__files" and "read" are "mcp__files__read".  [any]
std::string spaced_name(const std::string& space, const std::string& name);

class ToolList {
 public:
  explicit ToolList(const ApiLimits& limits) : limits_(limits) {}

  // {"name", "description", "parameters"}; the schema's name may differ ("input_schema").
  void function(const Fields& tool, std::string_view schema, const std::string& space = {});
  // {"name", "description", "format"}.
  void custom(const Fields& tool, const std::string& space = {});
  void leave_out(std::string type) { left_out_.push_back(std::move(type)); }

  // Moves all into `call`; sorted by name if asked for.
  void give_to(ApiCall& call, bool sort);

 private:
  void add(ApiTool tool, Json function, const std::string& path);

  const ApiLimits& limits_;
  Json tools_ = Json::array();
  std::vector<ApiTool> names_;
  std::vector<std::string> left_out_;
};

// "auto", "none", "required": for all protocols of OpenAI. `path` names it in errors.
ApiToolChoice::Mode choice_mode(const std::string& word, const std::string& path);
// The model's name of the tool that its client calls `client_name`. Throws if there is none.
std::string chosen_tool(const ApiCall& call, const std::string& client_name,
                        const std::string& path);
// Throws if a call is demanded and there is no tool.
void check_tool_choice(const ApiCall& call);

}  // namespace frt::host::api
