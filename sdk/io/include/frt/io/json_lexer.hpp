// SPDX-License-Identifier: Apache-2.0
// frt/io/json_lexer.hpp - the tokens of a JSON text (RFC 8259), each checked. Strings are taken in
// runs of eight bytes, because the texts of conversations are long strings. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace frt::io {

enum class JsonToken : std::uint8_t {
  kEnd,  // of the text
  kNull,
  kTrue,
  kFalse,
  kString,
  kUnsigned,  // an integer without a sign that fits 64 bits
  kInteger,   // one with a sign
  kFloat,     // any other number; of an integer, too, that does not fit
  kBeginObject,
  kEndObject,
  kBeginArray,
  kEndArray,
  kColon,
  kComma,
};

class JsonLexer {
 public:
  // Borrows both; `name` stands for the text in errors. A byte order mark in front is skipped.
  JsonLexer(std::string_view text, std::string_view name);

  // Throws FRT_ERR_FORMAT "name:line:column: ..." for what is no token.
  JsonToken next();
  // The same error at the last token.
  [[noreturn]] void refuse(const std::string& message) const;

  // Of the last token, by its kind.
  std::string& string() { return string_; }
  std::uint64_t number_unsigned() const { return unsigned_; }
  std::int64_t number_integer() const { return integer_; }
  double number_float() const { return float_; }
  const std::string& digits() const { return digits_; }  // of a kFloat, as written

 private:
  [[noreturn]] void wrong(std::size_t position, const std::string& message) const;
  unsigned char byte(std::size_t at) const {  // 0 at the end
    return at < text_.size() ? static_cast<unsigned char>(text_[at]) : 0;
  }
  JsonToken literal(std::string_view word, JsonToken token);
  JsonToken read_string();
  void read_escape();
  char32_t read_hex();
  JsonToken read_number();
  void read_digits();
  void read_float();

  std::string_view text_, name_;
  std::size_t at_ = 0;     // what follows the last token
  std::size_t start_ = 0;  // of the last token
  std::string string_, digits_;
  std::uint64_t unsigned_ = 0;
  std::int64_t integer_ = 0;
  double float_ = 0;
};

// How many bytes at the beginning of `text` stand in a JSON string as they are: ASCII but control
// characters, '"' and '\'.  [any]
std::size_t plain_json_bytes(std::string_view text);

}  // namespace frt::io
