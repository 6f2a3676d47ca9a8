// SPDX-License-Identifier: Apache-2.0
// Parsing. With thinking on, the prompt ends inside <think>, so the text is reasoning up to the
// first </think>. What follows is content with calls in it:
//
//   <tool_call>\n(<function=NAME>\n(<parameter=KEY>\nVALUE\n</parameter>\n)*</function>\n)+</tool_call>
//
// White space between tags is free. Nothing that the model wrote is lost or rewritten: what is no
// call stays content, tags included.
//
// A call begins where <function=NAME> follows <tool_call> or another call of the block, and NAME is
// declared (any name, if no tools were given). Prose that mentions the tags begins none.
//
// A value may hold any text, the tags themselves too. It ends at the first
//   </parameter>       that <parameter= or an ending </function> follows;
//   <parameter=KEY>    that starts a line, if the function has KEY and the call has it not yet;
//   </function>        that ends: </tool_call>, <function= or the end of a final text follows.
// The last two serve models that forget </parameter>. A value loses one newline at each end. If the
// tool's schema says string (or says nothing), the value is the text as it stands; otherwise it is
// JSON, copied digit for digit, and the text if it is no JSON.
//
// A call inside reasoning counts only if the reasoning is never closed, hence only in a final text,
// and only if tools were given: some models end that way, but they also write down calls that they
// decide against.
//
// The time is linear: a call that fails is text up to where it failed, and reading goes on there.
#include <frt/error.hpp>
#include <frt/io/json_text.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "chat_format.hpp"

namespace frt::qwen36 {

using models::Json;

namespace {

constexpr std::string_view kThinkOpen = "<think>", kThinkClose = "</think>";
constexpr std::string_view kCallOpen = "<tool_call>", kCallClose = "</tool_call>";
constexpr std::string_view kFunctionOpen = "<function=", kFunctionClose = "</function>";
constexpr std::string_view kParameterOpen = "<parameter=", kParameterClose = "</parameter>";
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kNowhere = std::string_view::npos;

std::string_view trim_right(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kSpace);
  return text.substr(0, last == kNowhere ? 0 : last + 1);
}

std::string_view trim_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text;
}

std::string_view trim(std::string_view text) {
  return trim_left(trim_right(text));
}

// ---- tools ---------------------------------------------------------------------------------

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

// The declared functions and the schemas of their parameters.
class Tools {
 public:
  using Schemas = std::map<std::string, const Json*, std::less<>>;

  explicit Tools(const Json& tools) {
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
      for (const auto& [key, schema] : properties->items()) entry->second.emplace(key, &schema);
    }
  }

  bool empty() const { return functions_.empty(); }
  bool declares(std::string_view function) const {
    return functions_.empty() || functions_.contains(function);
  }
  // Those of a function; empty if it declares none.
  const Schemas& schemas(std::string_view function) const {
    static const Schemas kNone;
    const auto found = functions_.find(function);
    return found == functions_.end() ? kNone : found->second;
  }

 private:
  std::map<std::string, Schemas, std::less<>> functions_;
};

// How deep a value may nest: in a conversation it stands seven levels down, and all of it is read
// again with the usual limit.
constexpr std::size_t kValueDepth = io::JsonLimits{}.depth - 7;

// A value as JSON text: as it stands where it is JSON and no text is wanted, else as a JSON string.
std::string json_value(std::string_view text, const Json* schema) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (schema && !takes_text(*schema)) {
    try {
      io::parse_json(text, "value", {.depth = kValueDepth});
      return std::string(trim(text));
    } catch (const Error&) {
      // No JSON, or nested too deep to be handed on: it stays text.
    }
  }
  return models::python_json(Json(std::string(text)));
}

// ---- calls ---------------------------------------------------------------------------------

// Takes the calls out of a text.
class CallReader {
 public:
  // A final text is all there is; another one may go on.
  CallReader(std::string_view text, const Tools& tools, bool final)
      : text_(text), tools_(tools), final_(final) {}

