// SPDX-License-Identifier: Apache-2.0
// fields.hpp - typed and range-checked members of a JSON object from outside.
//
// A member that is missing and one that is null are the same. A member of another type, or outside
// its range, is an ApiError (kInvalid) whose param is the member's path, "messages[3].content".
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "http/api/limits.hpp"

namespace frt::host::api {

using Json = nlohmann::ordered_json;

// Throws ApiError (kInvalid) "PATH TEXT" with param PATH; an empty path is the body.
[[noreturn]] void refuse(const std::string& path, const std::string& text);

// What a value is, for an error: its text, cut and escaped, or "a list", "an object".
std::string shown_value(const Json& value);

// The body as one JSON object, within the limits. Throws ApiError.
Json parse_body(std::string_view body, const ApiLimits& limits);

// An object's members. The object outlives it.
class Fields {
 public:
  // Throws if `value` is no object. `path` is empty for the body.
  Fields(const Json& value, std::string path);

  const std::string& path() const noexcept { return path_; }
  std::string path_of(std::string_view name) const;

  // Null if missing.
  const Json* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<double> number(std::string_view name, double least, double most) const;
  std::optional<uint64_t> count(std::string_view name, uint64_t least, uint64_t most) const;
  std::optional<std::string> text(std::string_view name) const;
  std::string required_text(std::string_view name) const;
  // Null if missing.
  const Json* array(std::string_view name, std::size_t most) const;
  std::optional<Fields> object(std::string_view name) const;

  // Throws if the member is there and is not false, 0, "", [] or {}: what it asks for is not to be
  // had. `instead` says what to do.
  void refuse_if_set(std::string_view name, std::string_view instead) const;

 private:
  const Json* object_;
  std::string path_;
};

}  // namespace frt::host::api
