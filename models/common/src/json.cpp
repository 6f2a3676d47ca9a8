// SPDX-License-Identifier: Apache-2.0
// The reader builds values from SAX events, so that nothing is built that a limit forbids. A Json
// object is a vector of pairs in which every lookup is linear; keys are therefore checked against a
// hash set per open object and appended without a lookup: reading an index of 100,000 tensors stays
// linear.
#include <frt/models/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "json_sax.hpp"
#include "text.hpp"
#include "utf8.hpp"

namespace frt::models {

// ---- SAX runs ------------------------------------------------------------------------------

bool SaxHandler::parse_error(std::size_t position, const std::string& /*token*/,
                             const nlohmann::detail::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: what is wrong": we say where
  // ourselves, and with the file's name.
  std::string_view text = error.what();
  if (const auto at = text.find("] "); at != text.npos) text.remove_prefix(at + 2);
  if (text.starts_with("parse error")) {
    if (const auto at = text.find(": "); at != text.npos) text.remove_prefix(at + 2);
  }
  error_position_ = position > 0 ? position - 1 : 0;
  error_text_ = text;
  return false;
}

void SaxHandler::enter() {
  if (++depth_ > depth_limit_) {
    throw Error(FRT_ERR_FORMAT, std::string(name_) +
                                    ": arrays and objects are nested deeper than " +
                                    std::to_string(depth_limit_));
  }
}

void throw_at(std::string_view name, std::string_view text, std::size_t position,
              const std::string& message) {
  std::size_t line = 1, start = 0;
  position = std::min(position, text.size());
  for (std::size_t i = 0; i < position; ++i) {
    if (text[i] == '\n') {
      ++line;
      start = i + 1;
    }
  }
  // The library quotes what it read, which may be binary: keep the message printable.
  std::string printable;
  for (const char c : message.substr(0, 200)) {
    const auto byte = static_cast<unsigned char>(c);
    printable += byte < 0x20 || byte >= 0x7F ? '?' : c;
  }
  throw Error(FRT_ERR_FORMAT, std::string(name) + ":" + std::to_string(line) + ":" +
                                  std::to_string(position - start + 1) + ": " + printable);
}

// ---- building values -----------------------------------------------------------------------

Json& DomBuilder::place(Json&& v) {
  if (levels_.empty()) return root_ = std::move(v);
  Level& level = levels_.back();
  if (level.container->is_array()) {
    auto& array = level.container->get_ref<Json::array_t&>();
    return array.emplace_back(std::move(v));
  }
  auto& object = level.container->get_ref<Json::object_t&>();
  static_cast<Json::object_t::Container&>(object).emplace_back(std::move(level.key), std::move(v));
  return object.back().second;
}

bool DomBuilder::number_float(double v, const std::string& digits) {
  if (digits.find_first_not_of("-0123456789") != std::string::npos) return value(Json(v));
  return value(Json::binary(std::vector<std::uint8_t>(digits.begin(), digits.end()), kBigInteger));
}

bool DomBuilder::start_object(std::size_t) {
  enter();
  Json& container = place(Json::object());
  levels_.emplace_back().container = &container;
  return true;
}

bool DomBuilder::key(std::string& v) {
  Level& level = levels_.back();
  if (!level.keys.insert(v).second) {
    throw Error(FRT_ERR_FORMAT,
                std::string(name()) + ": the key " + quote(v) + " stands twice in one object");
  }
  level.key = std::move(v);
  return true;
}

bool DomBuilder::end_object() {
  leave();
  levels_.pop_back();
  return true;
}

bool DomBuilder::start_array(std::size_t) {
  enter();
  Json& container = place(Json::array());
  levels_.emplace_back().container = &container;
  return true;
}

bool DomBuilder::end_array() {
  leave();
  levels_.pop_back();
  return true;
}

// ---- files ---------------------------------------------------------------------------------

std::string read_text_file(const std::filesystem::path& path, std::size_t limit) {
  std::error_code status_error;
  const auto status = std::filesystem::status(path, status_error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw Error(FRT_ERR_NOT_FOUND, path.string() + ": no such file");
  }
  if (status.type() == std::filesystem::file_type::directory) {
    throw Error(FRT_ERR_IO, path.string() + ": is a folder, not a file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Error(FRT_ERR_IO, path.string() + ": cannot be opened: " + std::strerror(errno));
  }
  std::string text;
  std::string chunk(std::size_t{1} << 20, '\0');
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    text.append(chunk, 0, static_cast<std::size_t>(file.gcount()));
    if (text.size() > limit) {
      throw Error(FRT_ERR_FORMAT,
                  path.string() + ": has more than the allowed " + bytes_text(limit));
    }
  }
  if (file.bad()) throw Error(FRT_ERR_IO, path.string() + ": cannot be read");
  return text;
}

Json parse_json(std::string_view text, std::string_view name, JsonLimits limits) {
  if (text.size() > limits.bytes) {
    throw Error(FRT_ERR_FORMAT,
                std::string(name) + ": has more than the allowed " + bytes_text(limits.bytes));
  }
  DomBuilder builder(name, limits.depth);
  run_sax(text, builder);
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, JsonLimits limits) {
  return parse_json(read_text_file(path, limits.bytes), path.string(), limits);
}

}  // namespace frt::models