  void run() {
    for (std::size_t at = 0; at != kNowhere;) {
      const std::size_t open = next(at);
      add_text(at, open);
      at = open == kNowhere ? kNowhere : read_block(open);
    }
  }

  // Where the first <tool_call> from `at` on is that begins a call or, where the text may go on,
  // could begin one.
  std::size_t next(std::size_t at) const {
    for (; (at = text_.find('<', at)) != kNowhere; ++at) {
      if (ends_within(at, kCallOpen)) return at;
      if (!stands(at, kCallOpen)) continue;
      const std::size_t inside = skip_space(at + kCallOpen.size());
      if (function_at(inside) || name_may_come(inside)) return at;
    }
    return kNowhere;
  }

  // What is no call. White space around calls is not kept.
  const std::string& rest() const { return rest_; }
  Json& calls() { return calls_; }
  // A call began and the text ended in it. In a text that may go on, rest() has nothing of it.
  bool unfinished() const { return unfinished_; }

 private:
  struct Tag {
    std::string_view name;  // of the function, or of the parameter
    std::size_t end;        // behind the tag
  };
  enum class Result { kDone, kFailed, kUnfinished };

  bool stands(std::size_t at, std::string_view token) const {
    return text_.substr(std::min(at, text_.size())).starts_with(token);
  }
  // The text may go on, and ends at `at` or inside a `token` there.
  bool ends_within(std::size_t at, std::string_view token) const {
    const std::string_view there = text_.substr(std::min(at, text_.size()));
    return !final_ && there.size() < token.size() && token.starts_with(there);
  }
  std::size_t skip_space(std::size_t at) const {
    return std::min(text_.find_first_not_of(kSpace, at), text_.size());
  }

  // "<opening" NAME ">"; a name is on one line.
  std::optional<Tag> tag_at(std::size_t at, std::string_view opening) const {
    if (!stands(at, opening)) return std::nullopt;
    const std::size_t begin = at + opening.size();
    const std::size_t end = text_.find_first_of("<>\n", begin);
    if (end == kNowhere || end == begin || text_[end] != '>') return std::nullopt;
    return Tag{text_.substr(begin, end - begin), end + 1};
  }
  std::optional<Tag> function_at(std::size_t at) const {
    const auto tag = tag_at(at, kFunctionOpen);
    return tag && tools_.declares(tag->name) ? tag : std::nullopt;
  }
  // The text may go on, and ends inside "<opening" NAME.
  bool tag_may_come(std::size_t at, std::string_view opening) const {
    if (ends_within(at, opening)) return true;
    return !final_ && stands(at, opening) &&
           text_.find_first_of("<>\n", at + opening.size()) == kNowhere;
  }
  bool name_may_come(std::size_t at) const { return tag_may_come(at, kFunctionOpen); }

  // Reads the block whose <tool_call> is at `open`; returns where to go on, kNowhere at the end.
  std::size_t read_block(std::size_t open) {
    std::size_t begin = open;  // of what becomes text if it is no call
    std::size_t at = skip_space(open + kCallOpen.size());
    for (;;) {
      if (name_may_come(at)) return stop();
      const auto function = function_at(at);
      if (!function) {
        add_text(begin, at);
        return at;
      }
      std::string arguments;
      at = function->end;
      const Result result = read_arguments(function->name, at, arguments);
      if (result == Result::kUnfinished) {
        if (!final_) return stop();
        unfinished_ = true;
      }
      if (result != Result::kDone) {
        add_text(begin, at);
        return at;
      }
      add_call(function->name, arguments);
      begin = at = skip_space(at);
      if (stands(at, kCallClose)) return at + kCallClose.size();
    }
  }

  std::size_t stop() {
    unfinished_ = true;
    rest_.resize(trim_right(rest_).size());
    return kNowhere;
  }

