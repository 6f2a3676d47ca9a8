// SPDX-License-Identifier: Apache-2.0
// frt/io/json_sax.hpp - for readers that need no tree: a SAX run over bounded text that turns
// syntax errors into frt::Error with name, line and column. Handlers throw frt::Error for errors of
// meaning.
#pragma once

#include <frt/error.hpp>
#include <frt/io/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frt::io {

// Base of handlers: counts depth and values, and keeps what run_sax() needs. A handler defines all
// events of nlohmann's SAX interface but parse_error(), and calls enter(), leave() and count() in
// them.
class SaxHandler {
 public:
  SaxHandler(std::string_view name, JsonLimits limits) : name_(name), limits_(limits) {}

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error);

  std::size_t depth() const { return depth_; }
  std::string_view name() const { return name_; }
  const JsonLimits& limits() const { return limits_; }
  std::size_t error_position() const { return error_position_; }
  const std::string& error_text() const { return error_text_; }

 protected:
  void enter();  // an array or an object; counts it, too
  void leave() { --depth_; }
  void count();  // a value

 private:
  std::string_view name_;
  JsonLimits limits_;
  std::size_t depth_ = 0;
  std::size_t values_ = 0;
  std::size_t error_position_ = 0;
  std::string error_text_;
};

// FRT_ERR_FORMAT if `text` has more than `limit` bytes.
void check_json_size(std::string_view text, std::string_view name, std::size_t limit);

// FRT_ERR_FORMAT "name:line:column: text" for a byte position in `text`.
[[noreturn]] void throw_at(std::string_view name, std::string_view text, std::size_t position,
                           const std::string& message);

// The library takes a zero byte for the end of the text: what follows one would pass unread.
template <class Handler>
void run_sax(std::string_view text, Handler& handler) {
  check_json_size(text, handler.name(), handler.limits().bytes);
  if (const std::size_t zero = text.find('\0'); zero != text.npos) {
    throw_at(handler.name(), text, zero, "a zero byte in the text");
  }
  if (!Json::sax_parse(text.begin(), text.end(), &handler)) {
    throw_at(handler.name(), text, handler.error_position(), handler.error_text());
  }
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
  bool binary(Json::binary_t&) { return false; }  // JSON text has none
  bool start_object(std::size_t) { return open(Json::object()); }
  bool key(std::string& v);
  bool end_object();
  bool start_array(std::size_t) { return open(Json::array()); }
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
