// SPDX-License-Identifier: Apache-2.0
#include "http/lm/text_probabilities.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace frt::host;

namespace {

std::string joined(const std::vector<ApiTokenProbability>& tokens) {
  std::string all;
  for (const ApiTokenProbability& token : tokens) all += token.bytes;
  return all;
}

TextProbabilities pushed(std::initializer_list<const char*> tokens) {
  TextProbabilities waiting;
  for (const char* token : tokens) waiting.push({token, -1.0f});
  return waiting;
}

}  // namespace

TEST_CASE("the probabilities of a text are those of its own tokens, not of reasoning and tags") {
  TextProbabilities waiting = pushed({"<", "think", ">\n", "ab", "c", "\n</think>\n\n", "x", "y"});
  CHECK(waiting.take({.kind = ChatEvent::kReasoning, .text = "ab"}).empty());
  CHECK(waiting.take({.kind = ChatEvent::kReasoning, .text = "c"}).empty());
  CHECK(joined(waiting.take({.kind = ChatEvent::kText, .text = "x"})) == "x");
  waiting.push({"z", -1.0f});
  CHECK(joined(waiting.take({.kind = ChatEvent::kText, .text = "yz"})) == "yz");
}

TEST_CASE("text that is held back keeps its tokens, and calls have none") {
  TextProbabilities waiting = pushed({"a", "b", "<tool", "_call>", "..."});
  CHECK(joined(waiting.take({.kind = ChatEvent::kText, .text = "a"})) == "a");
  CHECK(joined(waiting.take({.kind = ChatEvent::kText, .text = "b"})) == "b");
  CHECK(waiting.take({.kind = ChatEvent::kToolBegin, .text = "read"}).empty());
  waiting.push({"end", -1.0f});
  CHECK(joined(waiting.take({.kind = ChatEvent::kText, .text = "end"})) == "end");
}

TEST_CASE("a token that is half tag counts, and tokens that are no characters go with their text") {
  TextProbabilities half = pushed({">\n\nx", "y"});
  CHECK(joined(half.take({.kind = ChatEvent::kText, .text = "xy"})) == ">\n\nxy");
  TextProbabilities pieces = pushed({"\xef\xbf\xbd", "\xef\xbf\xbd"});
  CHECK(pieces.take({.kind = ChatEvent::kText, .text = "\xe6\xb5\xb7"}).size() == 2);
  CHECK(pieces.take({.kind = ChatEvent::kText, .text = "more"}).empty());
}
