// SPDX-License-Identifier: Apache-2.0
// A JSON Schema (draft 2020-12) of manifests. Editors use it for completion and red lines; the
// reader in core stays the judge, since a schema cannot say everything (references, files).
#include <frt/plugin.h>
#include <frt/io/json.hpp>

#include "runtime/report/manifest_report.hpp"

namespace frt::host {

using namespace core;

namespace {

using io::Json;

// Numbers and booleans have the same text in JSON; anything else is a string there.
Json literal(const std::string& text) {
  try {
    Json value = io::parse_json(text, "default", {.depth = 0});
    if (value.is_number() || value.is_boolean()) return value;
  } catch (const Error&) {
  }
  return text;
}

Json option_schema(const OptionSpec& option) {
  Json json;
  switch (option.type) {
    case FRT_CONFIG_BOOL:
      json["type"] = "boolean";
      break;
    case FRT_CONFIG_INT:
      json["type"] = "integer";
      break;
    case FRT_CONFIG_SIZE:
      json["type"] = {"integer", "string"};
      json["pattern"] = "^[0-9]+(\\.[0-9]+)?[kKMGT]?$";
      break;
    case FRT_CONFIG_FLOAT:
      json["type"] = "number";
      break;
    case FRT_CONFIG_ENUM:
      json["enum"] = option.choices;
      break;
    default:
      json["type"] = "string";
  }
  if (option.minimum != 0 || option.maximum != 0) {
    json["minimum"] = option.minimum;
    json["maximum"] = option.maximum;
  } else if (option.type == FRT_CONFIG_SIZE) {
    json["minimum"] = 0;
  }
  if (option.default_text) {
    const std::string& text = *option.default_text;
    json["default"] = option.type <= FRT_CONFIG_FLOAT ? literal(text) : Json(text);
  }
  if (!option.doc.empty()) json["description"] = option.doc;
  return json;
}

// A table that takes exactly these keys, and keys that start with "x-".
Json table_schema(const std::vector<OptionSpec>& options) {
  Json json = {{"type", "object"}, {"properties", Json::object()}};
  Json required = Json::array();
  for (const OptionSpec& option : options) {
    json["properties"][option.key] = option_schema(option);
    if (!option.default_text) required.push_back(option.key);
  }
  if (!required.empty()) json["required"] = required;
  json["patternProperties"] = {{"^x-", Json::object()}};
  json["additionalProperties"] = false;
  return json;
}

// "if KEY is VALUE then `options` looks so": one per plugin.
Json options_condition(const char* key, const std::string& id, const Json& options) {
  return {{"if", {{"properties", {{key, {{"const", id}}}}}}},
          {"then", {{"properties", {{"options", options}}}}}};
}

// Tables [kind.NAME] of one form.
Json named_tables(Json table) {
  return {{"type", "object"},
          {"patternProperties", {{"^x-", Json::object()}}},
          {"additionalProperties", std::move(table)}};
}

}  // namespace

std::string manifest_json_schema(const std::vector<HostSchema>& hosts,
                                 const std::vector<PluginSchema>& plugins) {
  Json device = table_schema(device_table_options());
  Json model = table_schema(model_table_options());
  Json environment = table_schema(environment_table_options());
  Json plugin_options = {{"type", "object"}, {"properties", Json::object()}};
  for (Json* table : {&device, &model, &environment}) {
    (*table)["properties"]["options"] = {{"type", "object"}};
  }
  for (const PluginSchema& plugin : plugins) {
    const Json options = table_schema(plugin.schema.options);
    if (plugin.kind == FRT_PLUGIN_BACKEND) {
      device["allOf"].push_back(options_condition("backend", plugin.id, options));
    } else if (plugin.kind == FRT_PLUGIN_ENVIRONMENT) {
      environment["allOf"].push_back(options_condition("plugin", plugin.id, options));
    } else {
      model["allOf"].push_back(options_condition("plugin", plugin.id, options));
    }
    plugin_options["properties"][plugin.id] = table_schema(plugin.schema.plugin_options);
  }
  Json host = {{"type", "object"}, {"properties", Json::object()}};
  for (const HostSchema& schema : hosts) {
    Json table = table_schema(schema.options);
    table["properties"]["type"] = {
        {"type", "string"},
        {"default", schema.type},
        {"description", "the kind of host, where the table has another name than its kind"}};
    if (!schema.doc.empty()) table["description"] = schema.doc;
    host["properties"][schema.type] = std::move(table);
  }
  const Json json = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "FRT manifest"},
      {"type", "object"},
      {"required", {"schema"}},
      {"properties",
       {{"schema", {{"const", 1}}},
        {"plugin", {{"type", "array"}, {"items", table_schema(plugin_table_options())}}},
        {"plugin-options", plugin_options},
        {"device", named_tables(std::move(device))},
        {"model", named_tables(std::move(model))},
        {"environment", named_tables(std::move(environment))},
        {"host", host}}},
      {"patternProperties", {{"^x-", Json::object()}}},
      {"additionalProperties", false}};
  return json.dump(2);
}

}  // namespace frt::host
