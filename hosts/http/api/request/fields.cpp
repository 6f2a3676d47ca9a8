// SPDX-License-Identifier: Apache-2.0
#include "http/api/request/fields.hpp"

#include <cmath>
#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>

#include "http/api/error.hpp"

namespace frt::host::api {

namespace {

std::string number_text(double value) {
  return io::json_text(Json(value == std::floor(value) && std::abs(value) < 1e15
                                ? Json(static_cast<int64_t>(value))
                                : Json(value)));
}

}  // namespace

void refuse(const std::string& path, const std::string& text) {
  throw ApiError(ApiErrorKind::kInvalid, (path.empty() ? "the body" : path) + " " + text, path);
}

std::string shown_value(const Json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  if (value.is_string()) return io::quote(value.get_ref<const std::string&>());
  std::string text = io::json_text(value);
  if (text.size() > 40) text.replace(40, text.npos, "...");
  return text;
}

Json parse_body(std::string_view body, const ApiLimits& limits) {
  if (body.size() > limits.body) {
    throw ApiError(ApiErrorKind::kTooLarge, "the body has " + std::to_string(body.size()) +
                                                " bytes, at most " + std::to_string(limits.body) +
                                                " are taken");
  }
  try {
    Json value = io::parse_json(body, "body", {limits.body, limits.depth, limits.values});
    if (!value.is_object()) refuse({}, "is " + shown_value(value) + ": send a JSON object");
    return value;
  } catch (const Error& error) {
    throw ApiError(ApiErrorKind::kInvalid,
                   std::string("the body cannot be read as JSON: ") + error.what());
  }
}

Fields::Fields(const Json& value, std::string path) : object_(&value), path_(std::move(path)) {
  if (!value.is_object()) refuse(path_, "is " + shown_value(value) + ": give an object");
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

const Json* Fields::find(std::string_view name) const {
  for (const auto& [key, value] : object_->get_ref<const Json::object_t&>()) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const Json* value = find(name);
  if (!value) return {};
  if (!value->is_boolean()) {
    refuse(path_of(name), "is " + shown_value(*value) + ": give true or false");
  }
  return value->get<bool>();
}

std::optional<double> Fields::number(std::string_view name, double least, double most) const {
  const Json* value = find(name);
  if (!value) return {};
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= least && number <= most)) {
    refuse(path_of(name), "is " + shown_value(*value) + ": give a number from " +
                              number_text(least) + " to " + number_text(most));
  }
  return number;
}

std::optional<uint64_t> Fields::count(std::string_view name, uint64_t least, uint64_t most) const {
  const Json* value = find(name);
  if (!value) return {};
  // The reader makes every integer that is not negative an unsigned one.
  if (!value->is_number_unsigned() || value->get<uint64_t>() < least ||
      value->get<uint64_t>() > most) {
    refuse(path_of(name), "is " + shown_value(*value) + ": give a whole number from " +
                              std::to_string(least) + " to " + std::to_string(most));
  }
  return value->get<uint64_t>();
}

std::optional<std::string> Fields::text(std::string_view name) const {
  const Json* value = find(name);
  if (!value) return {};
  if (!value->is_string()) refuse(path_of(name), "is " + shown_value(*value) + ": give a text");
  return value->get<std::string>();
}

std::string Fields::required_text(std::string_view name) const {
  std::optional<std::string> value = text(name);
  if (!value) refuse(path_of(name), "is missing: give a text");
  return *std::move(value);
}

const Json* Fields::array(std::string_view name, std::size_t most) const {
  const Json* value = find(name);
  if (!value) return nullptr;
  if (!value->is_array()) refuse(path_of(name), "is " + shown_value(*value) + ": give a list");
  if (value->size() > most) {
    refuse(path_of(name), "has " + std::to_string(value->size()) + " entries: at most " +
                              std::to_string(most) + " are taken");
  }
  return value;
}

std::optional<Fields> Fields::object(std::string_view name) const {
  const Json* value = find(name);
  if (!value) return {};
  return Fields(*value, path_of(name));
}

void Fields::refuse_if_set(std::string_view name, std::string_view instead) const {
  const Json* value = find(name);
  if (!value) return;
  const bool unset = (value->is_boolean() && !value->get<bool>()) ||
                     (value->is_number() && value->get<double>() == 0) ||
                     (value->is_string() && value->get_ref<const std::string&>().empty()) ||
                     (value->is_structured() && value->empty());
  if (!unset) refuse(path_of(name), "is not supported: " + std::string(instead));
}

}  // namespace frt::host::api