  // Reads the parameters from `at` to behind </function>, as the inside of a JSON object. Else
  // `at` is where it failed.
  Result read_arguments(std::string_view function, std::size_t& at, std::string& arguments) {
    const Tools::Schemas& schemas = tools_.schemas(function);
    std::set<std::string_view> given;
    for (;;) {
      at = skip_space(at);
      if (stands(at, kFunctionClose)) {
        const Result end = function_ends(at);
        at += end == Result::kDone ? kFunctionClose.size() : 0;
        return end;
      }
      if (ends_within(at, kFunctionClose) || tag_may_come(at, kParameterOpen)) {
        return Result::kUnfinished;
      }
      const auto parameter = tag_at(at, kParameterOpen);
      if (!parameter || !given.insert(parameter->name).second) return Result::kFailed;
      std::size_t next = parameter->end;
      const auto value = read_value(next, schemas, given);
      if (!value) {
        at = text_.size();
        return Result::kUnfinished;
      }
      at = next;
      const auto schema = schemas.find(parameter->name);
      if (!arguments.empty()) arguments += ", ";
      arguments += models::python_json(Json(std::string(parameter->name))) + ": " +
                   json_value(*value, schema == schemas.end() ? nullptr : schema->second);
    }
  }

  // Whether the </function> at `at` is one, or part of a value.
  Result function_ends(std::size_t at) const {
    const std::size_t after = skip_space(at + kFunctionClose.size());
    if (stands(after, kCallClose) || stands(after, kFunctionOpen)) return Result::kDone;
    if (final_ && after == text_.size()) return Result::kDone;
    const bool cut = ends_within(after, kCallClose) || ends_within(after, kFunctionOpen);
    return cut ? Result::kUnfinished : Result::kFailed;
  }

  // The value that begins at `at`; `at` moves behind it and its </parameter>. Nothing: the text
  // ends first.
  std::optional<std::string_view> read_value(std::size_t& at, const Tools::Schemas& schemas,
                                             const std::set<std::string_view>& given) const {
    const std::size_t begin = at;
    for (std::size_t here = begin; (here = text_.find('<', here)) != kNowhere; ++here) {
      std::size_t end = kNowhere;
      if (stands(here, kParameterClose)) {
        const std::size_t after = skip_space(here + kParameterClose.size());
        const bool ends = stands(after, kParameterOpen) ||
                          (stands(after, kFunctionClose) && function_ends(after) == Result::kDone);
        if (ends) end = after;
      } else if (stands(here, kParameterOpen)) {
        const auto tag = tag_at(here, kParameterOpen);
        const bool new_line = here > 0 && text_[here - 1] == '\n';
        if (new_line && tag && !given.contains(tag->name) &&
            (schemas.empty() || schemas.contains(tag->name))) {
          end = here;
        }
      } else if (stands(here, kFunctionClose) && function_ends(here) == Result::kDone) {
        end = here;
      }
      if (end == kNowhere) continue;
      at = end;
      return text_.substr(begin, here - begin);
    }
    return std::nullopt;
  }

  void add_call(std::string_view name, const std::string& arguments) {
    calls_.push_back(
        {{"type", "function"},
         {"function", {{"name", std::string(name)}, {"arguments", "{" + arguments + "}"}}}});
    rest_.resize(trim_right(rest_).size());
    after_call_ = true;
  }

  void add_text(std::size_t begin, std::size_t end) {
    std::string_view text = text_.substr(begin, end == kNowhere ? end : end - begin);
    if (after_call_) {
      text = trim_left(text);
      if (text.empty()) return;
      if (!rest_.empty()) rest_ += '\n';
      after_call_ = false;
    }
    rest_ += text;
  }

  std::string_view text_;
  const Tools& tools_;
  bool final_;
  std::string rest_;
  Json calls_ = Json::array();
  bool after_call_ = false;
  bool unfinished_ = false;
};

// How much of `text` stands whatever follows, if `token` may come.
std::size_t decided(std::string_view text, std::string_view token) {
  for (std::size_t length = std::min(token.size() - 1, text.size()); length > 0; --length) {
    if (text.ends_with(token.substr(0, length))) return text.size() - length;
  }
  return text.size();
}

}  // namespace

