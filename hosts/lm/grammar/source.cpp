// SPDX-License-Identifier: Apache-2.0
#include "lm/grammar/source.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <utility>

#include "lm/grammar/schema.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

// White space that an answer may have between two parts of a JSON text: enough to indent it, and no
// more, for a model may write nothing else for ever.
constexpr int kMostSpace = 24;

Json literal(const std::string& text) {
  return {{"type", "const_string"}, {"value", text}};
}

Json sequence(Json elements) {
  if (elements.size() == 1) return elements[0];
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

Json any_of(Json elements) {
  if (elements.size() == 1) return elements[0];
  return {{"type", "or"}, {"elements", std::move(elements)}};
}

Json json_value(Json schema) {
  return {{"type", "json_schema"},
          {"json_schema", std::move(schema)},
          {"max_whitespace_cnt", kMostSpace}};
}

std::string text_at(const Json& form, const char* name) {
  const auto found = form.find(name);
  if (found == form.end() || !found->is_string()) {
    throw Error(FRT_ERR_FORMAT, "the form of an answer has no text \"" + std::string(name) + "\"");
  }
  return *found;
}

std::vector<std::string> texts_at(const Json& form, const char* name, std::size_t count) {
  const auto found = form.find(name);
  const bool fits = found != form.end() && found->is_array() && found->size() == count &&
                    std::ranges::all_of(*found, [](const Json& text) { return text.is_string(); });
  if (!fits) {
    throw Error(FRT_ERR_FORMAT, "the form of an answer has no list \"" + std::string(name) +
                                    "\" of " + std::to_string(count) + " texts");
  }
  return *found;
}

// Schemas that are looked at for one value: references may go in circles, or double.
constexpr int kMostSchemas = 256;

// Whether a value of this schema stands as it is in a call whose form has "parameter".
bool takes_text(const Json& given, const Json& root, int& left) {
  const Json* schema = resolve_reference(given, root);
  if (!schema || !schema->is_object() || --left < 0) return true;
  const auto type = schema->find("type");
  if (type != schema->end()) {
    if (type->is_string()) return *type == "string";
    return type->is_array() && std::ranges::find(*type, Json("string")) != type->end();
  }
  for (const char* choice : {"anyOf", "oneOf"}) {
    const auto options = schema->find(choice);
    if (options == schema->end() || !options->is_array()) continue;
    return std::ranges::any_of(*options,
                               [&](const Json& each) { return takes_text(each, root, left); });
  }
  const auto values = schema->find("enum");
  return values == schema->end() ||
         std::ranges::all_of(*values, [](const Json& value) { return value.is_string(); });
}

// A text that stands as it is.
Json text_value(const Json& given, const Json& root) {
  const Json* schema = resolve_reference(given, root);
  const Json none = Json::object();
  const Json& rules = schema && schema->is_object() ? *schema : none;
  if (const auto values = rules.find("enum"); values != rules.end()) {
    Json texts = Json::array();
    for (const Json& value : *values) {
      if (value.is_string() && !value.get_ref<const std::string&>().empty()) {
        texts.push_back(literal(value));
      }
    }
    if (!texts.empty()) return any_of(std::move(texts));
  }
  if (const auto value = rules.find("const");
      value != rules.end() && value->is_string() && *value != "") {
    return literal(*value);
  }
  return {{"type", "any_text"}};
}

// A schema within another one, with what it may refer to.
Json with_definitions(Json schema, const Json& root) {
  for (const char* name : {"$defs", "definitions"}) {
    if (schema.is_object() && root.contains(name) && !schema.contains(name)) {
      schema[name] = root[name];
    }
  }
  return schema;
}

class Calls {
 public:
  explicit Calls(const Json& form)
      : begin_(texts_at(form, "begin", 2)), end_(text_at(form, "end")) {
    if (form.contains("parameter")) parameter_ = texts_at(form, "parameter", 3);
  }

  const std::string& trigger() const { return begin_[0]; }

  Json tag(const GrammarTool& tool) const {
    const Json given = tool.parameters.is_object() ? tool.parameters : Json::object();
    Json schema = tool.strict ? enforceable_schema(given) : relaxed_schema(given);
    Json content = parameter_.empty() ? arguments(std::move(schema)) : parameters(schema);
    return {{"type", "tag"},
            {"begin", begin_[0] + tool.name + begin_[1]},
            {"content", std::move(content)},
            {"end", end_}};
  }

 private:
  static Json arguments(Json schema) {
    if (!schema.contains("type")) schema["type"] = "object";
    return json_value(std::move(schema));
  }

  Json parameters(const Json& schema) const {
    Json elements = Json::array();
    const auto properties = schema.find("properties");
    const auto required = schema.find("required");
    if (properties != schema.end()) {
      for (const auto& [key, value] : properties->items()) {
        int left = kMostSchemas;
        const bool text = takes_text(value, schema, left);
        Json one = {{"type", "tag"},
                    {"begin", parameter_[0] + key + parameter_[1]},
                    {"content", text ? text_value(value, schema)
                                     : json_value(with_definitions(value, schema))},
                    {"end", parameter_[2]}};
        const bool must =
            required != schema.end() && std::ranges::find(*required, Json(key)) != required->end();
        elements.push_back(must ? std::move(one)
                                : Json{{"type", "optional"}, {"content", std::move(one)}});
      }
    }
    return elements.empty() ? literal("") : sequence(std::move(elements));
  }

  std::vector<std::string> begin_, parameter_;
  std::string end_;
};

bool any_strict(std::span<const GrammarTool> tools) {
  return std::ranges::any_of(tools, [](const GrammarTool& tool) { return tool.strict; });
}

Json tags_of(const Calls& calls, std::span<const GrammarTool> tools) {
  Json tags = Json::array();
  for (const GrammarTool& tool : tools) {
    try {
      tags.push_back(calls.tag(tool));
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_INVALID_ARGUMENT) throw;
      throw Error(error.status(), "the tool " + io::quote(tool.name) + ": " + error.what());
    }
  }
  return tags;
}

}  // namespace

