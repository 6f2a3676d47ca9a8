// SPDX-License-Identifier: Apache-2.0
// The shared part of all JSON readers here: a SAX run over bounded text that turns syntax errors
// into frt::Error with file, line and column. Handlers throw frt::Error for errors of meaning.
#pragma once

#include <frt/error.hpp>
#include <frt/models/json.hpp>

#include <boost/unordered/unordered_flat_set.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace frt::models {

// Base of handlers: counts nesting and keeps what run_sax() needs. Events default to none; a
// handler defines all those of nlohmann's SAX interface but parse_error().
class SaxHandler {
 public:
  SaxHandler(std::string_view name, std::size_t depth_limit)
      : name_(name), depth_limit_(depth_limit) {}

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error);

  std::size_t depth() const { return depth_; }
  std::string_view name() const { return name_; }
  std::size_t error_position() const { return error_position_; }
  const std::string& error_text() const { return error_text_; }

 protected:
  void enter();
  void leave() { --depth_; }

 private:
  std::string_view name_;
  std::size_t depth_limit_;
  std::size_t depth_ = 0;
  std::size_t error_position_ = 0;
  std::string error_text_;
};

// FRT_ERR_FORMAT "name:line:column: text" for a byte position in `text`.
[[noreturn]] void throw_at(std::string_view name, std::string_view text, std::size_t position,
                           const std::string& message);

// The library takes a zero byte for the end of the text: what follows one would pass unread.
template <class Handler>
void run_sax(std::string_view text, Handler& handler) {
  if (const std::size_t zero = text.find('\0'); zero != text.npos) {
    throw_at(handler.name(), text, zero, "a zero byte in the text");
  }
  if (!nlohmann::ordered_json::sax_parse(text.begin(), text.end(), &handler)) {
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
  bool start_object(std::size_t);
  bool key(std::string& v);
  bool end_object();
  bool start_array(std::size_t);
  bool end_array();

  Json take() { return std::move(root_); }

 private:
  struct Level {
    Json* container = nullptr;
    std::string key;                              // of the value to come, in an object
    boost::unordered_flat_set<std::string> keys;  // so far
  };
  bool value(Json&& v) {
    place(std::move(v));
    return true;
  }
  Json& place(Json&& v);

  Json root_;
  std::vector<Level> levels_;
};

// Reads a whole file; FRT_ERR_NOT_FOUND, FRT_ERR_IO, FRT_ERR_FORMAT if it has more than `limit`.
std::string read_text_file(const std::filesystem::path& path, std::size_t limit);

}  // namespace frt::models
