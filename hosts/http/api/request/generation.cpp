// SPDX-License-Identifier: Apache-2.0
#include "http/api/request/generation.hpp"

#include <algorithm>
#include <charconv>
#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/io/utf8.hpp>
#include <limits>
#include <utility>

#include "http/api/request/tools.hpp"

namespace frt::host::api {

namespace {

constexpr double kLargestPenalty = 1000;
constexpr std::size_t kLongestModel = 256;

std::optional<float> read_float(const Fields& body, std::string_view name, double least,
                                double most) {
  const std::optional<double> value = body.number(name, least, most);
  if (!value) return {};
  return static_cast<float>(*value);
}

// A whole number of 64 bits, with or without a sign.
std::optional<uint64_t> read_seed(const Fields& body) {
  const Json* value = body.find("seed");
  if (!value) return {};
  if (!value->is_number_integer()) {
    refuse(body.path_of("seed"),
           "is " + shown_value(*value) + ": give a whole number of at most 64 bits");
  }
  return value->is_number_unsigned() ? value->get<uint64_t>()
                                     : static_cast<uint64_t>(value->get<int64_t>());
}

// 0 and -1 are "off".
std::optional<int32_t> read_top_k(const Fields& body) {
  const Json* value = body.find("top_k");
  if (!value) return {};
  if (value->is_number_integer() && !value->is_number_unsigned() && value->get<int64_t>() == -1) {
    return 0;
  }
  const auto k = body.count("top_k", 0, std::numeric_limits<int32_t>::max());
  return static_cast<int32_t>(*k);
}

Json parse_text_schema(const std::string& text, const std::string& path, const ApiLimits& limits) {
  try {
    return io::parse_json(text, path, {limits.schema, limits.depth, limits.values});
  } catch (const Error& error) {
    refuse(path, std::string("cannot be read as JSON: ") + error.what());
  }
}

}  // namespace

std::string read_model(const Fields& body) {
  std::string model = body.text("model").value_or("");
  if (model.size() > kLongestModel) {
    refuse(body.path_of("model"), "has more than " + std::to_string(kLongestModel) + " bytes");
  }
  return model;
}

SamplingChoice read_sampling(const Fields& body) {
  // The least positive float: resolve_sampling() takes values of more than 0.
  constexpr double kLeast = std::numeric_limits<float>::min();
  SamplingChoice choice;
  choice.temperature = read_float(body, "temperature", 0, 2);
  choice.top_p = read_float(body, "top_p", 0, 1);
  if (choice.top_p == 0.0f) choice.top_p = kLeast;  // the most probable token alone
  choice.min_p = read_float(body, "min_p", 0, 0.999999);
  choice.top_k = read_top_k(body);
  choice.presence_penalty = read_float(body, "presence_penalty", -2, 2);
  choice.frequency_penalty = read_float(body, "frequency_penalty", -2, 2);
  choice.repetition_penalty = read_float(body, "repetition_penalty", kLeast, kLargestPenalty);
  choice.seed = read_seed(body);
  return choice;
}

std::vector<frt_logit_bias> read_bias(const Fields& body, const ApiLimits& limits) {
  constexpr double kMost = 100;
  std::vector<frt_logit_bias> all;
  const auto given = body.object("logit_bias");
  if (!given) return all;
  const Json& members = *body.find("logit_bias");
  if (members.size() > limits.biases) {
    refuse(given->path(), "has " + std::to_string(members.size()) + " tokens: give at most " +
                              std::to_string(limits.biases));
  }
  all.reserve(members.size());
  for (const auto& [name, value] : members.items()) {
    int32_t id = -1;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), id);
    // One way to write an id, so that no id is there twice.
    if (read.ec != std::errc() || id < 0 || std::to_string(id) != name) {
      refuse(given->path(), "has " + io::quote(name) + ": give ids of tokens in decimal");
    }
    if (const auto bias = given->number(name, -kMost, kMost)) {
      all.push_back({id, static_cast<float>(*bias)});
    }
  }
  return all;
}

std::optional<uint64_t> read_max_tokens(const Fields& body, std::string_view name, uint64_t least,
                                        const ApiLimits& limits) {
  const Json* given = body.find(name);
  if (given && !given->is_number_unsigned() && *given == -1) return {};
  const auto value = body.count(name, least, std::numeric_limits<int64_t>::max());
  if (!value) return {};
  return std::min(*value, limits.max_tokens);
}

std::vector<std::string> read_stops(const Fields& body, std::string_view name,
                                    const ApiLimits& limits) {
  const Json* value = body.find(name);
  if (!value) return {};
  std::vector<std::string> stops;
  const auto add = [&](const Json& stop, const std::string& path) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty() ||
        stop.get_ref<const std::string&>().size() > limits.stop_bytes) {
      refuse(path, "is " + shown_value(stop) + ": give a text of 1 to " +
                       std::to_string(limits.stop_bytes) + " bytes");
    }
    stops.push_back(stop);
  };
  if (value->is_string()) {
    add(*value, body.path_of(name));
    return stops;
  }
  for (const Json& stop : *body.array(name, limits.stops)) {
    add(stop, body.path_of(name) + "[" + std::to_string(stops.size()) + "]");
  }
  return stops;
}

