// SPDX-License-Identifier: Apache-2.0
// event.hpp - one piece of an answer that is written: reasoning, text or a part of a tool call.
#pragma once

#include <cstdint>
#include <string>

namespace frt::host {

struct ChatEvent {
  enum Kind { kReasoning, kText, kToolBegin, kToolArguments, kToolEnd };
  Kind kind = kText;
  uint32_t call = 0;        // kTool...: which one, 0, 1, ... Calls follow one another
  std::string text{};       // a piece, UTF-8, not empty; kToolBegin: the name; kToolEnd: empty
  bool unfinished = false;  // kToolEnd: the text ended in this call; values are missing
};

}  // namespace frt::host
