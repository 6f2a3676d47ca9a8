// SPDX-License-Identifier: Apache-2.0
// A schema is read as XGrammar reads it: the first of $ref, const, enum, anyOf, oneOf, allOf
// decides alone and what stands beside it is not looked at; else the type does, and only the
// keywords of that type. So what stands where it would not be looked at is refused here. What
// XGrammar itself says that it leaves out, the compiler refuses (compiler.hpp).
#include "lm/grammar/schema.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <frt/error.hpp>
#include <frt/io/json_schema.hpp>
#include <frt/io/utf8.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;
using io::resolve_reference;

constexpr std::array<std::string_view, 15> kAnnotations = {
    "title",      "description", "default",     "examples", "example",
    "$comment",   "$schema",     "$id",         "readOnly", "writeOnly",
    "deprecated", "$defs",       "definitions", "$anchor",  "nullable"};
constexpr std::array<std::string_view, 5> kOfStrings = {"minLength", "maxLength", "pattern",
                                                        "format", "contentMediaType"};
constexpr std::array<std::string_view, 5> kOfNumbers = {"minimum", "maximum", "exclusiveMinimum",
                                                        "exclusiveMaximum", "multipleOf"};
constexpr std::array<std::string_view, 5> kOfArrays = {"items", "prefixItems", "minItems",
                                                       "maxItems", "unevaluatedItems"};
constexpr std::array<std::string_view, 8> kOfObjects = {
    "properties",    "required",      "additionalProperties", "patternProperties",
    "propertyNames", "minProperties", "maxProperties",        "unevaluatedProperties"};
constexpr std::array<std::string_view, 6> kDeciding = {"$ref",  "const", "enum",
                                                       "anyOf", "oneOf", "allOf"};
constexpr std::array<std::string_view, 7> kTypes = {"string", "integer", "number", "boolean",
                                                    "null",   "array",   "object"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(FRT_ERR_INVALID_ARGUMENT, (path.empty() ? "the schema" : path) + " " + what);
}

std::string below(const std::string& path, std::string_view key) {
  std::string name(key.substr(0, 64));
  return path + "/" + name;
}

// Of an object's own keys, which come once each: operator[] would look for every one of them again.
void append(Json& object, const std::string& key, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(key, std::move(value));
}

// The keys of an object; of anything else, none.
std::set<std::string_view> keys_of(const Json& object) {
  std::set<std::string_view> keys;
  if (!object.is_object()) return keys;
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) keys.insert(key);
  return keys;
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  if (!value.is_number_float()) return value.is_number_integer();
  const auto number = value.get<double>();
  return std::isfinite(number) && number == std::floor(number);
}

// The types of a schema; none: it says none.
std::vector<std::string> types_of(const Json& schema, const std::string& path) {
  std::vector<std::string> types;
  const auto found = schema.find("type");
  if (found == schema.end()) return types;
  const auto add = [&](const Json& type) {
    if (!type.is_string() || !is_one_of(kTypes, type.get_ref<const std::string&>())) {
      refuse(below(path, "type"),
             "is none of string, integer, number, boolean, null, array and object");
    }
    types.push_back(type);
  };
  if (!found->is_array()) {
    add(*found);
    return types;
  }
  if (found->empty()) refuse(below(path, "type"), "is an empty list");
  for (const Json& type : *found) add(type);
  return types;
}

bool fits_type(const Json& value, const std::vector<std::string>& types) {
  return types.empty() ||
         std::ranges::any_of(types, [&](const std::string& type) { return has_type(value, type); });
}

class Enforceable {
 public:
  explicit Enforceable(const Json& root) : root_(root) {}

