// SPDX-License-Identifier: Apache-2.0
// One pass that knows strings and comments and counts the rest. Brackets open and close a level;
// between two of = , [ ] { } and the end of a line every dot makes a name longer (the dot of a
// number is counted, too, which does no harm). Strings:
//
//   "..."  '...'          end at their quote; a line end in one is an error, so it ends them here
//   """...""" '''...'''   end at three quotes, of which up to two more belong to the content
//   \x                    escapes one character where the quote is "
//
// Where a text is malformed the pass may see strings in other places than the parser, but only
// behind the error at which the parser stops.
#include "util/toml_bounds.hpp"

#include <algorithm>
#include <utility>

namespace frt::core {

namespace {

class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  std::optional<TomlExcess> run() {
    if (text_.size() > kTomlBytes) {
      return excess("more than " + std::to_string(kTomlBytes) + " bytes of TOML");
    }
    while (at_ < text_.size()) {
      switch (const char c = text_[at_]) {
        case '"':
        case '\'':
          skip_string(c);
          continue;
        case '#':
          at_ = std::min(text_.find('\n', at_), text_.size());
          continue;
        case '[':
        case '{':
          parts_ = 1;
          if (++nesting_ > kTomlNesting) {
            return excess("arrays and inline tables are nested deeper than " +
                          std::to_string(kTomlNesting));
          }
          break;
        case ']':
        case '}':
          if (nesting_ > 0) --nesting_;
          parts_ = 1;
          break;
        case '=':
        case ',':
        case '\n':
          parts_ = 1;
          break;
        case '.':
          if (++parts_ > kTomlParts) {
            return excess("a name of more than " + std::to_string(kTomlParts) + " parts");
          }
          break;
        default:
          break;
      }
      ++at_;
    }
    return std::nullopt;
  }

 private:
  void skip_string(char quote) {
    const std::string_view three = quote == '"' ? "\"\"\"" : "'''";
    const bool long_form = text_.substr(at_).starts_with(three);
    at_ += long_form ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\' && quote == '"') {
        at_ += 2;
      } else if (c == '\n' && !long_form) {
        return;
      } else if (c == quote && !long_form) {
        ++at_;
        return;
      } else if (c == quote && text_.substr(at_).starts_with(three)) {
        at_ += 3;
        for (int more = 0; more < 2 && at_ < text_.size() && text_[at_] == quote; ++more) ++at_;
        return;
      } else {
        ++at_;
      }
    }
    at_ = text_.size();
  }

  TomlExcess excess(std::string message) const {
    TomlExcess found{.message = std::move(message)};
    for (const char c : text_.substr(0, at_)) {
      if (c == '\n') {
        ++found.line;
        found.column = 1;
      } else if ((static_cast<unsigned char>(c) & 0xC0u) != 0x80u) {
        ++found.column;
      }
    }
    return found;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  uint32_t parts_ = 1;
  uint32_t nesting_ = 0;
};

}  // namespace

std::optional<TomlExcess> find_toml_excess(std::string_view text) {
  return Scan(text).run();
}

}  // namespace frt::core
