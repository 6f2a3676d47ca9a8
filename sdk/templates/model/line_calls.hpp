// SPDX-License-Identifier: Apache-2.0
// Calls of tools in an answer: <call NAME>ARGUMENTS</call>, ARGUMENTS being one JSON object. A line
// feed behind a call belongs to it. All else is content, also a call of a tool that there is not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace acme {

inline constexpr std::string_view kCallBegin = "<call ", kCallName = ">", kCallEnd = "</call>";

// Which tools there are, of frt/chat.h's `tools`.
struct Tools {
  bool any = false;  // NULL
  std::vector<std::string> names;

  bool has(std::string_view name) const;
};
// Throws FRT_ERR_INVALID_ARGUMENT if the text is no list of tools.
Tools read_tools(const char* tools);

struct Call {
  std::string name;
  std::string arguments;  // JSON
};
struct Answer {
  std::string content;
  std::vector<Call> calls;
  bool complete = true;  // false: the text ends within a call
};

// `whole`: nothing follows `text`. Else what may become a call is left out, so that content and
// calls only grow with the text. Linear in the text.
Answer read_answer(std::string_view text, const Tools& tools, bool whole);

}  // namespace acme
