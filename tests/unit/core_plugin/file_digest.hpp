// SPDX-License-Identifier: Apache-2.0
// file_digest.hpp - the SHA-256 of a file by its path.
#pragma once

#include <fcntl.h>

#include <filesystem>
#include <frt/core/digest.hpp>
#include <frt/io/file.hpp>
#include <string>

namespace test {

inline std::string file_digest(const std::filesystem::path& path) {
  const frt::io::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return frt::core::sha256_file(file.get(), path.string());
}

}  // namespace test