Json parse_chat(std::string_view text, const Json& tools, const ChatOptions& options, bool final) {
  const Tools declared(tools);
  Json message = {{"content", ""}};
  Json calls;
  bool complete = true;
  const bool opened = options.add_generation_prompt && options.enable_thinking;
  std::string_view start = trim_left(text);
  if (!final && start.size() < kThinkOpen.size() && kThinkOpen.starts_with(start)) {
    start = text = {};  // it may yet be <think>
  }
  if (opened || start.starts_with(kThinkOpen)) {
    if (start.starts_with(kThinkOpen)) text = start.substr(kThinkOpen.size());
    const std::size_t end = text.find(kThinkClose);
    std::string_view thought = text.substr(0, end);
    CallReader reader(thought, declared, final);
    if (end != kNowhere) {
      text = trim_left(text.substr(end + kThinkClose.size()));
    } else if (final && !declared.empty()) {
      text = {};
      reader.run();
      thought = reader.rest();
      calls = std::move(reader.calls());
      complete = !calls.empty() && !reader.unfinished();
    } else {
      text = {};
      complete = false;
      if (!final) thought = thought.substr(0, decided(thought, kThinkClose));
      if (!final && !declared.empty()) thought = thought.substr(0, reader.next(0));
    }
    message["reasoning_content"] = std::string(trim(thought));
  }
  if (!text.empty()) {
    CallReader reader(text, declared, final);
    reader.run();
    message["content"] = std::string(final ? reader.rest() : trim_right(reader.rest()));
    calls = std::move(reader.calls());
    complete = complete && !reader.unfinished();
  }
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  message["complete"] = complete;
  return message;
}

namespace {

// What sampling takes, as a person reads it and as it is checked.
struct SamplingRange {
  const char* key;
  const char* text;
  bool (*holds)(double value);
};

bool fits_float(double value) {
  return std::abs(value) <= std::numeric_limits<float>::max();
}

constexpr SamplingRange kSamplingRanges[] = {
    {"temperature", "0 (greedy) or a positive number",
     [](double value) { return value >= 0 && fits_float(value); }},
    {"top_p", "more than 0, at most 1", [](double value) { return value > 0 && value <= 1; }},
    {"top_k", "0 (off) or a positive whole number",
     [](double value) {
       return value >= 0 && value <= std::numeric_limits<std::int32_t>::max() &&
              value == std::floor(value);
     }},
    {"min_p", "0 or more, less than 1", [](double value) { return value >= 0 && value < 1; }},
    {"repetition_penalty", "a positive number; 1 is off",
     [](double value) { return value > 0 && fits_float(value); }},
    {"presence_penalty", "a number; 0 is off", fits_float},
    {"frequency_penalty", "a number; 0 is off", fits_float}};

}  // namespace

Json read_generation_defaults(const std::filesystem::path& folder,
                              const std::vector<std::int32_t>& end_ids) {
  Json result = Json::object();
  const std::filesystem::path path = folder / "generation_config.json";
  std::vector<std::int32_t> stops = end_ids;
  if (std::filesystem::exists(path)) {
    const Json config = io::read_json_file(path);
    if (!config.is_object()) throw Error(FRT_ERR_FORMAT, path.string() + ": it is no object");
    for (const SamplingRange& range : kSamplingRanges) {
      const auto value = config.find(range.key);
      if (value == config.end() || value->is_null()) continue;
      if (!value->is_number()) {
        throw Error(FRT_ERR_FORMAT, path.string() + ": " + range.key + " is no number");
      }
      if (!range.holds(value->get<double>())) {
        throw Error(FRT_ERR_FORMAT, path.string() + ": " + range.key + " is " +
                                        io::json_text(*value) + "; write " + range.text);
      }
      result[range.key] = *value;
    }
    // A whole number may be written with a point.
    if (result.contains("top_k")) result["top_k"] = result["top_k"].get<std::int32_t>();
    if (config.value("do_sample", Json()) == Json(false)) result["temperature"] = 0;
    const auto end = config.find("eos_token_id");
    if (end != config.end() && !end->is_null()) {
      const Json list = end->is_array() ? *end : Json::array({*end});
      stops.clear();
      for (const Json& id : list) {
        if (!id.is_number_unsigned() || !std::in_range<std::int32_t>(id.get<std::uint64_t>())) {
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
