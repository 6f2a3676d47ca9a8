// SPDX-License-Identifier: Apache-2.0
#include "lexer.hpp"

#include <algorithm>
#include <array>
#include <frt/io/utf8.hpp>
#include <frt/lm/chat_options.hpp>

#include "meter.hpp"

namespace frt::lm::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Letters of other scripts are taken for letters, whole characters for names.
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool continues_name(char c) {
  return begins_name(c) || is_digit(c);
}

// The value of a string literal between its quotes, as Python's unicode-escape codec reads it.
class StringReader {
 public:
  explicit StringReader(std::string_view literal) : rest_(literal) {}

  std::string read() {
    std::string value;
    while (!rest_.empty()) {
      const char c = next();
      if (c == '\\' && !rest_.empty()) {
        escape(value);
      } else {
        value += c;
      }
    }
    return value;
  }

 private:
  char next() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  void escape(std::string& value) {
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    const char c = next();
    if (c == '\n') return;
    if (const std::size_t at = kFrom.find(c); at != kFrom.npos) {
      value += kTo[at];
    } else if (c >= '0' && c <= '7') {
      char32_t code = static_cast<char32_t>(c - '0');
      for (int i = 0; i < 2 && !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '7'; ++i) {
        code = code * 8 + static_cast<char32_t>(next() - '0');
      }
      io::append_utf8(value, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      io::append_utf8(value, hexadecimal(c == 'x' ? 2 : c == 'u' ? 4 : 8));
    } else if (c == 'N') {
      fail("\\N{...} in a text is not supported; write the character", FRT_ERR_UNSUPPORTED);
    } else {
      value += '\\';
      value += c;
    }
  }

  char32_t hexadecimal(std::size_t digits) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    char32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char c = rest_.empty() ? '?' : next();
      const std::size_t digit = kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c);
      if (digit == kDigits.npos) fail("an escape in a text lacks digits", FRT_ERR_FORMAT);
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      fail("an escape in a text is no character", FRT_ERR_FORMAT);
    }
    return code;
  }

  std::string_view rest_;
};