GrammarPart GrammarPart::json_object() {
  return {json_value({{"type", "object"}, {"additionalProperties", true}}), true};
}

GrammarPart GrammarPart::json_schema(const Json& schema) {
  return {json_value(enforceable_schema(schema)), true};
}

GrammarPart GrammarPart::regex(const std::string& pattern) {
  return {{{"type", "regex"}, {"pattern", pattern}}, true};
}

GrammarPart GrammarPart::ebnf(const std::string& text) {
  return {{{"type", "grammar"}, {"grammar", text}}, true};
}

GrammarPart GrammarPart::one_of(std::span<const std::string> texts) {
  Json elements = Json::array();
  for (const std::string& text : texts) elements.push_back(literal(text));
  if (elements.empty()) throw Error(FRT_ERR_INVALID_ARGUMENT, "there is no text to choose");
  return {any_of(std::move(elements)), true};
}

GrammarPart GrammarPart::calls(const Json& form, std::span<const GrammarTool> tools, bool several) {
  return {{{"type", "tags_with_separator"},
           {"tags", tags_of(Calls(form), tools)},
           {"separator", text_at(form, "separator")},
           {"at_least_one", true},
           {"stop_after_first", !several}},
          any_strict(tools)};
}

GrammarPart GrammarPart::text_with_calls(const Json& form, std::span<const GrammarTool> tools,
                                         bool several) {
  const Calls calls(form);
  return {{{"type", "triggered_tags"},
           {"triggers", Json::array({calls.trigger()})},
           {"tags", tags_of(calls, tools)},
           {"at_least_one", false},
           {"stop_after_first", !several}},
          any_strict(tools)};
}

GrammarPart GrammarPart::either(GrammarPart first, GrammarPart second) {
  Json elements = Json::array({std::move(first.format_), std::move(second.format_)});
  return {any_of(std::move(elements)), first.strict_ || second.strict_};
}

GrammarSource GrammarPart::source(const Json& answer) const {
  Json format = format_;
  if (const auto found = answer.find("reasoning"); answer.is_object() && found != answer.end()) {
    const std::string then = text_at(*found, "then");
    Json elements = Json::array({{{"type", "tag"},
                                  {"begin", ""},
                                  {"content", {{"type", "any_text"}}},
                                  {"end", text_at(*found, "end")}}});
    if (!then.empty()) elements.push_back(literal(then));
    elements.push_back(std::move(format));
    format = sequence(std::move(elements));
  }
  const Json tag = {{"type", "structural_tag"}, {"format", std::move(format)}};
  return {io::json_text(tag), strict_};
}

}  // namespace frt::host
