// SPDX-License-Identifier: Apache-2.0
// source.hpp - the grammar of an answer before it is compiled. Sources are values: equal ones give
// equal grammars.
//
// A source is a text in XGrammar's structural tag language (JSON), which has schemas, regular
// expressions, EBNF, tags, sequences and choices. Functions here throw FRT_ERR_INVALID_ARGUMENT for
// what comes from outside and cannot be done, with the place in it ("/properties/x/not").
// All are [any].
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::host {

struct GrammarSource {
  std::string text;
  // What the compiler would leave out of it is an error.
  bool strict = true;
  bool operator==(const GrammarSource&) const = default;
};

// A tool as far as its calls go.
struct GrammarTool {
  std::string name;
  nlohmann::ordered_json parameters;  // a JSON schema; null: no arguments
  bool strict = false;                // every bound of the schema holds
};

// Parts of an answer.
class GrammarPart {
 public:
  static GrammarPart json_object();
  // Held to the letter (enforceable_schema()).
  static GrammarPart json_schema(const nlohmann::ordered_json& schema);
  static GrammarPart regex(const std::string& pattern);
  // GBNF, as llama.cpp and XGrammar have it, from the rule "root" on.
  static GrammarPart ebnf(const std::string& text);
  static GrammarPart one_of(std::span<const std::string> texts);
  // Calls of these tools, one or more (`several`) and nothing else, as `form` ("calls" of
  // frt_chat_v1::answer_form) has them. The arguments of a tool that is not strict are held to
  // its relaxed_schema(): Claude Code's tools compile in 0.3 s so, else in 16; a call that misses a
  // bound is for the tool to refuse.
  static GrammarPart calls(const nlohmann::ordered_json& form, std::span<const GrammarTool> tools,
                           bool several);
  // Free text, in which calls may stand.
  static GrammarPart text_with_calls(const nlohmann::ordered_json& form,
                                     std::span<const GrammarTool> tools, bool several);

  // One of the two.
  static GrammarPart either(GrammarPart first, GrammarPart second);

  // The whole answer. `answer`: frt_chat_v1::answer_form, or null for a text without reasoning.
  GrammarSource source(const nlohmann::ordered_json& answer) const;

 private:
  GrammarPart(nlohmann::ordered_json format, bool strict)
      : format_(std::move(format)), strict_(strict) {}

  nlohmann::ordered_json format_;
  bool strict_;
};

}  // namespace frt::host
