// SPDX-License-Identifier: Apache-2.0
// Parsing. With thinking on, the prompt ends inside <think>, so the text is reasoning up to the
// first </think>. What follows is content up to the first <tool_call>; then calls:
//   <tool_call>\n<function=NAME>\n(<parameter=KEY>\nVALUE\n</parameter>\n)*</function>\n</tool_call>
// A value loses one newline at each end. If the tool's schema says string (or says nothing), the
// value is the text as it stands; otherwise it is JSON, and the text if it is no JSON.
#include <frt/error.hpp>

#include <algorithm>
#include <optional>

#include "chat_format.hpp"

namespace frt::qwen36 {

using models::Json;

namespace {

constexpr std::string_view kThinkOpen = "<think>", kThinkClose = "</think>";
constexpr std::string_view kCallOpen = "<tool_call>", kCallClose = "</tool_call>";

// True if a value of this schema is to be taken as text.
bool takes_text(const Json& schema) {
  if (!schema.is_object()) return true;
  const auto type = schema.find("type");
  if (type != schema.end()) {
    if (type->is_string()) return *type == "string";
    return type->is_array() && std::find(type->begin(), type->end(), "string") != type->end();
  }
  for (const char* choice : {"anyOf", "oneOf"}) {
    const auto options = schema.find(choice);
    if (options != schema.end() && options->is_array()) {
      return std::any_of(options->begin(), options->end(), takes_text);
    }
  }
  return !schema.contains("enum") ||
         std::all_of(schema["enum"].begin(), schema["enum"].end(),
                     [](const Json& value) { return value.is_string(); });
}

// The schema of a tool's parameter, or null.
Json parameter_schema(const Json& tools, std::string_view function, const std::string& key) {
  if (!tools.is_array()) return {};
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const auto inner = tool.find("function");
    const Json& description = inner != tool.end() && inner->is_object() ? *inner : tool;
    if (description.value("name", Json()) != Json(function)) continue;
    const Json parameters = description.value("parameters", Json());
    if (!parameters.is_object()) return {};
    const Json properties = parameters.value("properties", Json());
    return properties.is_object() ? properties.value(key, Json()) : Json();
  }
  return {};
}

Json typed_value(std::string_view text, const Json& schema) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (!takes_text(schema)) {
    Json value = Json::parse(text, nullptr, false);
    if (!value.is_discarded()) return value;
  }
  return std::string(text);
}

// Reads from `text`, or says that it does not continue so.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  bool take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  std::optional<std::string_view> until(std::string_view token) {
    const std::size_t at = rest_.find(token);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view found = rest_.substr(0, at);
    rest_.remove_prefix(at + token.size());
    return found;
  }

 private:
  std::string_view rest_;
};

// The inside of one <tool_call>; nothing if it is malformed.
std::optional<Json> parse_call(std::string_view text, const Json& tools) {
  Cursor cursor(text);
  cursor.skip_space();
  if (!cursor.take("<function=")) return std::nullopt;
  const auto name = cursor.until(">");
  if (!name) return std::nullopt;
  Json arguments = Json::object();
  for (;;) {
    cursor.skip_space();
    if (cursor.take("</function>")) break;
    if (!cursor.take("<parameter=")) return std::nullopt;
    const auto key = cursor.until(">");
    const auto value = key ? cursor.until("</parameter>") : std::nullopt;
    if (!value) return std::nullopt;
    const std::string key_text(*key);
    arguments[key_text] = typed_value(*value, parameter_schema(tools, *name, key_text));
  }
  return Json{{"type", "function"},
              {"function", {{"name", std::string(*name)}, {"arguments", arguments.dump()}}}};
}

std::string_view trim_right(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

std::string_view trim_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text;
}

}  // namespace

Json parse_chat(std::string_view text, const Json& tools, const ChatOptions& options) {
  Json message = Json::object();
  bool complete = true;
  const bool opened = options.add_generation_prompt && options.enable_thinking;
  const std::string_view start = trim_left(text);
  if (opened || start.starts_with(kThinkOpen)) {
    if (start.starts_with(kThinkOpen)) text = start.substr(kThinkOpen.size());
    const std::size_t end = text.find(kThinkClose);
    complete = end != std::string_view::npos;
    message["content"] = "";
    message["reasoning_content"] = std::string(trim_left(trim_right(text.substr(0, end))));
    text = complete ? trim_left(text.substr(end + kThinkClose.size())) : std::string_view();
  }

  const std::size_t first_call = text.find(kCallOpen);
  message["content"] = std::string(
      first_call == std::string_view::npos ? text : trim_right(text.substr(0, first_call)));
  Json calls = Json::array();
  for (std::size_t at = first_call; at != std::string_view::npos;) {
    const std::size_t begin = at + kCallOpen.size();
    const std::size_t end = text.find(kCallClose, begin);
    if (end == std::string_view::npos) {
      complete = false;
      break;
    }
    if (std::optional<Json> call = parse_call(text.substr(begin, end - begin), tools)) {
      calls.push_back(std::move(*call));
    } else {
      // Not a call after all: the user sees what the model wrote.
      message["content"].get_ref<std::string&>() += text.substr(at, end + kCallClose.size() - at);
    }
    at = text.find(kCallOpen, end);
  }
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  message["complete"] = complete;
  return message;
}

Json read_generation_defaults(const std::filesystem::path& folder,
                              const std::vector<std::int32_t>& end_ids) {
  Json result = Json::object();
  const std::filesystem::path path = folder / "generation_config.json";
  std::vector<std::int32_t> stops = end_ids;
  if (std::filesystem::exists(path)) {
    const Json config = models::read_json_file(path);
    if (!config.is_object()) throw Error(FRT_ERR_FORMAT, path.string() + ": it is no object");
    for (const char* key : {"temperature", "top_p", "top_k", "min_p", "repetition_penalty",
                            "presence_penalty", "frequency_penalty"}) {
      const auto value = config.find(key);
      if (value == config.end() || value->is_null()) continue;
      if (!value->is_number()) {
        throw Error(FRT_ERR_FORMAT, path.string() + ": " + key + " is no number");
      }
      result[key] = *value;
    }
    if (config.value("do_sample", Json()) == Json(false)) result["temperature"] = 0;
    const auto end = config.find("eos_token_id");
    if (end != config.end() && !end->is_null()) {
      const Json list = end->is_array() ? *end : Json::array({*end});
      stops.clear();
      for (const Json& id : list) {
        if (!id.is_number_integer()) {
          throw Error(FRT_ERR_FORMAT, path.string() + ": eos_token_id has an entry that is no id");
        }
        stops.push_back(id.get<std::int32_t>());
      }
    }
  }
  result["stop_token_ids"] = stops;
  return result;
}

}  // namespace frt::qwen36
