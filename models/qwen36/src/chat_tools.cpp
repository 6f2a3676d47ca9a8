// SPDX-License-Identifier: Apache-2.0
#include "chat_tools.hpp"

#include <frt/error.hpp>
#include <frt/io/json.hpp>

#include <algorithm>

#include "chat_text.hpp"

namespace frt::qwen36 {

using models::Json;

namespace {

// What a schema refers to within `root`, or null.
const Json* resolved(const Json& schema, const Json& root) {
  constexpr int kMostHops = 16;
  const Json* at = &schema;
  for (int hops = 0; hops < kMostHops && at; ++hops) {
    const auto reference = at->is_object() ? at->find("$ref") : at->end();
    if (reference == at->end()) return at;
    if (!reference->is_string()) return nullptr;
    const std::string& text = reference->get_ref<const std::string&>();
    if (!text.starts_with("#/")) return nullptr;
    at = &root;
    for (std::size_t begin = 2; at && begin <= text.size();) {
      const std::size_t end = std::min(text.find('/', begin), text.size());
      const auto inner = at->is_object() ? at->find(text.substr(begin, end - begin)) : at->end();
      at = inner == at->end() ? nullptr : &*inner;
      begin = end + 1;
    }
  }
  return nullptr;
}

// Schemas that are looked at for one parameter: references may go in circles, or double.
constexpr int kMostSchemas = 256;

// True if a value of this schema, part of `root`, is to be taken as text.
bool takes_text(const Json& given, const Json& root, int& left) {
  const Json* found = resolved(given, root);
  if (!found || !found->is_object() || --left < 0) return true;
  const Json& schema = *found;
  const auto type = schema.find("type");
  if (type != schema.end()) {
    if (type->is_string()) return *type == "string";
    return type->is_array() && std::find(type->begin(), type->end(), "string") != type->end();
  }
  for (const char* choice : {"anyOf", "oneOf"}) {
    const auto options = schema.find(choice);
    if (options != schema.end() && options->is_array()) {
      return std::any_of(options->begin(), options->end(),
                         [&](const Json& each) { return takes_text(each, root, left); });
    }
  }
  return !schema.contains("enum") ||
         std::all_of(schema["enum"].begin(), schema["enum"].end(),
                     [](const Json& value) { return value.is_string(); });
}

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
      int left = kMostSchemas;
      entry->second.emplace(key, takes_text(schema, *parameters, left));
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
