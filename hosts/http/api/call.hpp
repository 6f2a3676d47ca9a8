// SPDX-License-Identifier: Apache-2.0
// call.hpp - what a client asks for, whatever its protocol: checked whole, ready to be rendered.
//
// Messages, tools and options have the shapes of frt/chat.h. The rules of request/hygiene.hpp are
// applied: lines that change with every request are gone, one system message comes first, contents
// are text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lm/sampling.hpp"

namespace frt::host {

// A tool as its client knows it. The model knows all of them as functions; a custom tool, which
// takes free text, is a function of one text parameter, "input".
struct ApiTool {
  std::string name;         // for the model, unique; that of ApiCall::tools[i]
  std::string client_name;  // what the client calls it
  std::string space;        // the Responses namespace that holds it; empty: none
  bool custom = false;
  bool strict = false;  // its calls keep to every bound of its schema
};

struct ApiToolChoice {
  enum Mode { kAuto, kNone, kRequired, kNamed };
  Mode mode = kAuto;
  std::string name{};  // kNamed: an ApiTool::name
};

struct ApiCall {
  enum class Kind { kChat, kText };  // kText: /v1/completions
  Kind kind = Kind::kChat;
  std::string model;  // empty: the client named none
  bool stream = false;

  // ---- kChat ----
  nlohmann::ordered_json messages;      // an array, not empty
  nlohmann::ordered_json tools;         // an array, or null
  nlohmann::ordered_json chat_options;  // an object: "enable_thinking", "preserve_thinking" if said
  std::vector<ApiTool> tool_names;      // one for each entry of `tools`
  // Tools that a provider would run itself (web_search, ...). There is nobody to run them here, so
  // the model is not told of them.
  std::vector<std::string> tools_left_out;
  ApiToolChoice tool_choice;
  bool parallel_tool_calls = true;  // false: what follows the first call of an answer is left out

  // ---- kText ----
  // Text or ids, not empty. Choice p * choices + i of the reply is answer i to prompt p. Ids are
  // not negative; the vocabulary is not known here.
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts;
  bool echo = false;  // the answer begins with the prompt
  // More than `choices`: so many answers to each prompt are made, and the `choices` of them whose
  // tokens have the highest mean log probability are the reply, the best first. 0: those of the
  // reply are made. Not with `stream`.
  uint32_t best_of = 0;

  uint32_t answers() const noexcept { return best_of > choices ? best_of : choices; }
  // Whether the log probabilities of the prompt's own tokens are told, too.
  bool scores_prompt() const noexcept { return echo && log_probabilities; }

  // ---- generation ----
  SamplingChoice sampling;  // within the ranges of resolve_sampling()
  // Added to the logits of tokens, -100 .. 100; each id once, not negative. The vocabulary is not
  // known here.
  std::vector<frt_logit_bias> logit_bias;
  std::optional<uint64_t> max_tokens;  // at most ApiLimits::max_tokens; absent: as many as fit
  uint64_t min_tokens = 0;             // UINT64_MAX: no stop token ends the answer
  std::vector<std::string> stop;       // not empty strings
  uint32_t choices = 1;                // answers to each prompt
  bool log_probabilities = false;
  uint32_t top_log_probabilities = 0;  // of other tokens at each place
  // What the answer must be: null, {"type": "json_object"}, {"type": "json_schema", "schema", ...},
  // {"type": "regex", "pattern"}, {"type": "grammar", "grammar"} (GBNF) or {"type": "choice",
  // "choices"}.
  nlohmann::ordered_json response_format;
  std::string response_format_field;  // the field that says so: "response_format"

  // ---- reply ----
  bool include_usage = false;  // a stream ends with a usage record
  // A hint which requests belong to one conversation, from a header or the body; empty: none. It
  // comes from outside: a key for a map, never a name of a file.
  std::string session;

  bool demands_call() const noexcept {
    return tool_choice.mode == ApiToolChoice::kRequired ||
           tool_choice.mode == ApiToolChoice::kNamed;
  }
};

}  // namespace frt::host
