// SPDX-License-Identifier: Apache-2.0
// frt/lm/fields.hpp - one JSON object of a config.json with the file and path it came from, so that
// every message can name the key in full. A member that is JSON null counts as absent. Errors:
// FRT_ERR_FORMAT with key, what was expected and what was found. [any]
#pragma once

#include <cmath>
#include <cstdint>
#include <frt/error.hpp>
#include <frt/models/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace frt::lm {

using models::Json;

// What a dimension can be at most, the layers of a model, and its positions.
inline constexpr std::int64_t kMaxDimension = std::int64_t{1} << 26;
inline constexpr std::int64_t kMaxLayers = 65536;
inline constexpr std::int64_t kMaxPositions = 2147483647;

class Fields {
 public:
  Fields(const Json& object, std::string file, std::string path)
      : object_(&object), file_(std::move(file)), path_(std::move(path)) {}

  // Where `key` is, for messages.
  std::string at(std::string_view key) const {
    return file_ + ": " + (path_.empty() ? "" : path_ + ".") + std::string(key);
  }
  [[noreturn]] void refuse(std::string_view key, const std::string& expected,
                           frt_status status = FRT_ERR_FORMAT) const {
    const Json* found = find(key);
    throw Error(status, at(key) + ": expected " + expected + ", found " +
                            (found ? found->dump().substr(0, 80) : "nothing"));
  }

  // The value, or null if the key is absent or JSON null.
  const Json* find(std::string_view key) const {
    const auto entry = object_->find(std::string(key));
    return entry == object_->end() || entry->is_null() ? nullptr : &*entry;
  }

  std::optional<std::int64_t> integer(std::string_view key, std::int64_t minimum,
                                      std::int64_t maximum = kMaxDimension) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    const auto limits =
        "a whole number from " + std::to_string(minimum) + " to " + std::to_string(maximum);
    if (!value->is_number_integer()) refuse(key, limits);
    const auto number = value->get<std::int64_t>();
    if (number < minimum || number > maximum) refuse(key, limits);
    return number;
  }
  std::int64_t need_integer(std::string_view key, std::int64_t minimum = 1,
                            std::int64_t maximum = kMaxDimension) const {
    const auto value = integer(key, minimum, maximum);
    if (!value) refuse(key, "a whole number");
    return *value;
  }
  std::optional<double> number(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_number() || !std::isfinite(value->get<double>())) refuse(key, "a number");
    return value->get<double>();
  }
  std::optional<double> positive(std::string_view key) const {
    const auto value = number(key);
    if (value && *value <= 0) refuse(key, "a number above 0");
    return value;
  }
  std::optional<bool> boolean(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) refuse(key, "true or false");
    return value->get<bool>();
  }
  std::optional<std::string> text(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_string()) refuse(key, "a text");
    return value->get<std::string>();
  }
  std::optional<Fields> object(std::string_view key) const {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_object()) refuse(key, "an object");
    return Fields(*value, file_, (path_.empty() ? "" : path_ + ".") + std::string(key));
  }

 private:
  const Json* object_;
  std::string file_;
  std::string path_;
};

}  // namespace frt::lm
