// SPDX-License-Identifier: Apache-2.0
// frt/models/sha256.hpp - SHA-256 of a file, streamed, for fingerprints.
#pragma once

#include <filesystem>
#include <string>

namespace frt::models {

// 64 hex digits. FRT_ERR_NOT_FOUND or FRT_ERR_IO with the path.  [any]
std::string sha256_file(const std::filesystem::path& path);

}  // namespace frt::models