  Json read(const Json& schema, const std::string& path) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) refuse(path, "is false: no value fits it");
      return schema;
    }
    if (!schema.is_object()) refuse(path, "is no schema: give an object, or true");
    const std::vector<std::string> types = types_of(schema, path);
    for (const std::string_view name : kDeciding) {
      if (schema.contains(name)) return read_deciding(schema, std::string(name), types, path);
    }
    return read_typed(schema, types, path);
  }

 private:
  Json read_deciding(const Json& schema, const std::string& name,
                     const std::vector<std::string>& types, const std::string& path) {
    Json out = Json::object();
    const bool values = name == "const" || name == "enum";
    for (const auto& [key, value] : schema.items()) {
      if (key == name || is_annotation(key) || (key == "type" && values)) continue;
      refuse(below(path, key), "is not enforced beside \"" + name + "\": leave it out, or move it");
    }
    take_definitions(schema, path, out);
    const Json& value = schema.at(name);
    if (name == "$ref") {
      if (!value.is_string() || !value.get_ref<const std::string&>().starts_with('#')) {
        refuse(below(path, name), "names no part of this schema (\"#/$defs/...\")");
      }
      if (!resolve_reference(schema, root_)) refuse(below(path, name), "names nothing");
      out[name] = value;
    } else if (name == "const") {
      if (!fits_type(value, types)) refuse(below(path, name), "is not of the type beside it");
      out[name] = value;
    } else if (name == "enum") {
      out[name] = Json::array();
      if (!value.is_array()) refuse(below(path, name), "is no list");
      for (const Json& each : value) {
        if (fits_type(each, types)) out[name].push_back(each);
      }
      if (out[name].empty()) refuse(below(path, name), "has no value of the type beside it");
    } else {
      if (!value.is_array() || value.empty()) refuse(below(path, name), "is no list of schemas");
      out[name] = Json::array();
      for (std::size_t i = 0; i < value.size(); ++i) {
        out[name].push_back(read(value[i], below(below(path, name), std::to_string(i))));
      }
    }
    return out;
  }

  Json read_typed(const Json& schema, std::vector<std::string> types, const std::string& path) {
    Json out = Json::object();
    const auto of = [&](std::string_view type) {
      return std::ranges::find(types, type) != types.end();
    };
    if (types.empty()) {  // as the compiler concludes
      for (const char* name : {"properties", "additionalProperties", "unevaluatedProperties"}) {
        if (types.empty() && schema.contains(name)) types.emplace_back("object");
      }
      for (const char* name : {"items", "prefixItems", "unevaluatedItems"}) {
        if (types.empty() && schema.contains(name)) types.emplace_back("array");
      }
    }
    take_definitions(schema, path, out);
    if (types.size() == 1) out["type"] = types[0];
    if (types.size() > 1) out["type"] = types;
    for (const auto& [key, value] : schema.items()) {
      if (key == "type" || is_annotation(key)) continue;
      const std::string place = below(path, key);
      if (is_one_of(kOfStrings, key)) {
        need(of("string"), place, "string");
        if (key == "format" && schema.contains("pattern")) refuse(place, "stands beside a pattern");
        if (!(key == "minLength" || key == "maxLength") && !value.is_string()) {
          refuse(place, "is no text");
        }
        if (key != "contentMediaType") out[key] = value;
      } else if (is_one_of(kOfNumbers, key)) {
        need(of("number") || of("integer"), place, "number or integer");
        if (!value.is_number()) refuse(place, "is no number");
        out[key] = value;
      } else if (is_one_of(kOfArrays, key)) {
        need(of("array"), place, "array");
        out[key] = read_array_keyword(key, value, place);
      } else if (is_one_of(kOfObjects, key)) {
        need(of("object"), place, "object");
        out[key] = read_object_keyword(key, value, schema, place);
      } else {
        refuse(place, "is not enforced: leave it out");
      }
    }
    open_ends(out, of("array"), of("object"));
    return out;
  }

  Json read_array_keyword(const std::string& key, const Json& value, const std::string& place) {
    if (key == "minItems" || key == "maxItems") return value;
    if (key != "prefixItems") return value == false ? value : read(value, place);
    Json out = Json::array();
    if (!value.is_array()) refuse(place, "is no list of schemas");
    for (std::size_t i = 0; i < value.size(); ++i) {
      const Json item = read(value[i], below(place, std::to_string(i)));
      out.push_back(item == true ? Json::object() : item);
    }
    return out;
  }

  Json read_object_keyword(const std::string& key, const Json& value, const Json& schema,
                           const std::string& place) {
    if (key == "minProperties" || key == "maxProperties") return value;
    if (key == "required") {
      if (!value.is_array()) refuse(place, "is no list of names");
      const auto properties = schema.find("properties");
      const std::set<std::string_view> names =
          properties == schema.end() ? std::set<std::string_view>() : keys_of(*properties);
      for (const Json& name : value) {
        if (!name.is_string()) refuse(place, "is no list of names");
        if (!names.contains(name.get_ref<const std::string&>())) {
          refuse(place, "names " + io::quote(name.get_ref<const std::string&>()) +
                            ", which is none of the properties");
        }
      }
      return value;
    }
    if (key == "propertyNames") return read(value, place);
    if (key == "additionalProperties" || key == "unevaluatedProperties") {
      return value == false ? value : read(value, place);
    }
    if (!value.is_object()) refuse(place, "is no object of schemas");
    Json out = Json::object();
    for (const auto& [name, inner] : value.items()) {
      append(out, name, read(inner, below(place, name)));
    }
    return out;
  }

  static void open_ends(Json& out, bool array, bool object) {
    const auto says = [&](std::initializer_list<const char*> names) {
      return std::ranges::any_of(names, [&](const char* name) { return out.contains(name); });
    };
    if (array && !says({"items", "prefixItems", "unevaluatedItems"})) {
      out["items"] = Json::object();
    }
    if (object && !says({"properties", "patternProperties", "propertyNames", "additionalProperties",
                         "unevaluatedProperties"})) {
      out["additionalProperties"] = true;
    }
  }

  void take_definitions(const Json& schema, const std::string& path, Json& out) {
    for (const char* name : {"$defs", "definitions"}) {
      const auto found = schema.find(name);
      if (found == schema.end()) continue;
      if (!found->is_object()) refuse(below(path, name), "is no object of schemas");
      Json& definitions = out[name] = Json::object();
      for (const auto& [key, value] : found->items()) {
        append(definitions, key, read(value, below(below(path, name), key)));
      }
    }
  }

  static bool is_annotation(std::string_view key) {
    return is_one_of(kAnnotations, key) || key.starts_with("x-");
  }
  static void need(bool has, const std::string& place, const std::string& types) {
    if (!has) refuse(place, "needs \"type\": " + types);
  }

  const Json& root_;
};

