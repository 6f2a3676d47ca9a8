// SPDX-License-Identifier: Apache-2.0
#include "chat_tools.hpp"

#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_schema.hpp>

#include <algorithm>

#include "chat_text.hpp"

namespace frt::qwen36 {

using models::Json;

namespace {

// How deep a value may nest: in a conversation it stands seven levels down, and all of it is read
// again with the usual limit.
constexpr std::size_t kValueDepth = io::JsonLimits{}.depth - 7;

}  // namespace

Tools::Tools(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const auto inner = tool.find("function");
    const Json& function = inner != tool.end() && inner->is_object() ? *inner : tool;
    const auto name = function.find("name");
    if (name == function.end() || !name->is_string()) continue;
    const auto [entry, added] = functions_.try_emplace(name->get<std::string>());
    const auto parameters = function.find("parameters");
    if (!added || parameters == function.end() || !parameters->is_object()) continue;
    const auto properties = parameters->find("properties");
    if (properties == parameters->end() || !properties->is_object()) continue;
    for (const auto& [key, schema] : properties->items()) {
      entry->second.emplace(key, io::takes_text(schema, *parameters));
    }
  }
}

const Tools::Parameters& Tools::parameters(std::string_view function) const {
  static const Parameters kNone;
  const auto found = functions_.find(function);
  return found == functions_.end() ? kNone : found->second;
}

std::string json_value(std::string_view text, bool wants_text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (!wants_text) {
    try {
      io::parse_json(text, "value", {.depth = kValueDepth});
      return std::string(trim(text));
    } catch (const Error&) {
      // No JSON, or nested too deep to be handed on: it stays text.
    }
  }
  return models::python_json(Json(std::string(text)));
}

}  // namespace frt::qwen36
