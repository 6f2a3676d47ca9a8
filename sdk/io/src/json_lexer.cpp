// SPDX-License-Identifier: Apache-2.0
#include <frt/io/json_lexer.hpp>
#include <frt/io/json_sax.hpp>
#include <frt/io/utf8.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace frt::io {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::uint64_t kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;

bool is_digit(unsigned char c) {
  return c >= '0' && c <= '9';
}

// Bytes that are zero have their high bit set in the result. So may others in front of which one is
// zero: good to ask whether there is one.
std::uint64_t zero_bytes(std::uint64_t word) {
  return (word - kOnes) & ~word;
}

// Whether a number that no double is near to is so because it is too large, not too small: whether
// its first digit but zero stands left of the decimal point, once the exponent has moved that.
bool is_large(std::string_view digits) {
  constexpr std::int64_t kMost = 1'000'000'000;  // beyond any text's length
  std::int64_t exponent = 0;
  const std::size_t mark = digits.find_first_of("eE");
  if (mark != digits.npos) {
    std::string_view power = digits.substr(mark + 1);
    const bool negative = power.starts_with('-');
    power.remove_prefix(power.find_first_of("0123456789"));
    for (const char c : power) exponent = std::min(exponent * 10 + (c - '0'), kMost);
    if (negative) exponent = -exponent;
  }
  const std::string_view mantissa = digits.substr(0, mark);
  const std::size_t first = mantissa.find_first_of("123456789");
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  return first != mantissa.npos &&
         static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first) + exponent > 0;
}

}  // namespace

std::size_t plain_json_bytes(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    const std::uint64_t control = (word - kOnes * 0x20) & ~word;
    const std::uint64_t quote = zero_bytes(word ^ (kOnes * '"'));
    const std::uint64_t escape = zero_bytes(word ^ (kOnes * '\\'));
    if (((word | control | quote | escape) & kHighs) != 0) break;
  }
  const auto plain = [](unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; };
  while (at < text.size() && plain(static_cast<unsigned char>(text[at]))) ++at;
  return at;
}

JsonLexer::JsonLexer(std::string_view text, std::string_view name) : text_(text), name_(name) {
  if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
}

void JsonLexer::wrong(std::size_t position, const std::string& message) const {
  const bool zero = position < text_.size() && text_[position] == '\0';
  throw_at(name_, text_, position, zero ? "a zero byte in the text" : message);
}

void JsonLexer::refuse(const std::string& message) const {
  wrong(start_, message);
}

JsonToken JsonLexer::next() {
  while (byte(at_) == ' ' || byte(at_) == '\n' || byte(at_) == '\r' || byte(at_) == '\t') ++at_;
  start_ = at_;
  if (at_ == text_.size()) return JsonToken::kEnd;
  const auto mark = [&](JsonToken token) {
    ++at_;
    return token;
  };
  switch (text_[at_]) {
    case '{':
      return mark(JsonToken::kBeginObject);
    case '}':
      return mark(JsonToken::kEndObject);
    case '[':
      return mark(JsonToken::kBeginArray);
    case ']':
      return mark(JsonToken::kEndArray);
    case ':':
      return mark(JsonToken::kColon);
    case ',':
      return mark(JsonToken::kComma);
    case '"':
      return read_string();
    case 'n':
      return literal("null", JsonToken::kNull);
    case 't':
      return literal("true", JsonToken::kTrue);
    case 'f':
      return literal("false", JsonToken::kFalse);
    default:
      if (text_[at_] == '-' || is_digit(byte(at_))) return read_number();
      wrong(at_, "no JSON value begins so");
  }
}

JsonToken JsonLexer::literal(std::string_view word, JsonToken token) {
  for (const char c : word) {
    if (byte(at_) != static_cast<unsigned char>(c)) {
      wrong(at_, "expected " + std::string(word));
    }
    ++at_;
  }
  return token;
}

// ---- strings -------------------------------------------------------------------------------

