// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <frt/io/json_schema.hpp>
#include <string>

namespace frt::io {
namespace {

// References may go in circles, or double.
constexpr int kMostSchemas = 256;

bool is_text(const Json& value) {
  return value.is_string();
}

// What says that a schema without a type is one of an object or a list.
bool implies_json(const Json& schema) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{"properties", "additionalProperties",
                                         "unevaluatedProperties", "items", "prefixItems",
                                         "unevaluatedItems"},
      [&](const char* name) { return schema.contains(name); });
}

bool takes_text_within(const Json& given, const Json& root, int& left) {
  const Json* schema = resolve_reference(given, root);
  if (!schema || !schema->is_object() || --left < 0) return true;
  if (const auto value = schema->find("const"); value != schema->end()) return is_text(*value);
  if (const auto values = schema->find("enum"); values != schema->end()) {
    return std::ranges::all_of(*values, is_text);
  }
  for (const char* choice : {"anyOf", "oneOf"}) {
    const auto options = schema->find(choice);
    if (options == schema->end() || !options->is_array()) continue;
    return std::ranges::any_of(
        *options, [&](const Json& each) { return takes_text_within(each, root, left); });
  }
  const auto all = schema->find("allOf");
  if (all != schema->end() && all->is_array() && all->size() == 1) {
    return takes_text_within((*all)[0], root, left);
  }
  const auto type = schema->find("type");
  if (type == schema->end()) return !implies_json(*schema);
  if (type->is_string()) return *type == "string";
  return type->is_array() && std::ranges::find(*type, Json("string")) != type->end();
}

}  // namespace

const Json* resolve_reference(const Json& schema, const Json& root) {
  const Json* at = &schema;
  for (int hops = 0; hops < 16; ++hops) {
    if (!at->is_object()) return at;
    const auto found = at->find("$ref");
    if (found == at->end()) return at;
    if (!found->is_string()) return nullptr;
    const std::string& text = found->get_ref<const std::string&>();
    if (text == "#") return &root;
    if (!text.starts_with("#/")) return nullptr;
    at = &root;
    for (std::size_t begin = 2; begin <= text.size();) {
      const std::size_t end = std::min(text.find('/', begin), text.size());
      if (!at->is_object()) return nullptr;
      const auto inner = at->find(text.substr(begin, end - begin));
      if (inner == at->end()) return nullptr;
      at = &*inner;
      begin = end + 1;
    }
  }
  return nullptr;  // a circle
}

bool takes_text(const Json& schema, const Json& root) {
  int left = kMostSchemas;
  return takes_text_within(schema, root, left);
}

}  // namespace frt::io
