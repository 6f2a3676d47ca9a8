// SPDX-License-Identifier: Apache-2.0
// The reader builds values from SAX events, so that nothing is built that a limit forbids. A Json
// object is a vector of pairs in which every lookup is linear; members are therefore appended
// without a lookup, and their keys are sorted and compared once, when the object ends. No hash is
// involved, so no choice of keys makes it slow.
#include <frt/io/file.hpp>
#include <frt/io/json_sax.hpp>
#include <frt/io/utf8.hpp>

#include <algorithm>

namespace frt::io {

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
  if (++depth_ > limits_.depth) {
    throw Error(FRT_ERR_FORMAT, std::string(name_) +
                                    ": arrays and objects are nested deeper than " +
                                    std::to_string(limits_.depth));
  }
  count();
}

void SaxHandler::count() {
  if (++values_ > limits_.values) {
    throw Error(FRT_ERR_FORMAT, std::string(name_) + ": has more than the allowed " +
                                    std::to_string(limits_.values) + " values");
  }
}

void check_json_size(std::string_view text, std::string_view name, std::size_t limit) {
  if (text.size() <= limit) return;
  throw Error(FRT_ERR_FORMAT, std::string(name) + ": has more than the allowed " +
                                  std::to_string(limit) + " bytes");
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
  // The library quotes what it read, which may be binary.
  throw Error(FRT_ERR_FORMAT, std::string(name) + ":" + std::to_string(line) + ":" +
                                  std::to_string(position - start + 1) + ": " +
                                  printable(std::string_view(message).substr(0, 200)));
}

// ---- building values -----------------------------------------------------------------------

Json& DomBuilder::place(Json&& v) {
  if (levels_.empty()) return root_ = std::move(v);
  Json& container = *levels_.back();
  if (container.is_array()) return container.get_ref<Json::array_t&>().emplace_back(std::move(v));
  Json::object_t::Container& members = container.get_ref<Json::object_t&>();
  return members.emplace_back(std::move(key_), std::move(v)).second;
}

bool DomBuilder::value(Json&& v) {
  count();
  place(std::move(v));
  return true;
}

bool DomBuilder::number_float(double v, const std::string& digits) {
  if (digits.find_first_not_of("-0123456789") != std::string::npos) return value(Json(v));
  return value(Json::binary(std::vector<std::uint8_t>(digits.begin(), digits.end()), kBigInteger));
}

bool DomBuilder::open(Json&& container) {
  enter();
  levels_.push_back(&place(std::move(container)));
  return true;
}

bool DomBuilder::key(std::string& v) {
  key_ = std::move(v);
  return true;
}

bool DomBuilder::end_object() {
  std::vector<std::string_view> keys;
  for (const auto& member : levels_.back()->get_ref<Json::object_t&>()) {
    keys.push_back(member.first);
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    throw Error(FRT_ERR_FORMAT,
                std::string(name()) + ": the key " + quote(*twice) + " stands twice in one object");
  }
  return end_array();
}

bool DomBuilder::end_array() {
  leave();
  levels_.pop_back();
  return true;
}

// ---- a complete text ---------------------------------------------------------------------------

Json parse_json(std::string_view text, std::string_view name, JsonLimits limits) {
  DomBuilder builder(name, limits);
  run_sax(text, builder);
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, JsonLimits limits) {
  return parse_json(read_file(path, "JSON file", limits.bytes), path.string(), limits);
}

}  // namespace frt::io
