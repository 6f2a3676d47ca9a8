// SPDX-License-Identifier: Apache-2.0
#include "lm/grammar/source.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/json_schema.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <map>
#include <set>
#include <string_view>
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

// Of all tools of a request.
constexpr std::size_t kMostParameters = 16384;

// Schemas that are looked at for one value: references may go in circles, or double.
constexpr int kMostSchemas = 256;

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw Error(FRT_ERR_INVALID_ARGUMENT, place + " " + why);
}

// Texts that stand as they are in front of `end`. A strict schema holds as it does in JSON, or is
// refused with the place of what cannot hold; of others only enum and const are looked at.
class TextValues {
 public:
  TextValues(const Json& root, const std::string& end, bool strict) : root_(root), strict_(strict) {
    const std::size_t mark = end.find_first_not_of(" \n");
    const char first = mark == std::string::npos ? '\n' : end[mark];
    const bool escaped = std::string_view("\\]^-").find(first) != std::string_view::npos;
    other_ = std::string("[^") + (escaped ? "\\" : "") + first + "]";
  }

  Json read(const Json& given, const std::string& place) {
    const Json* schema = io::resolve_reference(given, root_);
    if (--left_ < 0 || !schema) {
      if (strict_) refuse(place, "refers to too many schemas, or to none");
      return any();
    }
    if (!schema->is_object()) return any();
    if (const auto value = schema->find("const"); value != schema->end()) {
      return literals(Json::array({*value}), place + "/const");
    }
    if (const auto values = schema->find("enum"); values != schema->end() && values->is_array()) {
      return literals(*values, place + "/enum");
    }
    if (!strict_) return any();
    for (const char* name : {"anyOf", "oneOf"}) {
      const auto found = schema->find(name);
      if (found != schema->end()) return read_choices(*found, place + "/" + name);
    }
    if (const auto all = schema->find("allOf"); all != schema->end()) {
      if (all->size() != 1) refuse(place + "/allOf", "is not enforced: give one schema");
      return read((*all)[0], place + "/allOf/0");
    }
    return read_string(*schema, place);
  }

 private:
  static Json any() { return {{"type", "any_text"}}; }

  Json literals(const Json& values, const std::string& place) const {
    Json texts = Json::array();
    for (const Json& value : values) {
      if (value.is_string()) texts.push_back(literal(value));
    }
    if (!texts.empty()) return any_of(std::move(texts));
    if (strict_) refuse(place, "has no text, and the value is written as one");
    return any();
  }

