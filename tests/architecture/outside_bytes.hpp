// SPDX-License-Identifier: Apache-2.0
// outside_bytes.hpp - finds code that reads files or parses text by other means than sdk/io, and so
// without its bounds: a file may be a pipe, a text may be nested a million levels deep.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace outside_bytes {

struct Hit {
  std::filesystem::path file;
  std::size_t line = 0;
  std::string call;  // "ifstream"
};

// What one line of C++ calls that only sdk/io may call; comments do not count.
std::vector<std::string> calls_in(std::string_view line);

// All hits in the sources under `root`.
std::vector<Hit> scan(const std::filesystem::path& root);

// A place that may do it, and why.
struct Exception {
  const char* file;  // below the project
  const char* call;
  const char* reason;
};

extern const std::vector<Exception> kExceptions;

}  // namespace outside_bytes