JsonToken JsonLexer::read_string() {
  string_.clear();
  ++at_;
  for (;;) {
    const std::size_t plain = plain_json_bytes(text_.substr(at_));
    string_.append(text_, at_, plain);
    at_ += plain;
    if (at_ == text_.size()) wrong(at_, "the text ends within a string");
    const unsigned char c = byte(at_);
    if (c == '"') {
      ++at_;
      return JsonToken::kString;
    }
    if (c == '\\') {
      read_escape();
    } else if (c < 0x20) {
      wrong(at_, "a control character in a string; escape it");
    } else {
      const Utf8Step step = utf8_step(text_.substr(at_));
      if (step.kind != Utf8Step::kValid) wrong(at_, "a string that is no UTF-8");
      string_.append(text_, at_, step.bytes);
      at_ += step.bytes;
    }
  }
}

void JsonLexer::read_escape() {
  constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const std::size_t start = at_++;
  if (byte(at_) != 'u') {
    const std::size_t which = at_ < text_.size() ? kEscapes.find(text_[at_]) : kEscapes.npos;
    if (which == kEscapes.npos) wrong(start, "an unknown escape in a string");
    string_ += kMeanings[which];
    ++at_;
    return;
  }
  char32_t character = read_hex();
  if (character >= 0xD800 && character < 0xDC00) {
    if (byte(at_) != '\\' || byte(at_ + 1) != 'u') wrong(start, "half of a surrogate pair");
    ++at_;
    const char32_t low = read_hex();
    if (low < 0xDC00 || low >= 0xE000) wrong(start, "half of a surrogate pair");
    character = 0x10000 + ((character - 0xD800) << 10 | (low - 0xDC00));
  } else if (character >= 0xDC00 && character < 0xE000) {
    wrong(start, "half of a surrogate pair");
  }
  append_utf8(string_, character);
}

// The four digits behind the 'u' at `at_`.
char32_t JsonLexer::read_hex() {
  std::uint32_t value = 0;
  const std::string_view digits = text_.substr(at_ + 1).substr(0, 4);
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (code != std::errc() || digits.size() < 4 || end != digits.data() + 4) {
    wrong(at_, "\\u in a string without four hexadecimal digits");
  }
  at_ += 5;
  return value;
}

// ---- numbers -------------------------------------------------------------------------------

void JsonLexer::read_digits() {
  if (!is_digit(byte(at_))) wrong(at_, "a digit is missing");
  while (is_digit(byte(at_))) ++at_;
}

JsonToken JsonLexer::read_number() {
  const bool negative = byte(at_) == '-';
  if (negative) ++at_;
  if (byte(at_) == '0') {
    ++at_;
  } else {
    read_digits();
  }
  bool whole = true;
  if (byte(at_) == '.') {
    whole = false;
    ++at_;
    read_digits();
  }
  if (byte(at_) == 'e' || byte(at_) == 'E') {
    whole = false;
    ++at_;
    if (byte(at_) == '+' || byte(at_) == '-') ++at_;
    read_digits();
  }
  const char* const first = text_.data() + start_;
  const char* const last = text_.data() + at_;
  if (whole && negative && std::from_chars(first, last, integer_).ec == std::errc()) {
    return JsonToken::kInteger;
  }
  if (whole && !negative && std::from_chars(first, last, unsigned_).ec == std::errc()) {
    return JsonToken::kUnsigned;
  }
  digits_.assign(first, last);
  read_float();
  return JsonToken::kFloat;
}

void JsonLexer::read_float() {
  const char* const last = digits_.data() + digits_.size();
  float_ = 0;
  if (std::from_chars(digits_.data(), last, float_).ec == std::errc() && std::isfinite(float_)) {
    return;
  }
  if (is_large(digits_)) wrong(start_, "a number out of range");
  float_ = digits_.starts_with('-') ? -0.0 : 0.0;
}

}  // namespace frt::io