  // A value that is written as a text is one, so the choices that are none do not count.
  Json read_choices(const Json& choices, const std::string& place) {
    Json texts = Json::array();
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (!io::takes_text(choices[i], root_)) continue;
      Json text = read(choices[i], place + "/" + std::to_string(i));
      if (text == any()) return text;
      texts.push_back(std::move(text));
    }
    if (texts.empty()) refuse(place, "has no text, and the value is written as one");
    return any_of(std::move(texts));
  }

  Json read_string(const Json& schema, const std::string& place) const {
    if (schema.contains("format")) {
      refuse(place + "/format", "is not enforced in the calls of this model: give a pattern");
    }
    const auto least = schema.find("minLength"), most = schema.find("maxLength");
    const bool bounded = least != schema.end() || most != schema.end();
    if (const auto pattern = schema.find("pattern"); pattern != schema.end()) {
      if (bounded) refuse(place + "/pattern", "is not enforced beside a length: put it in here");
      return {{"type", "regex"}, {"pattern", *pattern}};
    }
    if (!bounded) return any();
    const auto bound = [&](const auto& found, const char* name) -> std::string {
      if (found == schema.end()) return "";
      if (!found->is_number_unsigned()) refuse(place + "/" + name, "is no number of characters");
      return std::to_string(found->template get<uint64_t>());
    };
    const std::string low = bound(least, "minLength"), high = bound(most, "maxLength");
    return {{"type", "regex"},
            {"pattern", other_ + "{" + (low.empty() ? "0" : low) + "," + high + "}"}};
  }

  const Json& root_;
  const bool strict_;
  std::string other_;  // a character that does not begin `end`
  int left_ = kMostSchemas;
};

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
    Json content = parameter_.empty() ? arguments(std::move(schema)) : parameters(tool, schema);
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

  Json parameters(const GrammarTool& tool, const Json& given) const {
    const Json* schema = io::resolve_reference(given, given);
    if (!schema || !schema->is_object()) {
      if (tool.strict) refuse("the schema", "says nothing of the parameters");
      return literal("");
    }
    if (tool.strict) check_parameters(*schema);
    if (const Json* more = undeclared(tool, *schema)) {
      return {{"type", "star"}, {"content", undeclared_parameter(tool, given, *more)}};
    }
    Json elements = Json::array();
    const auto properties = schema->find("properties");
    const auto required = schema->find("required");
    std::set<std::string_view> needed;
    if (required != schema->end()) {
      for (const Json& name : *required) needed.insert(name.get_ref<const std::string&>());
    }
    // As whoever reads the call decides: by the schema that the tool gave.
    std::map<std::string_view, const Json*> declared;
    if (const auto found = tool.parameters.find("properties");
        tool.parameters.is_object() && found != tool.parameters.end() && found->is_object()) {
      for (const auto& [key, value] : found->get_ref<const Json::object_t&>()) {
        declared.emplace(key, &value);
      }
    }
    const auto is_text = [&](const std::string& key, const Json& value) {
      const auto found = declared.find(key);
      return found == declared.end() ? io::takes_text(value, given)
                                     : io::takes_text(*found->second, tool.parameters);
    };
    if (properties != schema->end()) {
      for (const auto& [key, value] : properties->items()) {
        Json one = {{"type", "tag"},
                    {"begin", parameter_[0] + key + parameter_[1]},
                    {"content", value_of(tool, given, value, is_text(key, value),
                                         "/properties/" + key.substr(0, 64))},
                    {"end", parameter_[2]}};
        elements.push_back(needed.contains(key)
                               ? std::move(one)
                               : Json{{"type", "optional"}, {"content", std::move(one)}});
      }
    }
    return elements.empty() ? literal("") : sequence(std::move(elements));
  }

  Json value_of(const GrammarTool& tool, const Json& root, const Json& value, bool text,
                const std::string& place) const {
    if (!text) return json_value(with_definitions(value, root));
    return TextValues(root, parameter_[2], tool.strict).read(value, place);
  }

  // Values are held to their schemas here, what is said of all of them is not.
  static void check_parameters(const Json& schema) {
    for (const auto& [key, value] : schema.items()) {
      const bool held = key == "type" || key == "properties" || key == "required" ||
                        key == "additionalProperties" || key == "$defs" || key == "definitions";
      if (!held) refuse("/" + key.substr(0, 64), "is not enforced in the calls of this model");
    }
  }

  // The schema of parameters with any names, where a tool names none and does not say that it has
  // none; else null.
  static const Json* undeclared(const GrammarTool& tool, const Json& schema) {
    static const Json kAny = true;
    if (!tool.parameters.is_object()) return nullptr;
    const auto properties = schema.find("properties");
    if (properties != schema.end() && !properties->empty()) return nullptr;
    const auto more = schema.find("additionalProperties");
    if (more != schema.end() && *more == false) return nullptr;
    const bool empty = tool.parameters.contains("properties");
    if (empty && !tool.parameters.contains("additionalProperties")) return nullptr;
    return more == schema.end() ? &kAny : &*more;
  }

  Json undeclared_parameter(const GrammarTool& tool, const Json& root, const Json& schema) const {
    return sequence(
        Json::array({literal(parameter_[0]),
                     {{"type", "regex"}, {"pattern", "[A-Za-z0-9_.$-]{1,64}"}},
                     {{"type", "tag"},
                      {"begin", parameter_[1]},
                      {"content", value_of(tool, root, schema, io::takes_text(schema, root),
                                           "/additionalProperties")},
                      {"end", parameter_[2]}}}));
  }

  std::vector<std::string> begin_, parameter_;
  std::string end_;
};

bool any_strict(std::span<const GrammarTool> tools) {
  return std::ranges::any_of(tools, [](const GrammarTool& tool) { return tool.strict; });
}

Json tags_of(const Calls& calls, std::span<const GrammarTool> tools) {
  Json tags = Json::array();
  std::size_t parameters = 0;
  for (const GrammarTool& tool : tools) {
    if (const auto found = tool.parameters.find("properties");
        tool.parameters.is_object() && found != tool.parameters.end()) {
      parameters += found->size();
    }
    if (parameters > kMostParameters) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "the tools have more than " +
                                                std::to_string(kMostParameters) +
                                                " parameters: give fewer of them");
    }
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
