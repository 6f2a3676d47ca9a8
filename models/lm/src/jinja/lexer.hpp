// SPDX-License-Identifier: Apache-2.0
// lexer.hpp - a Jinja template as tokens, as Jinja2 cuts it with trim_blocks and lstrip_blocks: the
// line end behind a block tag or comment is dropped, and so is the white space between the start of
// a line and one. "-" in a tag takes all white space on its side, "+" leaves it. One line end at
// the end of the template is dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace frt::lm::jinja {

enum class TokenKind {
  kData,  // text of the template
  kPrintBegin,
  kPrintEnd,
  kTagBegin,
  kTagEnd,
  kName,
  kString,  // its value
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
};

// Ends with kEnd. Throws Fault with FRT_ERR_FORMAT; `line` is then the line.
std::vector<Token> tokenise(std::string_view source, int& line);

}  // namespace frt::lm::jinja
