// SPDX-License-Identifier: Apache-2.0
// frt/json_reader.hpp - as much JSON as a plugin meets: the header of a weight file, a
// conversation, a configuration. The reader builds no tree; its user asks for what comes next.
//
//   frt::JsonReader json("messages", text);
//   json.array([&] {
//     json.object([&](const std::string& key) {
//       if (key == "role") role = json.string();
//       else json.skip();
//     });
//   });
//   json.end();
//
// A text that is something else is an frt::Error with the byte: FRT_ERR_INVALID_ARGUMENT, or the
// code that the constructor got. `name` and `text` are borrowed. Texts may come from outside: what
// is skipped has at most 64 levels and no key twice in an object, and nothing is read beyond the
// end. Strings are given as they are, without a check of their UTF-8. Header only; one thread a
// reader.
#pragma once

#include <frt/error.hpp>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

namespace frt {

class JsonReader {
 public:
  JsonReader(std::string_view name, std::string_view text,
             frt_status status = FRT_ERR_INVALID_ARGUMENT)
      : name_(name), text_(text), status_(status) {}

  // Whether `c` is the next character that is no space; take() and expect() go past it.
  bool next_is(char c) { return skip_space(), at_ < text_.size() && text_[at_] == c; }
  bool take(char c) { return next_is(c) && ++at_; }
  void expect(char c) {
    if (!take(c)) fail(std::string("expected '") + c + "'");
  }

  // Calls member(key) for each member, which reads the value.
  template <class Member>
  void object(Member&& member) {
    expect('{');
    if (take('}')) return;
    do {
      const std::string key = string();
      expect(':');
      member(key);
    } while (take(','));
    expect('}');
  }
  // Calls element() for each element, which reads it.
  template <class Element>
  void array(Element&& element) {
    expect('[');
    if (take(']')) return;
    do {
      element();
    } while (take(','));
    expect(']');
  }

  std::string string() {
    expect('"');
    std::string out;
    for (;;) {
      const char c = raw();
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
      if (c == '\\') {
        escape(out);
      } else {
        out += c;
      }
    }
  }

  bool boolean() {
    skip_space();
    const bool value = text_.substr(at_, 4) == "true";
    if (!value && text_.substr(at_, 5) != "false") fail("expected true or false");
    at_ += value ? 4 : 5;
    return value;
  }

  // A whole number from 0 to UINT64_MAX, without a fraction or an exponent.
  uint64_t unsigned_number() {
    skip_space();
    const std::size_t begin = at_;
    uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<uint64_t>(text_[at_] - '0');
      if (value > (UINT64_MAX - digit) / 10) fail("the number is too large");
      value = value * 10 + digit;
    }
    if (at_ == begin) fail("expected a whole number");
    if (at_ < text_.size() && std::string_view(".eE").find(text_[at_]) != std::string_view::npos) {
      fail("expected a whole number");
    }
    return value;
  }

  // Goes past whatever value comes next.
  void skip(int depth = 0) {
    if (depth == 64) fail("more than 64 levels");
    if (next_is('{')) {
      std::set<std::string> keys;
      return object([&](const std::string& key) {
        if (!keys.insert(key).second) fail("the key '" + key + "' stands twice in an object");
        skip(depth + 1);
      });
    }
    if (next_is('[')) return array([&] { skip(depth + 1); });
    if (next_is('"')) return static_cast<void>(string());
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
            std::string_view("+-.").find(text_[at_]) != std::string_view::npos)) {
      ++at_;
    }
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "true" || word == "false" || word == "null" || is_number(word)) return;
    at_ = begin;
    fail("expected a value");
  }

  // The text of whatever value comes next, as it stands.
  std::string_view value() {
    skip_space();
    const std::size_t begin = at_;
    skip();
    return text_.substr(begin, at_ - begin);
  }

  void end() {
    skip_space();
    if (at_ != text_.size()) fail("there is more text");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(status_, std::string(name_) + ", byte " + std::to_string(at_) + ": " + what);
  }

 private:
  void skip_space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
      ++at_;
    }
  }
  // -? whole (. digits)? (e sign? digits)?, and finite as a double.
  static bool is_number(std::string_view word) {
    std::size_t at = word.starts_with('-') ? 1 : 0;
    const auto digits = [&] {
      const std::size_t begin = at;
      while (at < word.size() && word[at] >= '0' && word[at] <= '9') ++at;
      return at - begin;
    };
    const auto is = [&](std::string_view any) {
      return at < word.size() && any.find(word[at]) != std::string_view::npos;
    };
    const bool zero = is("0");
    const std::size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) return false;
    if (is(".")) {
      ++at;
      if (digits() == 0) return false;
    }
    if (is("eE")) {
      ++at;
      if (is("+-")) ++at;
      if (digits() == 0) return false;
    }
    return at == word.size() && std::isfinite(std::strtod(std::string(word).c_str(), nullptr));
  }
  char raw() {
    if (at_ == text_.size()) fail("the text ends too early");
    return text_[at_++];
  }
  uint32_t hex4() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = raw();
      const std::size_t digit =
          std::string_view("0123456789abcdef")
              .find(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
      if (digit == std::string_view::npos) fail("expected four hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    return value;
  }
  void escape(std::string& out) {
    const char c = raw();
    const std::size_t plain = std::string_view("\"\\/bfnrt").find(c);
    if (plain != std::string_view::npos) {
      out += "\"\\/\b\f\n\r\t"[plain];
      return;
    }
    if (c != 'u') fail("an unknown escape");
    uint32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00 && raw() == '\\' && raw() == 'u') {
      const uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code >= 0xD800 && code < 0xE000) fail("half of a surrogate pair");
    const auto byte = [&](uint32_t value) { out += static_cast<char>(value); };
    if (code < 0x80) return byte(code);
    if (code >= 0x10000) {
      byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F));
    } else if (code >= 0x800) {
      byte(0xE0 | code >> 12);
    } else {
      byte(0xC0 | code >> 6);
    }
    if (code >= 0x800) byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  }

  std::string_view name_, text_;
  frt_status status_;
  std::size_t at_ = 0;
};

// The text as a JSON string, quotes included.
inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr const char* kDigits = "0123456789abcdef";
      ((out += "\\u00") += kDigits[c >> 4]) += kDigits[c & 15];
    } else {
      out += c;
    }
  }
  return out += '"';
}

}  // namespace frt
