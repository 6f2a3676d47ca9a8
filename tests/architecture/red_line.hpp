// SPDX-License-Identifier: Apache-2.0
// red_line.hpp - finds names of device interfaces and models in core, which knows mechanism only.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace red_line {

struct Hit {
  std::filesystem::path file;
  std::size_t line = 0;
  std::string word;
};

// The names of products in one line of text, in any case and inside identifiers: `cudaStream`,
// `QWEN_ROWS`. Short names (hip, recap) must stand alone in an identifier: "ownership" and
// "recapture" are fine.
std::vector<std::string> words_in(std::string_view line);

// All hits in the files under `root` (a folder or a file). Pages (.md) are left out: they say what
// must not come in.
std::vector<Hit> scan(const std::filesystem::path& root);

}  // namespace red_line
