// SPDX-License-Identifier: Apache-2.0
// text_probabilities.hpp - which of the tokens' probabilities belong to the text of an answer.
//
// A client reads probabilities beside the content: their bytes in one are the content. Tokens of
// reasoning, of tool calls and of tags are none of it. A token that is half tag, half text counts.
#pragma once

#include <string>
#include <vector>

#include "http/api/writer.hpp"
#include "lm/chat/event.hpp"

namespace frt::host {

// Of one choice. One thread at a time.
class TextProbabilities {
 public:
  // The next generated token.
  void push(ApiTokenProbability token);
  // What became of the tokens so far: those of the event's text, which leave. Empty unless the
  // event is kText.
  std::vector<ApiTokenProbability> take(const ChatEvent& event);

 private:
  std::vector<ApiTokenProbability> waiting_;
  std::string bytes_;  // of `waiting_`, in one
};

}  // namespace frt::host
