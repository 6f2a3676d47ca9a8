// SPDX-License-Identifier: Apache-2.0
// frt/models/json.hpp - JSON for checkpoints and prompts: a reader that distrusts its input, and a
// writer that prints what Python's json.dumps(ensure_ascii=False) prints, because chat templates
// were trained on that.
//
// The reader keeps the order of keys, refuses duplicate keys, nesting beyond `depth` and text that
// is no UTF-8, and loses no digit of an integer: one beyond 64 bits becomes a binary value of
// subtype kBigInteger that holds its digits, which python_json() prints back.
// Errors: FRT_ERR_NOT_FOUND, FRT_ERR_IO, FRT_ERR_FORMAT with file, line and column.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace frt::models {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kBigInteger = 1;  // subtype of binary values that hold decimal digits

struct JsonLimits {
  std::size_t bytes = std::size_t{64} << 20;
  std::size_t depth = 128;  // of nested arrays and objects
};

// `name` stands for the file in errors.  [any]
Json parse_json(std::string_view text, std::string_view name, JsonLimits limits = {});

Json read_json_file(const std::filesystem::path& path, JsonLimits limits = {});

// json.dumps(value, ensure_ascii=False): ", " and ": " between, keys in the order they have, floats
// as Python's repr ("1.0", "1e-05", "1e+16", "NaN", "Infinity"), \uXXXX for control characters
// only. FRT_ERR_INVALID_ARGUMENT for nesting beyond 512 and for binary values of another kind.
// [any]
std::string python_json(const Json& value);

// repr() of a Python float.  [any]
std::string python_float(double value);

}  // namespace frt::models
