// SPDX-License-Identifier: Apache-2.0
// frt/models/sha256.hpp - SHA-256 of files and texts, for fingerprints. 64 hex digits.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace frt::models {

// FRT_ERR_NOT_FOUND or FRT_ERR_IO with the path.  [any]
std::string sha256_file(const std::filesystem::path& path);
// Of an open file, from its start; the file's position is not used. `path` is for messages. [any]
std::string sha256_file(int descriptor, const std::filesystem::path& path);

std::string sha256_text(std::string_view text);  // [any]

}  // namespace frt::models
