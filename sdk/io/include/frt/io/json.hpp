// SPDX-License-Identifier: Apache-2.0
// frt/io/json.hpp - the one JSON reader for bytes from outside: bounded in size, depth and count
// while it reads, so that nothing is built that a limit forbids.
//
// The reader keeps the order of keys, refuses duplicate keys and text that is no UTF-8, and loses
// no digit of an integer: one beyond 64 bits becomes a binary value of subtype kBigInteger that
// holds its digits. Everything that walks, copies or prints a value of the library recurses once
// per level: the limit of depth is what keeps that from overflowing the stack. Errors:
// FRT_ERR_FORMAT with name, line and column; of files also FRT_ERR_NOT_FOUND and FRT_ERR_IO.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace frt::io {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kBigInteger = 1;  // subtype of binary values that hold decimal digits

struct JsonLimits {
  std::size_t bytes = std::size_t{64} << 20;  // of text
  std::size_t depth = 128;                    // of nested arrays and objects
  std::size_t values = std::size_t{1} << 20;  // of all kinds together; one costs up to 64 bytes
};

// `name` stands for the file in errors.  [any]
Json parse_json(std::string_view text, std::string_view name, JsonLimits limits = {});

Json read_json_file(const std::filesystem::path& path, JsonLimits limits = {});

}  // namespace frt::io