class Lexer {
 public:
  Lexer(std::string_view source, int& line) : line_(line) {
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r') {
        source_ += '\n';
        if (source.substr(i).starts_with("\r\n")) ++i;
      } else {
        source_ += source[i];
      }
    }
    if (source_.ends_with('\n')) source_.pop_back();
    rest_ = source_;
  }

  std::vector<Token> run() {
    while (!rest_.empty()) data();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  void add(TokenKind kind, std::string text = {}) {
    if (tokens_.size() == kMostTokens) {
      fail("it has more than " + std::to_string(kMostTokens) + " tokens", FRT_ERR_UNSUPPORTED);
    }
    tokens_.push_back({kind, std::move(text), line_});
  }

  // Takes `bytes`; the next piece of data begins a line if they end one.
  void skip(std::size_t bytes) {
    const std::string_view taken = rest_.substr(0, bytes);
    line_ += static_cast<int>(std::count(taken.begin(), taken.end(), '\n'));
    if (!taken.empty()) begins_line_ = taken.back() == '\n';
    rest_.remove_prefix(bytes);
  }

  void skip_space() { skip(rest_.size() - strip_left(rest_).size()); }

  // The sign behind "{%" and its like; takes both.
  char open() {
    skip(2);
    const char sign = rest_.empty() ? '\0' : rest_[0];
    if (sign != '-' && sign != '+') return '\0';
    skip(1);
    return sign;
  }

  // The data in front of a tag, without what the tag takes of it.
  void add_data(std::string_view text, char sign, bool strips_line, bool begins_line) {
    if (sign == '-') {
      text = strip_right(text);
    } else if (sign != '+' && strips_line) {
      const std::size_t begin = text.rfind('\n') + 1;  // 0 if there is none
      if ((begin > 0 || begins_line) && strip(text.substr(begin)).empty()) {
        text = text.substr(0, begin);
      }
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
  }

  // Text up to a tag, and the tag.
  void data() {
    std::size_t at = 0;
    while (at = rest_.find('{', at), at != rest_.npos) {
      const char c = at + 1 < rest_.size() ? rest_[at + 1] : '\0';
      if (c == '{' || c == '%' || c == '#') break;
      ++at;
    }
    const std::string_view text = rest_.substr(0, at);
    const bool began_line = begins_line_;
    if (at == rest_.npos) return add(TokenKind::kData, std::string(text)), skip(text.size());
    const char kind = rest_[at + 1];
    const char sign = at + 2 < rest_.size() ? rest_[at + 2] : '\0';
    add_data(text, sign, kind != '{', began_line);
    skip(text.size());
    open();
    if (kind == '#') return comment();
    if (kind == '{') return code(TokenKind::kPrintBegin, TokenKind::kPrintEnd);
    if (is_raw()) return raw();
    code(TokenKind::kTagBegin, TokenKind::kTagEnd);
  }

  void comment() {
    const std::size_t end = rest_.find("#}");
    if (end == rest_.npos) fail("a comment has no end", FRT_ERR_FORMAT);
    const char sign = end > 0 ? rest_[end - 1] : '\0';
    skip(end + 2);
    close(sign);
  }

  // Behind the end of a block tag or comment.
  void close(char sign) {
    if (sign == '-') return skip_space();
    if (sign != '+' && rest_.starts_with('\n')) skip(1);
  }

  // Whether `word` is the whole of the tag that begins here: the length up to behind "%}", else 0.
  std::size_t whole_tag(std::string_view from, std::string_view word, char& sign) const {
    std::string_view text = strip_left(from);
    if (!text.starts_with(word)) return 0;
    text = strip_left(text.substr(word.size()));
    sign = text.empty() ? '\0' : text[0];
    if (sign == '-' || sign == '+') text.remove_prefix(1);
    return text.starts_with("%}") ? static_cast<std::size_t>(text.data() + 2 - from.data()) : 0;
  }

  bool is_raw() const {
    char sign = 0;
    return whole_tag(rest_, "raw", sign) != 0;
  }

  void raw() {
    char sign = 0;
    skip(whole_tag(rest_, "raw", sign));
    if (sign == '-') skip_space();
    const bool began_line = begins_line_;
    for (std::size_t at = 0; at = rest_.find("{%", at), at != rest_.npos; at += 2) {
      std::size_t inner = at + 2;
      const char left = inner < rest_.size() ? rest_[inner] : '\0';
      if (left == '-' || left == '+') ++inner;
      const std::size_t length = whole_tag(rest_.substr(inner), "endraw", sign);
      if (length == 0) continue;
      add_data(rest_.substr(0, at), left, true, began_line);
      skip(inner + length);
      return close(sign);
    }
    fail("{% raw %} has no {% endraw %}", FRT_ERR_FORMAT);
  }

  // Tokens up to the end of the tag.
  void code(TokenKind begin, TokenKind end) {
    add(begin);
    const std::string_view mark = end == TokenKind::kTagEnd ? "%}" : "}}";
    std::string brackets;
    for (;;) {
      skip_space();
      if (rest_.empty()) fail("a tag has no end", FRT_ERR_FORMAT);
      if (brackets.empty()) {
        const char sign = rest_[0];
        const bool marked = sign == '-' || (sign == '+' && end == TokenKind::kTagEnd);
        if (rest_.substr(marked ? 1 : 0).starts_with(mark)) {
          add(end);
          skip(marked ? 3 : 2);
          if (end == TokenKind::kTagEnd) {
            close(sign);
          } else if (sign == '-') {
            skip_space();
          }
          return;
        }
      }
      token(brackets);
    }
  }

  void token(std::string& brackets) {
    const char c = rest_[0];
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return string();
    if (begins_name(c)) {
      const auto* end = std::find_if_not(rest_.begin(), rest_.end(), continues_name);
      const auto length = static_cast<std::size_t>(end - rest_.begin());
      add(TokenKind::kName, std::string(rest_.substr(0, length)));
      return skip(length);
    }
    static constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,";
    std::string_view found;
    for (const std::string_view each : kLong) {
      if (rest_.starts_with(each)) found = each;
    }
    if (found.empty() && kShort.find(c) != kShort.npos) found = rest_.substr(0, 1);
    if (found.empty())
      fail("unexpected character " + io::quote(rest_.substr(0, 1)), FRT_ERR_FORMAT);
    balance(c, brackets);
    add(TokenKind::kOperator, std::string(found));
    skip(found.size());
  }

  static void balance(char c, std::string& brackets) {
    if (c == '(') brackets += ')';
    if (c == '[') brackets += ']';
    if (c == '{') brackets += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets.empty() || brackets.back() != c) {
      fail(std::string("unexpected '") + c + "'", FRT_ERR_FORMAT);
    }
    brackets.pop_back();
  }

  void number() {
    std::size_t end = digits(0);
    bool whole = true;
    if (end + 1 < rest_.size() && rest_[end] == '.' && is_digit(rest_[end + 1])) {
      whole = false;
      end = digits(end + 1);
    }
    if (end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
      std::size_t power = end + 1;
      if (power < rest_.size() && (rest_[power] == '+' || rest_[power] == '-')) ++power;
      if (power < rest_.size() && is_digit(rest_[power])) {
        whole = false;
        end = digits(power);
      }
    }
    std::string text(rest_.substr(0, end));
    std::erase(text, '_');
    add(whole ? TokenKind::kInteger : TokenKind::kFloat, std::move(text));
    skip(end);
  }

  std::size_t digits(std::size_t at) const {
    while (at < rest_.size() && (is_digit(rest_[at]) || (rest_[at] == '_' && at > 0))) ++at;
    return at;
  }

  void string() {
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != rest_[0]) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) fail("a text has no closing quote", FRT_ERR_FORMAT);
    add(TokenKind::kString, StringReader(rest_.substr(1, end - 1)).read());
    skip(end + 1);
  }

  int& line_;
  std::string source_;
  std::string_view rest_;
  bool begins_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenise(std::string_view source, int& line) {
  line = 1;
  if (source.size() > kMostSource) {
    fail("it is " + std::to_string(source.size()) + " bytes long; at most " +
             std::to_string(kMostSource) + " are taken",
         FRT_ERR_UNSUPPORTED);
  }
  if (const auto bad = io::first_invalid_utf8(source)) {
    fail("it is not UTF-8 at byte " + std::to_string(*bad), FRT_ERR_FORMAT);
  }
  return Lexer(source, line).run();
}

}  // namespace frt::lm::jinja