class Relaxed {
 public:
  explicit Relaxed(const Json& root) : root_(root) {}

  Json read(const Json& schema) const {
    Json out = Json::object();
    if (!schema.is_object()) return out;
    for (const char* name : {"$defs", "definitions"}) {
      const auto found = schema.find(name);
      if (found == schema.end() || !found->is_object()) continue;
      Json& definitions = out[name] = Json::object();
      for (const auto& [key, value] : found->items()) append(definitions, key, read(value));
    }
    const std::vector<std::string> types = known_types(schema);
    if (schema.contains("$ref")) {
      if (resolve_reference(schema, root_)) out["$ref"] = schema["$ref"];
      return out;
    }
    if (schema.contains("const")) {
      out["const"] = schema["const"];
      return out;
    }
    if (const auto values = schema.find("enum"); values != schema.end()) {
      if (values->is_array() && !values->empty()) out["enum"] = *values;
      return out;
    }
    for (const char* name : {"anyOf", "oneOf"}) {
      const auto found = schema.find(name);
      if (found == schema.end() || !found->is_array() || found->empty()) continue;
      out["anyOf"] = Json::array();
      for (const Json& each : *found) out["anyOf"].push_back(read(each));
      return out;
    }
    if (const auto all = schema.find("allOf"); all != schema.end()) {
      if (!all->is_array() || all->size() != 1) return out;
      Json inner = read((*all)[0]);
      for (const auto& [key, value] : out.items()) inner[key] = value;
      return inner;
    }
    read_typed(schema, types, out);
    return out;
  }

 private:
  static std::vector<std::string> known_types(const Json& schema) {
    std::vector<std::string> types;
    const auto found = schema.find("type");
    if (found == schema.end()) return types;
    const auto add = [&](const Json& type) {
      if (type.is_string() && is_one_of(kTypes, type.get_ref<const std::string&>())) {
        types.push_back(type);
      }
    };
    if (found->is_array()) {
      for (const Json& type : *found) add(type);
    } else {
      add(*found);
    }
    return types;
  }

  void read_typed(const Json& schema, std::vector<std::string> types, Json& out) const {
    if (types.empty() && schema.contains("properties")) types.emplace_back("object");
    if (types.empty() && schema.contains("items")) types.emplace_back("array");
    if (types.size() == 1) out["type"] = types[0];
    if (types.size() > 1) out["type"] = types;
    const auto of = [&](std::string_view type) {
      return std::ranges::find(types, type) != types.end();
    };
    if (of("string")) take_bounds(schema, "minLength", "maxLength", out);
    if (of("array")) {
      take_bounds(schema, "minItems", "maxItems", out);
      const auto items = schema.find("items");
      out["items"] = items == schema.end() ? Json::object() : read(*items);
    }
    if (!of("object")) return;
    const auto properties = schema.find("properties");
    if (properties == schema.end() || !properties->is_object() || properties->empty()) {
      const auto more = schema.find("additionalProperties");
      const bool none = more != schema.end() && *more == false;
      const bool typed = more != schema.end() && more->is_object();
      out["additionalProperties"] = none ? Json(false) : typed ? read(*more) : Json(true);
      return;
    }
    Json kept = Json::object();
    for (const auto& [key, value] : properties->items()) {
      if (value != false) append(kept, key, read(value));
    }
    if (const auto required = schema.find("required");
        required != schema.end() && required->is_array()) {
      const std::set<std::string_view> keys = keys_of(kept);
      std::set<std::string_view> names;
      for (const Json& name : *required) {
        if (!name.is_string()) continue;
        const auto found = keys.find(name.get_ref<const std::string&>());
        if (found != keys.end()) names.insert(*found);
      }
      out["required"] = names;
    }
    out["properties"] = std::move(kept);
  }

  // Both or none: a minimum above the maximum would leave nothing.
  static void take_bounds(const Json& schema, const char* least, const char* most, Json& out) {
    const auto bound = [&](const char* name) -> std::optional<uint64_t> {
      const auto found = schema.find(name);
      if (found == schema.end() || !found->is_number_unsigned()) return {};
      const auto value = found->get<uint64_t>();
      return value <= kLargestBound ? std::optional(value) : std::nullopt;
    };
    const auto low = bound(least), high = bound(most);
    if (low && high && *low > *high) return;
    if (low) out[least] = *low;
    if (high) out[most] = *high;
  }

  const Json& root_;
};

}  // namespace

Json enforceable_schema(const Json& schema) {
  return Enforceable(schema).read(schema, "");
}

Json relaxed_schema(const Json& schema) {
  return Relaxed(schema).read(schema);
}

}  // namespace frt::host