uint64_t read_min_tokens(const Fields& body) {
  if (body.boolean("ignore_eos").value_or(false)) return std::numeric_limits<uint64_t>::max();
  return body.count("min_tokens", 0, std::numeric_limits<int64_t>::max()).value_or(0);
}

void read_effort(const Fields& fields, std::string_view name, Json& chat_options) {
  static constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                                  "high", "xhigh",   "max"};
  const auto effort = fields.text(name);
  if (!effort) return;
  if (std::find(std::begin(kEfforts), std::end(kEfforts), *effort) == std::end(kEfforts)) {
    refuse(fields.path_of(name),
           "is " + io::quote(*effort) + ": give none, minimal, low, medium, high, xhigh or max");
  }
  if (!chat_options.contains("enable_thinking")) {
    chat_options["enable_thinking"] = *effort != "none";
  }
}

void default_preserve_thinking(ApiCall& call, bool has_reasoning) {
  if (call.chat_options.contains("preserve_thinking")) return;
  if (!call.tools.is_null() || has_reasoning) call.chat_options["preserve_thinking"] = true;
}

Json read_schema_format(const Fields& format, const ApiLimits& limits) {
  const auto schema = format.object("schema");
  if (!schema) refuse(format.path_of("schema"), "is missing: give a JSON schema");
  const Json& value = *format.find("schema");
  check_schema(value, schema->path(), limits);
  Json result = {{"type", "json_schema"}, {"schema", value}};
  if (auto name = format.text("name")) result["name"] = *std::move(name);
  if (const auto strict = format.boolean("strict")) result["strict"] = *strict;
  return result;
}

void read_guides(const Fields& body, const ApiLimits& limits, ApiCall& call) {
  const auto set = [&](const Fields& owner, std::string_view name, Json format) {
    const std::string field = owner.path_of(name);
    if (!call.response_format.is_null()) {
      refuse(field, "stands beside " + call.response_format_field + ": give one of them");
    }
    call.response_format = std::move(format);
    call.response_format_field = field;
  };
  const auto read_schema = [&](const Fields& owner, std::string_view name) {
    const Json* given = owner.find(name);
    if (!given) return;
    Json schema = *given;
    if (schema.is_string()) {  // vLLM takes a text, too
      schema = parse_text_schema(schema.get_ref<const std::string&>(), owner.path_of(name), limits);
    }
    check_schema(schema, owner.path_of(name), limits);
    set(owner, name, {{"type", "json_schema"}, {"schema", std::move(schema)}});
  };
  const auto read_text = [&](const Fields& owner, std::string_view name, const char* type,
                             const char* member) {
    auto text = owner.text(name);
    if (!text || text->empty()) return;
    if (text->size() > limits.schema) {
      refuse(owner.path_of(name), "has more than " + std::to_string(limits.schema) + " bytes");
    }
    set(owner, name, {{"type", type}, {member, *std::move(text)}});
  };
  const auto read_choice = [&](const Fields& owner, std::string_view name) {
    const Json* choices = owner.array(name, limits.choice_texts);
    if (!choices || choices->empty()) return;
    std::size_t bytes = 0;
    for (const Json& text : *choices) {
      if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
        refuse(owner.path_of(name), "has " + shown_value(text) + ": give texts that are not empty");
      }
      bytes += text.get_ref<const std::string&>().size();
    }
    if (bytes > limits.schema) {
      refuse(owner.path_of(name), "has more than " + std::to_string(limits.schema) + " bytes");
    }
    set(owner, name, {{"type", "choice"}, {"choices", *choices}});
  };
  read_schema(body, "guided_json");
  read_schema(body, "json_schema");
  read_text(body, "guided_regex", "regex", "pattern");
  read_text(body, "guided_grammar", "grammar", "grammar");
  read_text(body, "grammar", "grammar", "grammar");
  read_choice(body, "guided_choice");
  const auto outputs = body.object("structured_outputs");
  if (!outputs) return;
  read_schema(*outputs, "json");
  read_text(*outputs, "regex", "regex", "pattern");
  read_text(*outputs, "grammar", "grammar", "grammar");
  read_choice(*outputs, "choice");
  if (outputs->boolean("json_object").value_or(false)) {
    set(*outputs, "json_object", {{"type", "json_object"}});
  }
  outputs->refuse_if_set("structural_tag", "use json, regex, choice or grammar");
}

std::string read_session(ApiHeaders headers, const std::optional<std::string>& fallback) {
  static constexpr std::string_view kNames[] = {"x-claude-code-session-id", "session-id",
                                                "session_id", "x-session-id", "x-session-affinity"};
  const auto usable = [](const std::string& value) {
    return !value.empty() && value.size() <= kLongestSession;
  };
  for (const std::string_view name : kNames) {
    for (const auto& [header, value] : headers) {
      if (header == name && usable(value)) return value;
    }
  }
  return fallback && usable(*fallback) ? *fallback : std::string();
}

}  // namespace frt::host::api
