// SPDX-License-Identifier: Apache-2.0
// frt/io/json_sax.hpp - for readers that need no tree: a SAX run over bounded text that turns
// syntax errors into frt::Error with name, line and column. Handlers throw frt::Error for errors of
// meaning.
#pragma once

#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_lexer.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frt::io {

// Base of handlers: counts depth and values, and keeps what run_sax() needs. A handler defines
//   null(), boolean(bool), number_integer(std::int64_t), number_unsigned(std::uint64_t),
//   number_float(double, const std::string& digits), string(std::string&), start_object(),
//   key(std::string&), end_object(), start_array(), end_array()
// and calls enter(), leave() and count() in them. It may take a string's text away.
class SaxHandler {
 public:
  SaxHandler(std::string_view name, JsonLimits limits) : name_(name), limits_(limits) {}

  std::size_t depth() const { return depth_; }
  std::string_view name() const { return name_; }
  const JsonLimits& limits() const { return limits_; }

 protected:
  void enter();  // an array or an object; counts it, too
  void leave() { --depth_; }
  void count();  // a value

 private:
  std::string_view name_;
  JsonLimits limits_;
  std::size_t depth_ = 0;
  std::size_t values_ = 0;
};

// FRT_ERR_FORMAT if `text` has more than `limit` bytes.
void check_json_size(std::string_view text, std::string_view name, std::size_t limit);

// FRT_ERR_FORMAT "name:line:column: text" for a byte position in `text`.
[[noreturn]] void throw_at(std::string_view name, std::string_view text, std::size_t position,
                           const std::string& message);

// The key behind `token`, and its colon.
template <class Handler>
void read_key(JsonLexer& lexer, JsonToken token, Handler& handler) {
  if (token != JsonToken::kString) lexer.refuse("a key is missing");
  handler.key(lexer.string());
  if (lexer.next() != JsonToken::kColon) lexer.refuse("':' is missing behind a key");
}

// Tells `handler` of the value whose first token is the last one; false: a container began.
template <class Handler>
bool read_scalar(JsonLexer& lexer, JsonToken token, Handler& handler) {
  switch (token) {
    case JsonToken::kNull:
      handler.null();
      return true;
    case JsonToken::kTrue:
    case JsonToken::kFalse:
      handler.boolean(token == JsonToken::kTrue);
      return true;
    case JsonToken::kString:
      handler.string(lexer.string());
      return true;
    case JsonToken::kUnsigned:
      handler.number_unsigned(lexer.number_unsigned());
      return true;
    case JsonToken::kInteger:
      handler.number_integer(lexer.number_integer());
      return true;
    case JsonToken::kFloat:
      handler.number_float(lexer.number_float(), lexer.digits());
      return true;
    case JsonToken::kBeginObject:
      handler.start_object();
      return false;
    case JsonToken::kBeginArray:
      handler.start_array();
      return false;
    default:
      lexer.refuse("a value is missing");
  }
}

// The whole text is one value. Needs no stack of the thread, however deep the text nests.
template <class Handler>
void run_sax(std::string_view text, Handler& handler) {
  check_json_size(text, handler.name(), handler.limits().bytes);
  JsonLexer lexer(text, handler.name());
  std::vector<bool> objects;  // of each open container: whether it is an object
  // The first token of the value of the member, or of the element, that begins with `token`.
  const auto value_of = [&](JsonToken token) {
    if (!objects.back()) return token;
    read_key(lexer, token, handler);
    return lexer.next();
  };
  JsonToken token = lexer.next();
  for (bool over = false; !over;) {
    if (!read_scalar(lexer, token, handler)) {
      objects.push_back(token == JsonToken::kBeginObject);
      token = lexer.next();
      if (token != (objects.back() ? JsonToken::kEndObject : JsonToken::kEndArray)) {
        token = value_of(token);
        continue;
      }
      objects.back() ? handler.end_object() : handler.end_array();
      objects.pop_back();
    }
    while (!objects.empty() && (token = lexer.next()) != JsonToken::kComma) {
      const bool object = objects.back();
      if (token != (object ? JsonToken::kEndObject : JsonToken::kEndArray)) {
        lexer.refuse(object ? "',' or '}' is missing" : "',' or ']' is missing");
      }
      object ? handler.end_object() : handler.end_array();
      objects.pop_back();
    }
    over = objects.empty();
    if (!over) token = value_of(lexer.next());
  }
  if (lexer.next() != JsonToken::kEnd) lexer.refuse("something follows the value");
}

// Builds a Json value; usable as a handler or as a part of one.
class DomBuilder : public SaxHandler {
 public:
  using SaxHandler::SaxHandler;

  bool null() { return value(Json(nullptr)); }
  bool boolean(bool v) { return value(Json(v)); }
  bool number_integer(std::int64_t v) { return value(Json(v)); }
  bool number_unsigned(std::uint64_t v) { return value(Json(v)); }
  bool number_float(double v, const std::string& digits);
  bool string(std::string& v) { return value(Json(std::move(v))); }
  bool start_object() { return open(Json::object()); }
  bool key(std::string& v);
  bool end_object();
  bool start_array() { return open(Json::array()); }
  bool end_array();

  Json take() { return std::move(root_); }

 private:
  bool value(Json&& v);
  bool open(Json&& container);
  Json& place(Json&& v);

  Json root_;
  std::vector<Json*> levels_;  // open containers
  std::string key_;            // of the value to come, in an object
};

}  // namespace frt::io
